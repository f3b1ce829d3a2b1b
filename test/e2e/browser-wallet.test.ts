/** contract §9, `--browser`: a real Chromium with an injected EIP-1193 wallet, the built command, anvil. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openBrowser } from '../support/browser.js'
import {
  honestProvider,
  injectWallet,
  type Provider,
  ProviderError,
} from '../support/browser-wallet.js'
import { describeWith } from '../support/components.js'
import { type Running, workshop } from '../support/processes.js'
import type { ServeReady } from '../support/proposing.js'

const shop = workshop()
const browsers: BrowserContext[] = []
let ready: ServeReady
let rpcUrl: string
let chainId: number
/** Each test has a home and questions of its own. */
let nextAccount = 0
let nextQuestion = 0

beforeAll(async () => {
  ready = await shop
    .start(['serve', '--dev', '--port', '0', '--questions', '24', '--json'])
    .line<ServeReady>()
  rpcUrl = String(Reflect.get(ready.dev, 'rpc_url'))
  chainId = Number(Reflect.get(ready.dev, 'chain_id'))
})
afterAll(async () => {
  for (const browser of browsers) await browser.close()
  await shop.clean()
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
  const browser = await openBrowser(join(await shop.folder(), 'chromium'))
  browsers.push(browser)
  return { browser, asked: await injectWallet(browser, provider) }
}

const pageUrl = /http:\/\/127\.0\.0\.1:\d+\/[\w-]{43}\//
async function addressOf(running: Running): Promise<string> {
  await running.said(pageUrl)
  return pageUrl.exec(running.stderr())?.[0] ?? ''
}
/** Opens the page and chooses the wallet. */
async function connect(browser: BrowserContext, url: string): Promise<Page> {
  const page = await browser.newPage()
  await page.goto(url)
  await page.getByRole('button', { name: 'Use Test Wallet' }).click()
  return page
}
const start = (client: Client, ...args: string[]) => shop.start(args, { env: client.env })
const listed = async ({ env }: Client) =>
  JSON.parse((await shop.run(['journal', 'list', '--json'], { env })).stdout)
    .authorizations as Record<string, unknown>[]
const methods = (asked: readonly { readonly method: string }[]) => asked.map(({ method }) => method)

describeWith(['Chromium'], '--browser', () => {
  test('submit: the page shows what is signed beside the document, the wallet changes to the chain and signs, and it is executed', async () => {
    const client = await newClient()
    const { browser, asked } = await browserWith(honestProvider(client.key, rpcUrl, chainId))
    const slug = questionOf()
    const flags = ['--outcome', 'p2', '--browser', '--wait', '--json']
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
    let agree = () => {}
    const agreed = new Promise<void>((resolve) => {
      agree = resolve
    })
    const { browser, asked } = await browserWith(async (method, params) => {
      if (method === 'eth_signTypedData_v4') await agreed
      return provider(method, params)
    })
    const slug = questionOf()
    const flags = [
      '--outcome',
      'p1',
      '--deadline',
      '2h',
      '--browser',
      '--proposer',
      client.proposer,
    ]
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
    const argv = ['batch', 'sign', file, '--browser', '--proposer', client.proposer, '--json']
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
    // The second was asked for twice and is one document; a row that was refused has a fresh nonce.
    expect(nonces[1]).toBe(nonces[2])
    expect(new Set(nonces).size).toBe(4)
  })

  const never = () => new Promise(() => {})
  const stranger = `0x${'5'.repeat(64)}` as const
  const bad: readonly [
    what: string,
    change: (honest: Provider) => Provider,
    code: string,
    exitCode: number,
    more?: readonly string[],
  ][] = [
    ['signs with another key', () => signing(stranger), 'bad_signature', 2],
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
    [
      'never answers',
      (honest) => on(honest, 'eth_signTypedData_v4', never),
      'signer_timed_out',
      75,
      ['--timeout', '4'],
    ],
  ]
  const on =
    (honest: Provider, wanted: string, instead: Provider): Provider =>
    (method, params) =>
      method === wanted ? instead(method, params) : honest(method, params)
  const signing = (key: typeof stranger): Provider => {
    const other = honestProvider(key, rpcUrl, chainId)
    return (method, params) => other(method, params)
  }

  test('robustness §6: a wallet that signs with another key, brings junk, refuses or never answers: named, and nothing is journaled as signed', async () => {
    for (const [what, change, wanted, exitCode, more = []] of bad) {
      const client = await newClient()
      const honest = honestProvider(client.key, rpcUrl, chainId)
      const hostile = change(honest)
      const { browser } = await browserWith((method, params) =>
        method.endsWith('ccounts') ? honest(method, params) : hostile(method, params),
      )
      const flags = ['--outcome', 'p2', '--browser', '--proposer', client.proposer, '--json']
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
    }
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
    const flags = ['--outcome', 'p2', '--browser', '--proposer', client.proposer]
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

  test('funds approve and revoke: the wallet sends by itself, and a transaction that it changed is told', async () => {
    const client = await newClient()
    const honest = honestProvider(client.key, rpcUrl, chainId)
    let change = (data: string) => data
    const { browser } = await browserWith((method, params) => {
      if (method !== 'eth_sendTransaction') return honest(method, params)
      const [asked] = params as [{ data: string }]
      return honest(method, [{ ...asked, data: change(asked.data) }])
    })
    const wallet = ['--browser', '--proposer', client.proposer, '--yes', '--json']
    const approve = async () => {
      const running = start(client, 'funds', 'approve', '--amount', '900usdc', ...wallet)
      const page = await connect(browser, await addressOf(running))
      const { code, stdout, stderr } = await running.ended
      await page.close()
      return { code, stdout, stderr }
    }
    change = (data) => `${data.slice(0, -1)}7`
    const changed = await approve()
    expect(changed.code).toBe(2)
    expect(changed.stderr).toContain('transaction_changed')
    change = (data) => data
    const approved = await approve()
    expect(approved.code, approved.stderr).toBe(0)
    expect(JSON.parse(approved.stdout)).toMatchObject({
      owner: client.proposer,
      allowance: '900000000',
    })

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
})
