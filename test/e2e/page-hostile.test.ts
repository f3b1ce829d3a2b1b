/**
 * The operator's page with texts of a question that somebody else wrote: labels with markup, a slug
 * without a blank. They stay text, whole, and push nothing aside (contract §6, R20).
 */
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { argvOf } from '#support/argv'
import { openBrowser } from '#support/browser'
import { testWith } from '#support/components'
import { workshop } from '#support/processes'
import { makeClient, type ServeReady } from '#support/proposing'

const shop = workshop()
let browser: Browser | undefined
afterAll(async () => {
  await browser?.close()
})

const label = 'Yes"><img src=x onerror="document.title=1">'
const text = `q: title: <script>document.title=2</script>, description: x. res_data: p1: 0, p2: 1, p3: 0.5. Where p1 corresponds to No, p2 to ${label}, p3 to unknown`
const slug = `long-${'x'.repeat(90)}`

testWith(
  ['Chromium'],
  'R20: what a question says is shown whole at every width, and does nothing',
  async () => {
    const { dev, folder } = await shop.devChain(1)
    const config = join(folder, 'gateway.json')
    const serve = argvOf`serve --config ${config} --port 0 --json`
    const { url, admin_url } = await shop.start(serve).line<ServeReady>()
    const client = await makeClient(shop, dev, {
      PROPOSER_GATEWAY: url,
      PROPOSER_RPC_URL: dev.rpc_url,
    })
    const asked = await client.ask('devchain', 'ask', 'hostile', '--text', text)
    const id = String(asked.answer.question_id)
    const add = argvOf`operator --config ${config} questions add ${id} --slug ${slug} --yes`
    // The gateway reads at the head of its view: a question asked just now may be in the next one.
    let added = await client.ask(...add)
    while (added.answer.code === 'question_unknown') added = await client.ask(...add)
    expect(added.code, JSON.stringify(added.answer)).toBe(0)
    const sent = await client.ask('submit', id, '--outcome', 'p2', '--yes', '--wait')
    expect(sent.code, JSON.stringify(sent.answer)).toBe(0)

    browser = await openBrowser()
    const page = await browser.newPage()
    const errors: string[] = []
    page.on('pageerror', ({ message }) => errors.push(message))
    await page.goto(admin_url)
    const row = page.locator('#candidates > li').first()
    await row.locator('.answer', { hasText: label }).waitFor()
    for (const width of [1280, 390, 360]) {
      await page.setViewportSize({ width, height: 844 })
      const cut = await row
        .locator('summary > *')
        .evaluateAll((all) =>
          all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent),
        )
      expect(cut, `${width} px`).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0)
      const [place, whole] = await Promise.all([
        row.locator('summary .question').boundingBox(),
        row.boundingBox(),
      ])
      expect((place?.width ?? 0) / (whole?.width ?? 1), `${width} px`).toBeGreaterThan(0.25)
    }
    await page.fill('#search', '<img src=x')
    expect(await row.isVisible()).toBe(true)
    await row.locator('summary').click()
    await row.locator('.way', { hasText: label }).waitFor()
    expect(await page.locator('img, main script').count()).toBe(0)
    expect(await page.title()).toMatch(/proposer gateway$/)
    expect(errors).toEqual([])
  },
)
