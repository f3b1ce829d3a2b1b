/**
 * Every `sh` block of README and docs/ that no other test runs: in a shell with a gateway, a node,
 * trust and a key.
 */
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import { makeClient, questionOf, type ServeReady } from '#support/proposing'
import { everyBlock, runnerOf, shell } from '#support/readme'

const shop = workshop()
const blocks = everyBlock().filter(
  (block) => block.language === 'sh' && block.notRun === undefined && runnerOf(block) === undefined,
)
let ready: ServeReady

beforeAll(async () => {
  ready = await shop.start(argvOf`serve --dev --port 0 --questions 2 --json`).line<ServeReady>()
})

test.each(blocks)('$page, $heading: its commands end well', async ({ code }) => {
  const { env } = await makeClient(shop, ready.dev, {
    PROPOSER_GATEWAY: ready.url,
    PROPOSER_RPC_URL: ready.dev.rpc_url,
  })
  const folder = await shop.folder()
  const script = code.replaceAll('some-slug', questionOf(ready.dev, 0).slug)
  const ended = await shell(folder, script, { env })
  expect(ended.code, ended.stdout + ended.stderr).toBe(0)
})
