/**
 * The page of a browser wallet: finds wallets by EIP-6963, asks one of them for what the command
 * wants, and brings back what it answers. Nothing that a wallet says is believed here: the command
 * checks it.
 */
import { byId, call, lines, make, show } from './elements.js'

/** What the person can mend and try again; the terminal is told too. */
class Problem extends Error {}

const buttons = new Map()
let provider
let task = { kind: 'wait', id: 0 }
let isAsking = false
let hasFailed = false
let isOver = false

const post = (name, body) =>
  call(name, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

function say(text, grade = 'warn') {
  show('said', text && make(`p.notice.${grade}`, text))
  draw()
}

function draw() {
  const isWaiting = task.kind === 'wait'
  byId('pick').hidden = isOver || (provider !== undefined && !hasFailed)
  byId('task').hidden = isOver || isWaiting
  byId('idle').hidden = isOver || !isWaiting
  byId('again').hidden = !hasFailed
}

const titles = {
  connect: 'Choose the account',
  sign: 'Sign a proposal',
  send: 'Send a transaction',
}

function showTask({ kind, number, total, summary, document, transaction }) {
  show('title', titles[kind])
  show('count', total > 1 ? `${number} of ${total}` : number > 1 ? `no. ${number}` : '')
  show('summary', ...lines(summary))
  const { types: _, ...given } = document ?? transaction ?? {}
  show('document', JSON.stringify(given, null, 2))
  byId('document').parentNode.hidden = kind === 'connect'
}

function offer(uuid, found, name, title) {
  if (typeof found?.request !== 'function' || buttons.has(uuid)) return
  const button = Object.assign(make('button', `Use ${name}`), { title })
  button.addEventListener('click', () => {
    provider = found
    for (const change of ['accountsChanged', 'chainChanged'])
      found.on?.(change, () => {
        if (hasFailed) void work()
      })
    void work()
  })
  buttons.get('injected')?.remove()
  buttons.set(uuid, button)
  byId('wallets').append(button)
  byId('no-wallet').hidden = true
}

function announced({ detail }) {
  const { info, provider: found } = detail ?? {}
  if (typeof info?.uuid !== 'string') return
  const [name, title] = [String(info.name ?? 'wallet'), String(info.rdns ?? '')]
  offer(info.uuid, found, name.slice(0, 60), title.slice(0, 100))
}

/** A wallet that announces nothing may still stand at window.ethereum. */
function injected() {
  if (buttons.size === 0)
    offer('injected', window.ethereum, 'the browser wallet', 'window.ethereum')
}

/** Half a character would be no JSON for the command. */
const wordsOf = (error) =>
  String(error?.message ?? error ?? 'no reason given')
    .slice(0, 300)
    .replace(/[\ud800-\udfff]/g, ' ')
const isText = (value, form) => typeof value === 'string' && form.test(value)
const refusedByUser = (error) => error?.code === 4001 || error?.code === 'ACTION_REJECTED'
const ask = async (method, params) => provider.request({ method, ...(params && { params }) })

async function accounts() {
  const list = await ask('eth_requestAccounts')
  if (!Array.isArray(list) || !list.every((one) => isText(one, /^0x[0-9a-fA-F]{40}$/)))
    throw new Problem('The wallet gave no usable list of accounts.')
  return list.map((one) => one.toLowerCase())
}

async function chainNow() {
  const id = await ask('eth_chainId')
  if (isText(id, /^0x[0-9a-fA-F]{1,12}$/)) return Number(id)
  throw new Problem('The wallet does not say on which chain it is.')
}

async function switchTo(wanted) {
  const now = await chainNow()
  if (now === wanted) return
  say(`Asking the wallet to switch to chain ${wanted}.`)
  try {
    await ask('wallet_switchEthereumChain', [{ chainId: `0x${wanted.toString(16)}` }])
  } catch (error) {
    if (refusedByUser(error)) throw error
    const unknown = `The wallet does not know chain ${wanted}: add it there.`
    const why = error?.code === 4902 ? unknown : wordsOf(error)
    throw new Problem(`The wallet is on chain ${now}, not ${wanted}. ${why}`)
  }
  const then = await chainNow()
  if (then !== wanted)
    throw new Problem(`The wallet is on chain ${then}, not ${wanted}: switch it there.`)
}

async function answerTo({ kind, account, chain_id: chainId, document, transaction }) {
  const held = await accounts()
  if (kind === 'connect') {
    if (held.length > 0) return { account: held[0], result: held[0] }
    throw new Problem('The wallet shows no account to this page: allow one there.')
  }
  const offered = held.join(', ') || 'no account'
  if (!held.includes(account))
    throw new Problem(
      `The wallet offers ${offered}; this is for ${account}. Choose that account in the wallet.`,
    )
  await switchTo(chainId)
  say('Compare the two sides, then agree in the wallet.')
  const result =
    kind === 'sign'
      ? await ask('eth_signTypedData_v4', [account, JSON.stringify(document)])
      : await ask('eth_sendTransaction', [transaction])
  // An answer is hex; whatever else a wallet brings is none.
  return { account, result: isText(result, /^0x[0-9a-fA-F]{0,19997}$/) ? result : null }
}

async function answerOrRefusal() {
  const { kind } = task
  try {
    return { ...(await answerTo(task)), chain_id: await chainNow() }
  } catch (error) {
    if (error instanceof Problem) throw error
    if (kind === 'connect' && !refusedByUser(error)) throw new Problem(wordsOf(error))
    return { refused: wordsOf(error) }
  }
}

async function work() {
  if (isAsking || isOver || provider === undefined || task.kind === 'wait') return
  isAsking = true
  hasFailed = false
  const { id } = task
  say('Waiting for the wallet.')
  try {
    await post('answer', { id, ...(await answerOrRefusal()) })
    if (task.id === id) task = { kind: 'wait', id }
    say('')
  } catch (error) {
    const problem = wordsOf(error)
    hasFailed = true
    say(problem, 'bad')
    if (error instanceof Problem) await post('problem', { id, problem }).catch(() => {})
  }
  isAsking = false
  if (task.id !== id) void work()
}

async function follow() {
  const gone = 'The command in the terminal has ended. You can close this page.'
  const done = 'Done. The terminal shows the result; you can close this page.'
  while (!isOver) {
    const next = await post('next', { seen: task.id }).catch((error) => ({
      kind: 'end',
      why: error.isRefusal ? error.message : gone,
    }))
    if (next.kind === 'same') continue
    isOver = next.kind === 'end'
    if (isOver) return say(next.why ?? done, 'good')
    task = next
    if (next.kind === 'wait') draw()
    else {
      showTask(next)
      say('')
    }
    void work()
  }
}

byId('again').addEventListener('click', () => void work())
byId('refuse').addEventListener('click', () => {
  const refusal = { id: task.id, refused: 'refused on the page' }
  void post('answer', refusal).catch((error) => say(wordsOf(error), 'bad'))
})
window.addEventListener('eip6963:announceProvider', announced)
window.dispatchEvent(new Event('eip6963:requestProvider'))
setTimeout(injected, 500)
draw()
void follow()
