import { request } from 'node:http'
import {
  type BrowserWallet,
  type BrowserWalletOptions,
  openBrowserWallet,
  systemOpener,
} from '#io/browser/browser-wallet'
import { InterruptedError, ProposerError } from '#protocol/errors'
import { deferred } from '#support/deferred'

const address = `0x${'ab'.repeat(20)}` as const
const other = `0x${'cd'.repeat(20)}` as const
const document = { domain: { chainId: 137 }, message: {} }
const open_: BrowserWallet[] = []
afterEach(async () => {
  for (const wallet of open_.splice(0)) await wallet.close()
})

async function asking(more: Partial<BrowserWalletOptions> = {}) {
  const { promise: page, resolve: opened } = deferred<string>()
  const problems: string[] = []
  const wallet = openBrowserWallet({
    timeoutMs: 60_000,
    signal: new AbortController().signal,
    onPage: async (url) => opened(url),
    onProblem: (text) => problems.push(text),
    ...more,
  })
  open_.push(wallet)
  const signing = wallet.signer(address).signTypedData?.(document, [['answer', 'Yes (p2)']])
  const ended = Promise.resolve(signing).then(
    (signature) => ({ signature, error: undefined }),
    (error: unknown) => ({ signature: undefined, error: error as ProposerError }),
  )
  return { url: await page, ended, problems, wallet }
}

interface Said {
  readonly status: number
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  readonly body: string
}
function call(
  url: string,
  options: { method?: string; headers?: Record<string, string>; body?: unknown } = {},
): Promise<Said> {
  const { method = 'GET', headers = {}, body } = options
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers, agent: false }, (response) => {
      const parts: Buffer[] = []
      response.on('data', (part: Buffer) => parts.push(part))
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(parts).toString('utf8'),
        }),
      )
    })
    sent.on('error', reject)
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })
}

async function opened(url: string) {
  const first = await call(url)
  const cookie = String(first.headers['set-cookie']).split(';')[0] ?? ''
  const headers = { origin: new URL(url).origin, cookie, 'content-type': 'application/json' }
  const post = (name: string, body: unknown, more: Record<string, string> = {}) =>
    call(`${url}${name}`, { method: 'POST', headers: { ...headers, ...more }, body })
  const task = async () => JSON.parse((await post('next', { seen: 0 })).body) as { id: number }
  return { first, headers, post, task }
}

test('contract §9: it may load nothing from elsewhere, run nothing inline, and be framed by nobody', async () => {
  const { url } = await asking()
  const { first } = await opened(url)
  expect(first.headers['content-security-policy']).toBe(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  )
  expect(first.headers['set-cookie']).toEqual([
    expect.stringMatching(
      /^proposer-wallet=[\w-]{43}; Path=\/[\w-]{43}\/; HttpOnly; SameSite=Strict$/,
    ),
  ])
  expect(first.headers['cache-control']).toBe('no-store')
  expect(first.headers['referrer-policy']).toBe('no-referrer')
})

test('contract §9: another path, name, site or browser gets nothing, and nothing of it reaches the command', async () => {
  const { url, ended } = await asking()
  const { host, origin } = new URL(url)
  const before = { method: 'POST', headers: { origin, 'content-type': 'application/json' } }
  expect((await call(`${url}answer`, { ...before, body: {} })).status).toBe(403)
  expect((await call(url, { headers: { 'sec-fetch-site': 'cross-site' } })).status).toBe(403)
  expect((await call(url, { headers: { host: 'evil.example' } })).status).toBe(400)
  expect(
    (await call(url, { headers: { host: host.replace('127.0.0.1', 'localhost') } })).status,
  ).toBe(400)
  expect((await call(`${origin}/`)).status).toBe(404)
  expect((await call(`${url.slice(0, -2)}x/`)).status).toBe(404)
  const { post, headers, task } = await opened(url)
  const { id } = await task()
  const answer = { id, account: address, chain_id: 137, result: '0x12' }
  const { origin: _origin, ...without } = headers
  expect(
    (await call(`${url}answer`, { method: 'POST', headers: without, body: answer })).status,
  ).toBe(403)
  expect((await post('answer', answer, { origin: 'http://evil.example' })).status).toBe(403)
  expect((await post('answer', answer, { origin: 'null' })).status).toBe(403)
  expect(
    (await post('answer', answer, { cookie: `proposer-wallet=${'x'.repeat(43)}` })).status,
  ).toBe(403)
  expect((await post('answer', answer, { 'content-type': 'text/plain' })).status).toBe(400)
  expect(await call(url)).toMatchObject({
    status: 403,
    body: expect.stringContaining('open in another browser'),
  })
  expect((await call(`${url}answer`, { headers })).status).toBe(404)
  expect((await call(`${url}page.js`, { headers })).status).toBe(200)
  expect((await post('answer', answer)).status).toBe(200)
  expect(await ended).toMatchObject({ signature: '0x12' })
})

test.each<[what: string, answer: object, code: string]>([
  ['of another account', { account: other, chain_id: 137, result: '0x12' }, 'wrong_account'],
  ['on another chain', { account: address, chain_id: 1, result: '0x12' }, 'wrong_chain'],
  ['without a signature', { account: address, chain_id: 137, result: null }, 'signer_answer'],
  ['of no bytes', { account: address, chain_id: 137, result: '0x' }, 'signer_answer'],
  ['that says no', { refused: 'no \u001b[2J thanks' }, 'signer_refused'],
])('contract §9: an answer %s is refused by name', async (_what, answer, code) => {
  const { url, ended } = await asking()
  const { post, task } = await opened(url)
  const { id } = await task()
  expect((await post('answer', { id, ...answer })).status).toBe(200)
  const { error } = await ended
  expect(error).toMatchObject({ code, meta: { exitCode: 2 } })
  expect(error?.detail).not.toContain('\u001b')
})

test('contract §9: calls that the page does not make, and answers to an earlier question, change nothing', async () => {
  const { url, ended, problems } = await asking()
  const { headers, post, task } = await opened(url)
  const { id } = await task()
  const fine = { id, account: address, chain_id: 137, result: '0x12' }
  for (const body of [
    {},
    [],
    { ...fine, more: 1 },
    { ...fine, account: 'me' },
    { ...fine, id: 'x' },
  ])
    expect((await post('answer', body)).status).toBe(422)
  expect((await post('answer', { ...fine, result: 'x'.repeat(70_000) })).status).toBe(413)
  // D7: refused by its head alone, whatever is announced.
  const early = await new Promise((resolve, reject) => {
    const head = { ...headers, 'content-length': String(100_000_000) }
    const sent = request(
      `${url}answer`,
      { method: 'POST', headers: head, agent: false },
      (said) => {
        resolve(said.statusCode)
        sent.destroy()
      },
    )
    sent.on('error', reject).flushHeaders()
  })
  expect(early).toBe(413)
  expect((await post('answer', { ...fine, id: id + 1 })).status).toBe(409)
  expect((await post('problem', { id, problem: 'wrong account' })).status).toBe(200)
  expect(problems).toEqual(['wrong account'])
  await post('answer', fine)
  expect((await ended).signature).toBe('0x12')
  expect((await post('answer', fine)).status).toBe(409)
})

test('contract §9: nobody came: nothing was seen, exit 75; somebody did and the wallet is silent: it may still sign', async () => {
  const nobody = await asking({ timeoutMs: 50 })
  expect((await nobody.ended).error).toMatchObject({
    code: 'signer_unreachable',
    meta: { exitCode: 75 },
  })
  const stop = new AbortController()
  const silent = await asking({ signal: stop.signal })
  await opened(silent.url)
  const reason = new InterruptedError('interrupted', 'stopped by SIGINT')
  stop.abort(reason)
  expect((await silent.ended).error).toBe(reason)
  const late = await asking({ timeoutMs: 2_000 })
  await opened(late.url)
  expect((await late.ended).error).toMatchObject({
    code: 'signer_timed_out',
    meta: { exitCode: 75 },
  })
})

test('contract §9: the page is told of the end, and its listener is gone', async () => {
  const { url, wallet, ended } = await asking()
  const { post, task } = await opened(url)
  const { id } = await task()
  await post('answer', { id, account: address, chain_id: 137, result: '0x12' })
  await ended
  const seen = JSON.parse((await post('next', { seen: 0 })).body) as { id: number; kind: string }
  expect(seen.kind).toBe('wait')
  const waiting = post('next', { seen: seen.id })
  await post('problem', { id: seen.id, problem: 'none' })
  await wallet.close()
  expect(JSON.parse((await waiting).body)).toEqual({ kind: 'end' })
  await expect(call(url)).rejects.toThrow('ECONNREFUSED')
})

test('contract §9: a bare digest is not signed in a browser', async () => {
  const { wallet } = await asking()
  const refusal = await wallet
    .signer(address)
    .signDigest(`0x${'1'.repeat(64)}`)
    .catch((error: unknown) => error)
  expect(refusal).toBeInstanceOf(ProposerError)
  expect(refusal).toMatchObject({ code: 'signer_needs_typed_data' })
})

test("contract §9: the system's browser is opened only where there is a screen", () => {
  expect(systemOpener({}, 'linux')).toBeUndefined()
  expect(systemOpener({ DISPLAY: '' }, 'linux')).toBeUndefined()
  expect(systemOpener({ DISPLAY: ':0' }, 'linux')).toBe('xdg-open')
  expect(systemOpener({ WAYLAND_DISPLAY: 'wayland-0' }, 'linux')).toBe('xdg-open')
  expect(systemOpener({}, 'darwin')).toBe('open')
  expect(systemOpener({}, 'win32')).toBeUndefined()
})
