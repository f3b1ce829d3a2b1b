/**
 * The page of a browser wallet: finds wallets by EIP-6963, asks one of them for what the command
 * wants, and brings back what it answers. Nothing that a wallet says is believed here: the command
 * checks it.
 */
const byId = (id) => document.getElementById(id)
const base = location.pathname
const wallets = new Map()
let provider
let task
let isAsking = false
let isOver = false

const hidden = (id, isHidden) => {
  byId(id).hidden = isHidden
}
const say = (text, kind) => {
  byId('said').textContent = text
  byId('said').className = `notice ${kind ?? ''}`
  hidden('said', text === '')
}

async function call(name, body) {
  const response = await fetch(base + name, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const answer = await response.json()
  if (!response.ok)
    throw Object.assign(new Error(answer.error?.detail ?? 'no response'), { isRefusal: true })
  return answer
}

function rows(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([label, value]) => {
      const [row, dt, dd] = ['div', 'dt', 'dd'].map((name) => document.createElement(name))
      dt.textContent = label
      dd.textContent = value
      row.append(dt, dd)
      return row
    }),
  )
}

/** Every field of what the wallet gets, by its path. */
function flat(value, path) {
  if (typeof value !== 'object' || value === null) return [[path, String(value)]]
  return Object.entries(value).flatMap(([key, inner]) =>
    flat(inner, path === '' ? key : `${path}.${key}`),
  )
}

function show(next) {
  task = next
  hidden('task', next.kind === 'wait')
  hidden('idle', next.kind !== 'wait')
  if (next.kind === 'wait') return
  byId('title').textContent = {
    connect: 'Choose the account',
    sign: 'Sign a proposal',
    send: 'Send a transaction',
  }[next.kind]
  byId('count').textContent =
    next.total > 1 ? `${next.number} of ${next.total}` : next.number > 1 ? `no. ${next.number}` : ''
  byId('bar').max = Math.max(next.total, next.number)
  byId('bar').value = next.number - 1
  hidden('bar', next.total < 2)
  rows(byId('summary'), next.summary)
  const sent = next.document ?? next.transaction
  hidden('wallet-side', sent === undefined)
  if (sent !== undefined) {
    const parts = next.document
      ? { domain: sent.domain, primaryType: sent.primaryType, message: sent.message }
      : sent
    rows(byId('document'), flat(parts, ''))
  }
}

function showWallets() {
  byId('wallets').replaceChildren(
    ...[...wallets.values()].map(({ info, provider: found }) => {
      const button = document.createElement('button')
      button.type = 'button'
      button.textContent = `Use ${info.name}`
      button.title = info.rdns
      button.addEventListener('click', () => {
        provider = found
        for (const change of ['accountsChanged', 'chainChanged'])
          found.on?.(change, () => {
            if (!byId('again').hidden) void work()
          })
        void work()
      })
      return button
    }),
  )
  hidden('none', wallets.size > 0)
}

function announced({ detail }) {
  const { info, provider: found } = detail ?? {}
  if (
    typeof found?.request !== 'function' ||
    typeof info?.uuid !== 'string' ||
    wallets.has(info.uuid)
  )
    return
  wallets.delete('injected')
  wallets.set(info.uuid, {
    info: {
      name: String(info.name ?? 'wallet').slice(0, 60),
      rdns: String(info.rdns ?? '').slice(0, 100),
    },
    provider: found,
  })
  showWallets()
}

/** A wallet that announces nothing may still stand at window.ethereum. */
function injected() {
  if (wallets.size > 0 || typeof window.ethereum?.request !== 'function') return
  wallets.set('injected', {
    info: { name: 'the browser wallet', rdns: 'window.ethereum' },
    provider: window.ethereum,
  })
  showWallets()
}

/** What the person can mend and try again; the terminal is told too. */
class Problem extends Error {}

/** Half a character would be no JSON for the command. */
const wordsOf = (error) =>
  String(error?.message ?? error ?? 'no reason given')
    .slice(0, 300)
    .replace(/[\ud800-\udfff]/g, ' ')
/** An answer is hex; whatever else a wallet brings is none. */
const hexOf = (result) =>
  typeof result === 'string' && result.length < 20000 && /^0x[0-9a-fA-F]*$/.test(result)
    ? result
    : null
const refusedByUser = (error) => error?.code === 4001 || error?.code === 'ACTION_REJECTED'

const ask = async (method, params) => provider.request({ method, ...(params && { params }) })

async function accounts() {
  const list = await ask('eth_requestAccounts')
  if (
    !Array.isArray(list) ||
    list.some((one) => typeof one !== 'string' || !/^0x[0-9a-fA-F]{40}$/.test(one))
  )
    throw new Problem('The wallet gave no usable list of accounts.')
  return list.map((one) => one.toLowerCase())
}

async function chainNow() {
  const id = await ask('eth_chainId')
  if (typeof id !== 'string' || !/^0x[0-9a-fA-F]{1,12}$/.test(id))
    throw new Problem('The wallet does not say on which chain it is.')
  return Number(id)
}

async function onChain(wanted) {
  const now = await chainNow()
  if (now === wanted) return
  say(`Asking the wallet to switch to chain ${wanted}.`)
  try {
    await ask('wallet_switchEthereumChain', [{ chainId: `0x${wanted.toString(16)}` }])
  } catch (error) {
    if (refusedByUser(error)) throw error
    const why =
      error?.code === 4902
        ? `The wallet does not know chain ${wanted}: add it there.`
        : wordsOf(error)
    throw new Problem(`The wallet is on chain ${now}, not ${wanted}. ${why}`)
  }
  const then = await chainNow()
  if (then !== wanted)
    throw new Problem(`The wallet is on chain ${then}, not ${wanted}: switch it there.`)
}

async function answerOf(current) {
  const held = await accounts()
  if (current.kind === 'connect') {
    if (held.length === 0)
      throw new Problem('The wallet shows no account to this page: allow one there.')
    return { account: held[0], result: held[0] }
  }
  if (!held.includes(current.account))
    throw new Problem(
      'The wallet offers ' +
        (held.join(', ') || 'no account') +
        '; this is for ' +
        current.account +
        '. Choose that account in the wallet.',
    )
  await onChain(current.chain_id)
  say('Compare the two sides, then agree in the wallet.')
  const result =
    current.kind === 'sign'
      ? await ask('eth_signTypedData_v4', [current.account, JSON.stringify(current.document)])
      : await ask('eth_sendTransaction', [current.transaction])
  return { account: current.account, result: hexOf(result) }
}

async function work() {
  if (isAsking || isOver || provider === undefined || task === undefined || task.kind === 'wait')
    return
  isAsking = true
  const current = task
  hidden('again', true)
  hidden('pick', true)
  say('Waiting for the wallet.')
  try {
    let answer
    try {
      const { account, result } = await answerOf(current)
      answer = { id: current.id, account, chain_id: await chainNow(), result }
    } catch (error) {
      if (error instanceof Problem) throw error
      if (current.kind === 'connect' && !refusedByUser(error)) throw new Problem(wordsOf(error))
      answer = { id: current.id, refused: wordsOf(error) }
    }
    await call('answer', answer)
    say('')
    if (task.id === current.id) show({ ...task, kind: 'wait' })
  } catch (error) {
    say(wordsOf(error), 'bad')
    hidden('again', false)
    hidden('pick', false)
    if (error instanceof Problem)
      await call('problem', { id: current.id, problem: wordsOf(error) }).catch(() => {})
  } finally {
    isAsking = false
  }
  if (task.id !== current.id) void work()
}

function over(text) {
  isOver = true
  hidden('task', true)
  hidden('idle', true)
  hidden('pick', true)
  say(text, 'good')
}

async function follow() {
  let seen = 0
  while (!isOver) {
    let next
    try {
      next = await call('next', { seen })
    } catch (error) {
      return over(
        error.isRefusal
          ? error.message
          : 'The command in the terminal has ended. You can close this page.',
      )
    }
    if (next.kind === 'end')
      return over('Done. The terminal shows the result; you can close this page.')
    if (next.kind === 'same') continue
    seen = next.id
    if (next.kind !== 'wait') say('')
    show(next)
    void work()
  }
}

byId('again').addEventListener('click', () => void work())
byId('refuse').addEventListener('click', () => {
  if (task === undefined || task.kind === 'wait') return
  void call('answer', { id: task.id, refused: 'refused on the page' }).catch((error) =>
    say(wordsOf(error), 'bad'),
  )
})
window.addEventListener('eip6963:announceProvider', announced)
window.dispatchEvent(new Event('eip6963:requestProvider'))
setTimeout(injected, 500)
showWallets()
void follow()
