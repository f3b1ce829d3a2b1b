/** contract §9: the card of the operator's page for several gateways on one store. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { argvOf } from '#support/argv'
import { openBrowser } from '#support/browser'
import { describeWith } from '#support/components'
import { startPostgres } from '#support/postgres/server'
import { type Running, workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'

const shop = workshop()
const closing: (() => Promise<void>)[] = []
afterAll(async () => {
  await shop.clean()
  for (const close of closing.reverse()) await close()
})

describeWith([18, 'Chromium'], 'the page of two gateways', () => {
  test('each page says who leads; when the leader is killed the other page says that it leads alone', async () => {
    const server = await startPostgres()
    closing.push(() => server.close())
    const folder = await shop.folder()
    const dev = join(folder, 'dev')
    const chain = argvOf`devchain --port 0 --questions 1 --write ${dev} --json`
    await shop.start(chain).line()
    const config = join(dev, 'gateway.json')
    writeFileSync(join(folder, 'store.url'), `${await server.createDatabase()}\n`, {
      mode: 0o600,
    })
    const env = { PROPOSER_STORE_URL_FILE: join(folder, 'store.url') }
    const made = await shop.run(argvOf`operator store init --config ${config}`, { env })
    expect(made.code, made.stderr).toBe(0)
    const gateways: { readonly process: Running; readonly ready: ServeReady }[] = []
    for (const n of [1, 2]) {
      const token = `admin.token_file=./admin-${n}.token`
      const args = argvOf`serve --config ${config} --port 0 --json --set ${token}`
      const process = shop.start(args, { env })
      gateways.push({ process, ready: await process.line<ServeReady>() })
    }
    const browser = await openBrowser()
    closing.push(() => browser.close())
    const pages: Page[] = []
    for (const { ready } of gateways) {
      const page = await browser.newPage()
      await page.goto(`${ready.admin_url}/`)
      pages.push(page)
    }
    const field = (label: string) => `dt:text-is("${label}") + dd`
    const says = (page: Page | undefined, label: string, pattern: RegExp) =>
      page?.locator(field(label)).filter({ hasText: pattern }).waitFor({ state: 'visible' })
    for (const page of pages) await says(page, 'gateways', /^2$/)
    for (const page of pages) await says(page, 'leader', /^[0-9a-f]{8}…$/)
    const roles = await Promise.all(pages.map((page) => page.textContent(field('leads'))))
    expect([...roles].sort()).toEqual(['false', 'true'])
    const leading = roles.indexOf('true')
    const survivor = pages[1 - leading]
    for (const [page, width] of pages.flatMap((page) =>
      [1280, 390].map((w) => [page, w] as const),
    )) {
      await page.setViewportSize({ width, height: 800 })
      const clipped = await page
        .locator('#cards dd')
        .evaluateAll((all) =>
          all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent),
        )
      expect([width, clipped]).toEqual([width, []])
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0)
    }
    const epoch = Number(await survivor?.textContent(field('epoch')))
    await gateways[leading]?.process.stop('SIGKILL')
    await pages[leading]?.locator('#link', { hasText: /the figures are out of date/ }).waitFor()
    await says(survivor, 'leads', /^true$/)
    await says(survivor, 'gateways', /^1$/)
    await says(survivor, 'epoch', new RegExp(`^${epoch + 1}$`))
  })
})
