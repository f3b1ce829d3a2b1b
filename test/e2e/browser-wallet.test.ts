/** contract §9, `--browser`: a real Chromium with an injected EIP-1193 wallet, the built command, anvil. */

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { startDevChain } from '#devchain/dev-chain'
import { contractOf, devAccount, devRpc } from '#devchain/dev-contracts'
import { argvOf } from '#support/argv'
import { openBrowser } from '#support/browser'
import { honestProvider, injectWallet, type Provider, ProviderError } from '#support/browser-wallet'
import { describeWith } from '#support/components'
import { deferred } from '#support/deferred'
import { deferPayout } from '#support/deferred-payout'
import { type Running, workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'

const shop = workshop()
let chromium: Browser
let ready: ServeReady
let rpcUrl: string
let chainId: number
let nextAccount = 0
let nextQuestion = 0

beforeAll(async () => {
  ready = await shop.start(argvOf`serve --dev --port 0 --questions 24 --json`).line<ServeReady>()
  rpcUrl = String(Reflect.get(ready.dev, 'rpc_url'))
  chainId = Number(Reflect.get(ready.dev, 'chain_id'))
})

const questionOf = () => {
  const question = ready.dev.questions[nextQuestion++]
  if (question === undefined) throw new Error('the dev chain has no more questions')
  return question.slug
}

async function newClient() {
  const home = join(await shop.folder(), 'home')
  await mkdir(home, { mode: 0o700 })
  const proposers = ready.dev.accounts.filter(({ role }) => role === 'proposer')
  const account = proposers[nextAccount++ % proposers.length]
  if (account === undefined) throw new Error('the dev chain has no proposers')
  await writeFile(join(home, 'trust.json'), JSON.stringify(ready.dev.trust))
  const env = {
    PROPOSER_HOME: home,
    PROPOSER_TRUST: join(home, 'trust.json'),
    PROPOSER_GATEWAY: ready.url,
    PROPOSER_RPC_URL: rpcUrl,
  }
  return { home, env, proposer: account.address, key: account.private_key }
}
type Client = Awaited<ReturnType<typeof newClient>>

async function browserWith(provider: Provider) {
  const browser = await chromium.newContext()
  onTestFinished(() => browser.close())
  return { browser, asked: await injectWallet(browser, provider) }
}

const pageUrl = /http:\/\/127\.0\.0\.1:\d+\/[\w-]{43}\//
async function addressOf(running: Running): Promise<string> {
  await running.said(pageUrl)
  return pageUrl.exec(running.stderr())?.[0] ?? ''
}
async function connect(browser: BrowserContext, url: string): Promise<Page> {
  const page = await browser.newPage()
  await page.goto(url)
  await page.getByRole('button', { name: 'Use Test Wallet' }).click()
  return page
}
const start = (client: Client, ...args: string[]) => shop.start(args, { env: client.env })
const listed = async ({ env }: Client) =>
  JSON.parse((await shop.runHere(argvOf`journal list --json`, env)).stdout)
    .authorizations as Record<string, unknown>[]
const methods = (asked: readonly { readonly method: string }[]) => asked.map(({ method }) => method)

describeWith(['Chromium'], '--browser', () => {
  beforeAll(async () => {
    chromium = await openBrowser()
  })
  afterAll(() => chromium.close())

  test('submit: the page shows what is signed beside the document, the wallet changes to the chain and signs, and it is executed', async () => {
    const client = await newClient()
    const { browser, asked } = await browserWith(honestProvider(client.key, rpcUrl, chainId))
    const slug = questionOf()
    const flags = argvOf`--outcome p2 --browser --wait --json`
    const running = start(client, 'submit', slug, ...flags)
    const page = await browser.newPage()
    await page.goto(await addressOf(running))
    await page.locator('#title', { hasText: 'Choose the account' }).waitFor()
    await page.getByRole('button', { name: 'Use Test Wallet' }).click()
    const { code, stdout, stderr } = await running.ended
    expect(code, stderr).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ outcome: 'accepted', status: 'executed' })
    expect(methods(asked).filter((one) => one === 'eth_signTypedData_v4')).toHaveLength(1)
    expect(methods(asked)).toContain('wallet_switchEthereumChain')
    await page.locator('#said', { hasText: /^Done\./ }).waitFor()
    expect(await listed(client)).toMatchObject([{ proposer: client.proposer, state: 'closed' }])
  })

  test('sign: question, answer in words, amount and deadline stand beside every field that the wallet is given, on a phone too', async () => {
    const client = await newClient()
    const provider = honestProvider(client.key, rpcUrl, chainId)
    const { promise: agreed, resolve: agree } = deferred()
    const { browser, asked } = await browserWith(async (method, params) => {
      if (method === 'eth_signTypedData_v4') await agreed
      return provider(method, params)
    })
    const slug = questionOf()
    const flags = argvOf`--outcome p1 --deadline 2h --browser --proposer ${client.proposer}`
    const running = start(client, 'sign', slug, ...flags, '-o', '-')
    const page = await connect(browser, await addressOf(running))
    await page.locator('#said', { hasText: 'Compare the two sides' }).waitFor()
    const ours = await page.locator('#summary').textContent()
    expect(ours).toMatch(/^question[A-Z].*identifier.*answer.*\bp1\b/)
    expect(ours).toMatch(/authorizes[\d,]+ USDC\.e \(\d+ raw\)deadline\d{4}-\d\d-\d\dT/)
    const theirs = await page.locator('#document').textContent()
    const document = JSON.parse(String(asked.at(-1)?.params[1]))
    for (const value of [
      document.message.nonce,
      document.message.deadline,
      document.message.permitted.amount,
      document.message.witness.ancillaryData,
      document.domain.verifyingContract,
    ])
      expect(theirs).toContain(value)
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 800 })
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0)
    }
    agree()
    const { code, stdout, stderr } = await running.ended
    expect(code, stderr).toBe(0)
    const { signature } = JSON.parse(stdout) as { signature: string }
    expect(signature).toMatch(/^0x[0-9a-f]{130}$/)
    expect(stderr).not.toContain(signature)
    expect(await page.content()).not.toContain(signature)
  })

  test('batch sign: rows one after the other; a tab that is closed is opened again, a row that is refused is rejected alone, and the next run signs it', async () => {
    const client = await newClient()
    const provider = honestProvider(client.key, rpcUrl, chainId)
    const rows = [questionOf(), questionOf(), questionOf()]
    let signatures = 0
    let closeTab = async () => {}
    const { browser, asked } = await browserWith(async (method, params) => {
      if (method !== 'eth_signTypedData_v4') return provider(method, params)
      signatures++
      if (signatures === 2) {
        await closeTab()
        return new Promise(() => {})
      }
      if (signatures === 4) throw new ProviderError(4001, 'User rejected the request.')
      return provider(method, params)
    })
    const file = join(client.home, 'rows.ndjson')
    const lines = rows.map((identifier) => JSON.stringify({ identifier, outcome: 'p2' }))
    await writeFile(file, lines.join('\n'))
    const argv = argvOf`batch sign ${file} --browser --proposer ${client.proposer} --json`
    const running = start(client, ...argv)
    const url = await addressOf(running)
    const first = await connect(browser, url)
    const closed = new Promise<void>((resolve) => first.on('close', () => resolve()))
    closeTab = () => first.close()
    await closed
    const second = await browser.newPage()
    await second.goto(url)
    await second.locator('#count', { hasText: '2 of 3' }).waitFor()
    await second.getByRole('button', { name: 'Use Test Wallet' }).click()
    const ran = await running.ended
    expect(ran.code, ran.stderr).toBe(3)
    const { results, summary } = JSON.parse(ran.stdout)
    expect(summary).toMatchObject({ rows: 3, signed: 2, rejected: 1 })
    expect(results[2]).toMatchObject({
      outcome: 'rejected',
      error: { code: 'signer_refused', detail: expect.stringContaining('User rejected') },
    })
    const again = start(client, ...argv)
    await connect(browser, await addressOf(again))
    const done = await again.ended
    expect(done.code, done.stderr).toBe(0)
    expect(JSON.parse(done.stdout).summary).toMatchObject({ signed: 1, reused: 2, rejected: 0 })
    const nonces = asked
      .filter(({ method }) => method === 'eth_signTypedData_v4')
      .map(({ params }) => JSON.parse(String(params[1])).message.nonce)
    expect(nonces[1]).toBe(nonces[2])
    expect(new Set(nonces).size).toBe(4)
  })

  /** Those that wait for a timeout side by side, for it is long enough for a busy machine. */
  const eachOf = async <T extends readonly unknown[]>(
    rows: readonly T[],
    judge: (row: T) => Promise<void>,
  ) => {
    const [quick, slow] = [
      rows.filter((row) => row.length < 5),
      rows.filter((row) => row.length === 5),
    ]
    for (const row of quick) await judge(row)
    await Promise.all(slow.map(judge))
  }
  const never = () => new Promise(() => {})
  const rivalKey = devAccount('rival').private_key
  const stranger = `0x${'5'.repeat(64)}` as const
  const late = ['signer_timed_out', 75, ['--timeout', '20']] as const
  const bad: readonly [
    what: string,
    change: (honest: Provider) => Provider,
    code: string,
    exitCode: number,
    more?: readonly string[],
  ][] = [
    [
      'signs with another key',
      (honest) => on(honest, 'eth_signTypedData_v4', honestProvider(stranger, rpcUrl, chainId)),
      'bad_signature',
      2,
    ],
    [
      'is on another chain once it has signed',
      (honest) => {
        let hasSigned = false
        return async (method, params) => {
          hasSigned ||= method === 'eth_signTypedData_v4'
          return method === 'eth_chainId' && hasSigned ? '0x1' : honest(method, params)
        }
      },
      'wrong_chain',
      2,
    ],
    [
      'brings an object',
      (honest) => on(honest, 'eth_signTypedData_v4', async () => ({ evil: 1 })),
      'signer_answer',
      2,
    ],
    [
      'brings junk',
      (honest) => on(honest, 'eth_signTypedData_v4', async () => '<b>yes'),
      'signer_answer',
      2,
    ],
    [
      'brings too few bytes',
      (honest) => on(honest, 'eth_signTypedData_v4', async () => '0x1234'),
      'bad_signature',
      2,
    ],
    [
      'says no',
      (honest) =>
        on(honest, 'eth_signTypedData_v4', async () => {
          throw new ProviderError(4001, 'no \u001b[2J')
        }),
      'signer_refused',
      2,
    ],
    ['never answers', (honest) => on(honest, 'eth_signTypedData_v4', never), ...late],
    ['never shows an account', (honest) => on(honest, 'eth_requestAccounts', never), ...late],
    [
      'shows junk as accounts',
      (honest) => on(honest, 'eth_requestAccounts', async () => ({ 0: 'evil' })),
      ...late,
    ],
    ['is on no chain', (honest) => on(honest, 'eth_chainId', async () => '<script>'), ...late],
  ]
  const on =
    (honest: Provider, wanted: string, instead: Provider): Provider =>
    (method, params) =>
      method === wanted ? instead(method, params) : honest(method, params)
  test('robustness §6: a wallet that signs with another key, changes the chain, brings junk, refuses or never answers: named, and nothing is journaled as signed', async () => {
    await eachOf(bad, async ([what, change, wanted, exitCode, more = []]) => {
      const client = await newClient()
      const honest = honestProvider(client.key, rpcUrl, chainId)
      const { browser } = await browserWith(change(honest))
      const flags = argvOf`--outcome p2 --browser --proposer ${client.proposer} --json`
      const running = start(client, 'sign', questionOf(), ...flags, ...more)
      await connect(browser, await addressOf(running))
      const { code, stdout, stderr } = await running.ended
      expect([what, code, stdout], stderr).toEqual([what, exitCode, ''])
      expect([what, JSON.parse(stderr.trim().split('\n').at(-1) ?? '').error.code]).toEqual([
        what,
        wanted,
      ])
      expect(stderr).not.toContain('\u001b')
      const left = (await listed(client)).map(({ state }) => state)
      expect([what, left]).toEqual([what, exitCode === 75 ? ['offered'] : []])
    })
  })

  test('another account and a chain that the wallet does not change to: the page and the terminal name them, and nothing is asked to be signed', async () => {
    const client = await newClient()
    const honest = honestProvider(client.key, rpcUrl, chainId)
    const otherAccount = `0x${'ab'.repeat(20)}`
    let held = [otherAccount]
    const { browser, asked } = await browserWith(async (method, params) => {
      if (method.endsWith('ccounts')) return held
      if (method === 'wallet_switchEthereumChain') throw new ProviderError(4902, 'unrecognized')
      return honest(method, params)
    })
    const flags = argvOf`--outcome p2 --browser --proposer ${client.proposer}`
    const running = start(client, 'sign', questionOf(), ...flags)
    const page = await connect(browser, await addressOf(running))
    await page.locator('#said', { hasText: otherAccount }).waitFor()
    await running.said(new RegExp(`offers ${otherAccount}; this is for ${client.proposer}`))
    held = [client.proposer]
    await page.getByRole('button', { name: 'Try again' }).click()
    await running.said(new RegExp(`is on chain 1, not ${chainId}`))
    expect(methods(asked)).not.toContain('eth_signTypedData_v4')
    await page.getByRole('button', { name: 'Refuse' }).click()
    const { code, stderr } = await running.ended
    expect([code, stderr]).toEqual([2, expect.stringContaining('refused on the page')])
    expect(await listed(client)).toEqual([])
  })

  test('EIP-6963: each wallet of the browser has its button, and the one that is chosen is asked alone; one that announces nothing is found too', async () => {
    const client = await newClient()
    const honest = () => honestProvider(client.key, rpcUrl, chainId)
    const flags = argvOf`--outcome p2 --browser --proposer ${client.proposer}`
    const { browser, asked } = await browserWith(honest())
    const other = await injectWallet(browser, honest(), 'Other <b>Wallet</b>')
    const running = start(client, 'sign', questionOf(), ...flags)
    const page = await browser.newPage()
    await page.goto(await addressOf(running))
    await page.getByRole('button', { name: 'Use Test Wallet' }).waitFor()
    await page.getByRole('button', { name: 'Use Other <b>Wallet</b>' }).click()
    expect((await running.ended).code).toBe(0)
    expect([asked.length, methods(other).at(-2)]).toEqual([0, 'eth_signTypedData_v4'])

    const plain = await chromium.newContext()
    const old = await injectWallet(plain, honest(), null)
    const again = start(client, 'sign', questionOf(), ...flags)
    const second = await plain.newPage()
    await second.goto(await addressOf(again))
    await second.getByRole('button', { name: 'Use the browser wallet' }).click()
    expect((await again.ended).code).toBe(0)
    expect(methods(old)).toContain('eth_signTypedData_v4')
  })

  const approving = (client: Client, ...more: string[]) => {
    const flags = argvOf`--amount 900usdc --browser --proposer ${client.proposer} --yes`
    return start(client, 'funds', 'approve', ...flags, '--json', ...more)
  }
  const sending = (honest: Provider, change: (sent: Sent) => Sent | Promise<unknown>): Provider =>
    on(honest, 'eth_sendTransaction', async (method, [sent]) => {
      const changed = change(sent as Sent)
      return changed instanceof Promise ? changed : honest(method, [changed])
    })
  interface Sent {
    readonly to: string
    readonly data: string
  }
  const badSenders: readonly (readonly [
    what: string,
    change: (honest: Provider) => Provider,
    code: string,
    exitCode: number,
    more?: readonly string[],
  ])[] = [
    [
      'another amount',
      (honest) => sending(honest, ({ to, data }) => ({ to, data: `${data.slice(0, -1)}7` })),
      'transaction_changed',
      2,
    ],
    [
      'another contract',
      (honest) => sending(honest, ({ data }) => ({ to: `0x${'77'.repeat(20)}`, data })),
      'transaction_changed',
      2,
    ],
    [
      'another account',
      (honest) => on(honest, 'eth_sendTransaction', honestProvider(rivalKey, rpcUrl, chainId)),
      'transaction_changed',
      2,
    ],
    ['junk', (honest) => sending(honest, async () => ({ evil: 1 })), 'signer_answer', 2],
    ['half a hash', (honest) => sending(honest, async () => '0x1234'), 'signer_answer', 2],
    [
      'no',
      (honest) =>
        sending(honest, async () => {
          throw new ProviderError(4001, 'User rejected the request.')
        }),
      'signer_refused',
      2,
    ],
    ['nothing, ever', (honest) => sending(honest, never), ...late],
    [
      'the hash of nothing',
      (honest) => sending(honest, async () => `0x${'5'.repeat(64)}`),
      'transaction_pending',
      8,
      ['--timeout', '20'],
    ],
  ]

  test('robustness §6: a wallet that sends something else, from elsewhere, or only says so: named, and never told as done', async () => {
    await eachOf(badSenders, async ([what, change, wanted, exitCode, more = []]) => {
      const client = await newClient()
      const { browser } = await browserWith(change(honestProvider(client.key, rpcUrl, chainId)))
      const running = approving(client, ...more)
      await connect(browser, await addressOf(running))
      const { code, stdout, stderr } = await running.ended
      expect([what, code, stdout], stderr).toEqual([what, exitCode, ''])
      const { error } = JSON.parse(stderr.trim().split('\n').at(-1) ?? '')
      expect([what, error.code]).toEqual([what, wanted])
    })
  })

  test('funds approve and revoke: another account and chain are named first, then the wallet sends by itself', async () => {
    const client = await newClient()
    const honest = honestProvider(client.key, rpcUrl, chainId)
    let shown = `0x${'ab'.repeat(20)}`
    let knows = false
    const { browser, asked } = await browserWith(async (method, params) => {
      if (method.endsWith('ccounts')) return [shown]
      if (method === 'wallet_switchEthereumChain' && !knows)
        throw new ProviderError(4902, 'unrecognized')
      return honest(method, params)
    })
    const running = approving(client)
    const page = await connect(browser, await addressOf(running))
    const said = (hasText: string) => page.locator('#said', { hasText }).waitFor()
    await said(`offers ${shown}; this is for ${client.proposer}`)
    shown = client.proposer
    const again = page.getByRole('button', { name: 'Try again' })
    await again.click()
    await said(`is on chain 1, not ${chainId}`)
    expect(methods(asked)).not.toContain('eth_sendTransaction')
    knows = true
    await again.click()
    const approved = await running.ended
    expect(approved.code, approved.stderr).toBe(0)
    expect(JSON.parse(approved.stdout)).toMatchObject({
      owner: client.proposer,
      allowance: '900000000',
    })

    const wallet = argvOf`--browser --proposer ${client.proposer} --yes --json`
    const signing = start(client, 'sign', questionOf(), '--outcome', 'p2', ...wallet)
    await connect(browser, await addressOf(signing))
    const signed = JSON.parse((await signing.ended).stdout) as { journal_id: string }
    const revoking = start(client, 'revoke', signed.journal_id, ...wallet)
    await connect(browser, await addressOf(revoking))
    const revoked = await revoking.ended
    expect(revoked.code, revoked.stderr).toBe(0)
    expect(JSON.parse(revoked.stdout)).toMatchObject({
      results: [{ journal_id: signed.journal_id, outcome: 'revoked' }],
      final: true,
    })
  })

  test('payouts claim: the tab is closed while the wallet asks and opened again; the payout goes where it should, and only once', async () => {
    const dev = await startDevChain({ questions: 1 })
    onTestFinished(() => dev.stop())
    const owed = await deferPayout(dev)
    const [rival, outsider] = [devAccount('rival'), devAccount('outsider')]
    const home = join(await shop.folder(), 'home')
    await mkdir(home, { mode: 0o700 })
    await writeFile(join(home, 'trust.json'), JSON.stringify(dev.description.trust))
    const env = {
      PROPOSER_HOME: home,
      PROPOSER_TRUST: join(home, 'trust.json'),
      PROPOSER_RPC_URL: dev.rpcUrl,
    }
    const holds = () =>
      devRpc(dev.rpcUrl).read<bigint>(contractOf('token'), 'balanceOf', [outsider.address])
    const before = await holds()
    const honest = honestProvider(rival.private_key, dev.rpcUrl, dev.description.chain_id)
    let closeTab: (() => Promise<void>) | undefined
    const { browser, asked } = await browserWith(async (method, params) => {
      if (method === 'eth_sendTransaction' && closeTab !== undefined) {
        await closeTab()
        return never()
      }
      return honest(method, params)
    })
    const argv = argvOf`payouts claim --to ${outsider.address} --browser --yes --json`
    const running = shop.start([...argv, '--proposer', rival.address], { env })
    const url = await addressOf(running)
    const first = await browser.newPage()
    const closed = new Promise<void>((resolve) => first.on('close', () => resolve()))
    closeTab = () => first.close()
    await first.goto(url)
    await first.getByRole('button', { name: 'Use Test Wallet' }).click()
    await closed
    closeTab = undefined
    const second = await connect(browser, url)
    await second
      .locator('#summary', { hasText: 'claim the deferred payout of 755 USDC.e' })
      .waitFor()
    const { code, stdout, stderr } = await running.ended
    expect(code, stderr).toBe(0)
    const { claims } = JSON.parse(stdout)
    expect(claims).toMatchObject([{ wallet: rival.address, amount: String(owed) }])
    expect(claims).toMatchObject([{ to: outsider.address }])
    expect(await holds()).toBe(before + owed)
    const sent = asked.filter(({ method }) => method === 'eth_sendTransaction')
    expect(sent).toEqual([sent[0], sent[0]])
  })
})
