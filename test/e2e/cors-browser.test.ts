/**
 * What a web page may do with a gateway, seen from inside a browser (spec §1, contract §7), and
 * with its admin listener (contract §6).
 */
import type { Browser, Page } from 'playwright-core'
import { argvOf } from '#support/argv'
import { openBrowser } from '#support/browser'
import { describeWith } from '#support/components'
import { serveHttp } from '#support/http-server'
import { workshop } from '#support/processes'
import { questionOf, type ServeReady } from '#support/proposing'

const shop = workshop()
const pages: Awaited<ReturnType<typeof serveHttp>>[] = []
let browser: Browser | undefined
afterAll(async () => {
  await browser?.close()
  for (const server of pages) await server.close()
})

async function serveEmptyPage(): Promise<string> {
  const server = await serveHttp((_request, _body, response) =>
    response
      .writeHead(200, { 'content-type': 'text/html' })
      .end('<!doctype html><title>a page</title>'),
  )
  pages.push(server)
  return server.url
}

const serve = (...args: string[]) =>
  shop.start(argvOf`serve --dev --port 0 --questions 1 --json ${args}`).line<ServeReady>()

let configured: string
let stranger: string
let closed: ServeReady
let open: ServeReady
beforeAll(async () => {
  configured = await serveEmptyPage()
  stranger = await serveEmptyPage()
  ;[closed, open] = await Promise.all([serve(), serve('--set', `cors.origins=["${configured}"]`)])
})

async function counted(
  { admin_url }: ServeReady,
  route: string,
  method: string,
  status: number,
): Promise<number> {
  const text = await (await fetch(`${admin_url}/metrics`)).text()
  const line = text
    .split('\n')
    .find((one) =>
      one.startsWith(
        `proposer_http_requests_total{route="${route}",method="${method}",status="${status}"}`,
      ),
    )
  return Number(line?.split(' ').at(-1) ?? 0)
}

const batchRoute = '/propose/batch/signing-data'
const eligibilityOf = ({ url, dev }: ServeReady) =>
  `${url}/v1/proposals/eligibility/${dev.accounts[0]?.address}`
const post = (body: object, more: object = {}) => ({
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
  ...more,
})

describeWith(['Chromium'], 'a page of another origin', () => {
  let page: Page
  let strange: Page

  beforeAll(async () => {
    browser = await openBrowser(
      '--disable-quic',
      '--disable-sync',
      // A name of somebody else's that his DNS now says is this machine.
      '--host-resolver-rules=MAP rebound.example 127.0.0.1',
    )
    page = await browser.newPage()
    await page.goto(configured)
    strange = await browser.newPage()
    await strange.goto(stranger)
  })

  const ask = (from: Page, url: string, init: object = {}) =>
    from.evaluate(
      async ([target, options]) => {
        for (;;) {
          try {
            const answer = await fetch(target, options)
            if (answer.status === 503) continue
            const { status, type, headers } = answer
            const text = await answer.text()
            return {
              status,
              type,
              left: headers.get('ratelimit-remaining'),
              body: text === '' ? undefined : JSON.parse(text),
            }
          } catch (error) {
            return { refused: error instanceof TypeError }
          }
        }
      },
      [url, init] as const,
    )
  const refused = { refused: true }

  test('§1: by default it reads nothing, and its JSON never arrives', async () => {
    expect(await ask(page, eligibilityOf(closed))).toEqual(refused)
    expect(await ask(page, `${closed.url}/openapi.json`)).toEqual(refused)
    expect(await ask(page, closed.url + batchRoute, post({ identifiers: ['a-slug'] }))).toEqual(
      refused,
    )
    expect(await counted(closed, batchRoute, 'OPTIONS', 405)).toBe(1)
    expect(await counted(closed, batchRoute, 'POST', 200)).toBe(0)
  })

  test('robustness §4: what needs no preflight arrives and admits nothing', async () => {
    const text = { method: 'POST', mode: 'no-cors', body: JSON.stringify({ proposals: [] }) }
    expect(await ask(page, `${closed.url}/propose/batch`, text)).toEqual({
      status: 0,
      type: 'opaque',
      left: null,
      body: undefined,
    })
    expect(await counted(closed, '/propose/batch', 'POST', 400)).toBeGreaterThan(0)
    expect(await counted(closed, '/propose/batch', 'POST', 200)).toBe(0)
  })

  test('contract §7: a configured origin reads answers, budget headers and refusals, after a preflight that is free', async () => {
    const { slug, question_id } = questionOf(open.dev, 0)
    const before = await ask(page, eligibilityOf(open))
    expect(before).toMatchObject({ status: 200, type: 'cors', body: { version: { api: 'v1' } } })
    const batch = await ask(page, open.url + batchRoute, post({ identifiers: [slug] }))
    expect(batch).toMatchObject({
      status: 200,
      body: { results: [{ status_code: 200, signing_data: { question_id } }] },
    })
    expect(await counted(open, batchRoute, 'OPTIONS', 204)).toBe(1)
    if (!('left' in before && 'left' in batch)) throw new Error('no response')
    expect(Number(before.left) - Number(batch.left)).toBeGreaterThan(0)
    const broken = await ask(page, `${open.url}/v1/proposals/${slug}`, post({}))
    expect(broken).toMatchObject({ status: 422, body: { error: { code: 'schema_violation' } } })
    expect(await ask(page, `${open.url}/nowhere`)).toMatchObject({
      status: 404,
      body: { error: { code: 'route_not_found' } },
    })
  })

  test('contract §7: every other origin is refused there as everywhere', async () => {
    expect(await ask(strange, eligibilityOf(open))).toEqual(refused)
    expect(await ask(strange, open.url + batchRoute, post({ identifiers: ['a-slug'] }))).toEqual(
      refused,
    )
    expect(await counted(open, batchRoute, 'OPTIONS', 405)).toBe(1)
  })

  test('contract §7: with credentials nobody reads anything, the configured origin neither', async () => {
    const credentials = 'include'
    expect(await ask(page, eligibilityOf(open), { credentials })).toEqual(refused)
    expect(
      await ask(page, open.url + batchRoute, post({ identifiers: ['a-slug'] }, { credentials })),
    ).toEqual(refused)
    expect(await ask(page, eligibilityOf(open), { credentials: 'omit' })).toMatchObject({
      status: 200,
    })
  })

  test('contract §6: the admin listener knows no origins, and a name that was bound again to this machine is refused', async () => {
    const { port } = new URL(open.admin_url)
    expect(await ask(page, `${open.admin_url}/metrics`)).toEqual(refused)
    expect(await ask(page, `${open.admin_url}/healthz`, post({}))).toEqual(refused)
    const rebound = await page.goto(`http://rebound.example:${port}/metrics`)
    expect(rebound?.status()).toBe(400)
    expect(await ask(page, `http://rebound.example:${port}/readyz`)).toMatchObject({
      status: 400,
      type: 'basic',
      body: { error: { code: 'bad_request' } },
    })
    await page.goto(configured)
  })
})
