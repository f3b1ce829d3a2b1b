/**
 * The operator's page in a browser: its figures, its way through a restart, and that what comes
 * from outside stays text (contract §6, R5, R20).
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { argvOf } from '#support/argv'
import { openBrowser } from '#support/browser'
import { describeWith } from '#support/components'
import { type Running, workshop } from '#support/processes'
import { type Client, makeClient, post, questionOf, type ServeReady } from '#support/proposing'

const shop = workshop()
let browser: Browser | undefined
afterAll(async () => {
  await browser?.close()
})

const markup = '<img src=x onerror="document.title=1"><script>document.title=2</script>'

describeWith(['Chromium'], "the operator's page", () => {
  let folder: string
  let server: Running
  let ready: Omit<ServeReady, 'dev'>
  let dev: ServeReady['dev']
  let client: Client
  let page: Page
  const errors: string[] = []

  const serve = async (...args: string[]) => {
    server = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --json ${args}`)
    ready = await server.line()
  }
  const submit = async (slug: string, outcome: string): Promise<string> => {
    let signed = await client.ask('sign', slug, '--outcome', outcome)
    while (signed.code === 75) signed = await client.ask('sign', slug, '--outcome', outcome)
    expect(signed.code).toBe(0)
    for (;;) {
      const { status, body } = await post(ready.url, `/v1/proposals/${slug}`, signed.answer.payload)
      if (status === 202) return String(body.candidate_id)
      expect(status).toBe(503)
    }
  }
  /** By id, or by the label of a field. */
  const at = (name: string) =>
    page.locator(`#${name.replaceAll(' ', '_')}, dt:text-is("${name}") + dd`).first()
  const text = (name: string) => at(name).textContent()
  const says = (name: string, pattern: RegExp) =>
    at(name).filter({ hasText: pattern }).waitFor({ state: 'attached' })
  const row = (n: number) => page.locator('#candidates > li').nth(n)

  beforeAll(async () => {
    ;({ dev, folder } = await shop.devChain(3))
    await serve('--port', '0')
    client = await makeClient(shop, dev, { PROPOSER_GATEWAY: ready.url })
    browser = await openBrowser()
    page = await browser.newPage()
    page.on('pageerror', ({ message }) => errors.push(message))
    page.on('console', (line) => {
      if (line.type() === 'error' && !line.text().includes('net::ERR_')) errors.push(line.text())
    })
    await page.goto(`${ready.admin_url}/`)
  })

  const cutOff = () =>
    page
      .locator('.cards dd')
      .evaluateAll((all) =>
        all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent),
      )

  test('contract §6: figures come by themselves, change with an admission, and the candidate goes its way to executed', async () => {
    await says('ready', /^ready$/)
    await says('link', /^live since \d/)
    expect(await page.locator('#candidates > li').count()).toBe(0)
    await says('none', /^none yet; /)
    expect(await text('spent items')).toBe('0')
    expect(await text('highest nonce')).toBe('\u2013')
    await says('balance', /^[\d,.]+ POL$/)
    expect(await text('all')).toBe('0')
    expect(await page.locator('#failures-section').isVisible()).toBe(false)
    expect(await page.getByText('Gateways of this store').isVisible()).toBe(false)
    await says('head age', /^\d+ s$/)
    expect(await text('healthy')).toBe('true')

    const { slug } = questionOf(dev, 0)
    await submit(slug, 'p1')
    await row(0).waitFor()
    await says('spent items', /^[1-9]\d*$/)
    await says('window ends at', /\d\d:\d\d:\d\dZ$/)
    await says('admitted', /^1$/)
    await says('candidates', /executed indexed/)
    await says('highest nonce', /^0$/)
    await says('open slots', /^0$/)
    expect(await row(0).locator('.question').textContent()).toBe(slug)
    expect(await row(0).locator('.answer').textContent()).toBe('No (p1)')
    expect(await row(0).locator('.id').textContent()).toMatch(/^[0-9a-f]{8}\u2026$/)
    expect((await fetch(`${ready.url}/v1/proposals/eligibility/${client.proposer}`)).status).toBe(
      200,
    )
    await says('window ends at', /Z$/)
    for (const width of [1280, 1024, 390, 360]) {
      await page.setViewportSize({ width, height: 800 })
      expect([width, await cutOff()]).toEqual([width, []])
    }
  })

  test('contract §6: a candidate opens by the keyboard and tells its way; no signature is part of it (R5)', async () => {
    await row(0).locator('summary').focus()
    await page.keyboard.press('Enter')
    const steps = row(0).locator('.way li')
    await steps.nth(5).waitFor()
    const what = await steps.locator('span:nth-child(2)').allTextContents()
    expect(what).toEqual([
      'received',
      'validated',
      'selected for execution',
      'submitted',
      'confirmed',
      expect.stringMatching(/^on the chain: ProposePrice is log \d+ of its block$/),
    ])
    const content = await page.content()
    expect(content).toContain(client.proposer)
    const facts = await row(0).locator('.way dl').textContent()
    expect(facts).toMatch(/Authorizes[\d,.]+ USDC\.e/)
    expect(facts).toMatch(/Deadline\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, in /)
    expect(await page.locator('a[href]').count()).toBe(0)
    expect(content).not.toMatch(/0x[0-9a-f]{130}/)
    expect(content).not.toContain(
      (await readFile(join(folder, 'gateway-store', 'admin.token'), 'utf8')).trim(),
    )
    await page.keyboard.press('Enter')
    expect(await row(0).locator('details').getAttribute('open')).toBeNull()
  })

  test('contract §6: the gateway stops and starts again: the page says so, follows the new one and still has the candidates', async () => {
    const [url, adminUrl] = [new URL(ready.url), new URL(ready.admin_url)]
    const started = await text('started at')
    expect((await server.stop()).code).toBe(0)
    await says('link', /the figures are out of date/)
    expect(await text('ready')).toBe('unknown')
    const off = ['--set', 'pipeline.enabled=false']
    await serve('--port', url.port, '--set', `admin.port=${adminUrl.port}`, ...off)
    await says('link', /^live since /)
    expect(await text('started at')).not.toBe(started)
    expect(await row(0).locator('.badge').textContent()).toBe('executed')
    expect(await text('execution')).toBe('switched off')
  })

  test('R20: markup in a reason stays text, and the policy lets no script or style run that is not a file of the page', async () => {
    const id = await submit(questionOf(dev, 1).slug, 'p2')
    await says('received', /^1, for /)
    const config = join(folder, 'gateway.json')
    const rejected = await shop.run(argvOf`operator candidates reject ${id} --reason ${markup}
      --config ${config} --yes --json`)
    expect([rejected.code, rejected.stderr]).toEqual([0, ''])
    await says('candidates', /operator_rejected/)
    await says('all', /^1$/)
    expect(await text('operator_rejected')).toBe('1')
    const failure = page.locator('#failures > li')
    await failure.waitFor({ state: 'visible' })
    expect(await failure.locator('.received').getAttribute('title')).toMatch(/^\d{4}-.*Z$/)
    await row(0).locator('summary').click()
    await row(0).locator('.way li').nth(1).waitFor()
    expect(await row(0).locator('.way').textContent()).toContain(markup)
    expect(await page.locator('img').count()).toBe(0)
    expect(await page.title()).toMatch(/proposer gateway$/)
    expect(errors).toEqual([])

    const violations = await page.evaluate(`(async () => {
        const found = new Set()
        document.addEventListener('securitypolicyviolation', ({ effectiveDirective }) => found.add(effectiveDirective))
        const script = document.createElement('script')
        script.textContent = 'document.title = "3"'
        const place = document.createElement('div')
        place.setAttribute('style', 'color: red')
        place.innerHTML = ${JSON.stringify(markup)}
        document.body.append(script, place)
        await fetch('https://elsewhere.invalid/').catch(() => undefined)
        // Each is reported in a turn of its own.
        while (found.size < 5) await new Promise((resolve) => setTimeout(resolve, 10))
        place.remove()
        return [...found].sort()
      })()`)
    expect(violations).toEqual([
      'connect-src',
      'img-src',
      'script-src-attr',
      'script-src-elem',
      'style-src-attr',
    ])
    expect(await page.title()).toMatch(/proposer gateway$/)
  })

  test('ux: search and status hide what does not match', async () => {
    const shown = () => page.locator('#candidates > li:visible').count()
    const [executed, rejected] = [questionOf(dev, 0).slug, questionOf(dev, 1).slug]
    expect(await shown()).toBe(2)
    await page.fill('#search', executed.toUpperCase())
    expect([await shown(), await page.locator('#failures-section').isVisible()]).toEqual([1, false])
    await page.fill('#search', 'rejected')
    expect([await shown(), await page.locator('#failures-section').isVisible()]).toEqual([1, true])
    expect(await page.locator('#candidates > li:visible .question').textContent()).toBe(rejected)
    await page.fill('#search', 'nothing of the kind')
    expect([await shown(), await page.locator('#none').isVisible()]).toEqual([0, true])
    await page.fill('#search', '')
    await page.selectOption('#state', 'executed')
    expect(await shown()).toBe(1)
    await page.selectOption('#state', '')
    expect(await shown()).toBe(2)
  })

  test('ux: who paused admission and why stands in the header; a gateway that is not ready is red', async () => {
    const config = join(folder, 'gateway.json')
    errors.length = 0
    const pause = argvOf`--reason ${markup} --by ann --config ${config} --yes`
    expect((await shop.run(['operator', 'pause', ...pause])).code).toBe(0)
    await says('paused', /^Admission is paused since .*: by ann: <img/)
    expect(await page.locator('#paused').isVisible()).toBe(true)
    const resume = argvOf`--reason back --config ${config} --yes`
    expect((await shop.run(['operator', 'resume', ...resume])).code).toBe(0)
    await page.locator('#paused').waitFor({ state: 'hidden' })
    const red = await page.evaluate(`(() => {
        const badge = document.getElementById('ready')
        const before = badge.className
        badge.className = 'badge bad'
        const colour = getComputedStyle(badge).color
        badge.className = before
        return colour.match(/[0-9]+/g).map(Number)
      })()`)
    const [r = 0, g = 255, b = 255] = red as readonly number[]
    expect(r > 2 * g && r > 2 * b).toBe(true)
    await says('Queue', /^\u2581.*from 0 to 1$/)
    expect(errors).toEqual([])
  })

  test('robustness §5: a head whose age is unknown, and a store that nobody leads, are red', async () => {
    const status: { chain?: object } = JSON.parse(
      await (await fetch(`${ready.admin_url}/operator/status`)).text(),
    )
    const chain = { ...status.chain, head_age_seconds: null }
    const now = { ...status, chain, cluster: { leads: false, leader: null, lag_records: 0 } }
    await page.route('**/operator/events', (route) =>
      route.fulfill({
        contentType: 'text/event-stream',
        body: `event: figures\ndata: ${JSON.stringify(now)}\n\n`,
      }),
    )
    await page.reload()
    const red = (name: string) => page.locator(`dt:text-is("${name}") + dd > .bad`).first()
    expect(await red('leader').textContent()).toBe('nobody')
    expect(await red('head age').textContent()).toBe('\u2013')
    await page.unroute('**/operator/events')
    await page.reload()
  })

  test.each([
    ['light', 360],
    ['dark', 390],
    ['light', 1280],
    ['dark', 1400],
  ] as const)(
    'the page is whole in %s at %i pixels: nothing is wider than the window, and text stands out',
    async (colorScheme, width) => {
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize({ width, height: 800 })
      const seen = await page.evaluate<{
        overflow: number
        clipped: string[]
        ink: number
        ground: number
      }>(`(() => {
        const { color, backgroundColor } = getComputedStyle(document.body)
        const light = (value) => value.match(/[0-9]+/g).slice(0, 3).reduce((sum, each) => sum + Number(each), 0)
        const clipped = [...document.querySelectorAll('dd, summary .status')].filter((node) => node.scrollWidth > node.clientWidth)
        const overflow = document.documentElement.scrollWidth - innerWidth
        return { overflow, clipped: clipped.map(({ textContent }) => textContent), ink: light(color), ground: light(backgroundColor) }
      })()`)
      expect(seen).toMatchObject({ overflow: 0, clipped: [] })
      expect(seen.ink > seen.ground).toBe(colorScheme === 'dark')
      const picture = await page.screenshot({ fullPage: true })
      expect(picture.length).toBeGreaterThan(10_000)
    },
  )

  test('robustness §5: eight pages may be open, the ninth is told so and comes in when one closes', async () => {
    const open: AbortController[] = []
    const events = async () => {
      const control = new AbortController()
      open.push(control)
      return (await fetch(`${ready.admin_url}/operator/events`, { signal: control.signal })).status
    }
    const statuses: number[] = []
    await says('link', /^live since /)
    for (let n = 0; n < 8; n++) statuses.push(await events())
    expect(statuses).toEqual([200, 200, 200, 200, 200, 200, 200, 503])
    open[0]?.abort()
    let status = 503
    while (status === 503) status = await events()
    expect(status).toBe(200)
    for (const one of open) one.abort()
  })
})
