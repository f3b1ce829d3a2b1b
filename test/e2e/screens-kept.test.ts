/**
 * Whole screens of what takes a while, as they stand when nothing moves: fixtures/screens has one
 * file a width (contract §6). What differs from run to run is masked.
 */
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { openBatchWorld } from '#support/batch-world'
import { serveHttp } from '#support/http-server'
import { screenOf } from '#support/screen'
import { hasTerminals, onTerminal, type Terminal, tooWide } from '#support/terminal'

const ctrlC = '\u0003'

async function openGateway() {
  const world = await openBatchWorld()
  const { front } = world
  Object.assign(front.clock, { nowMs: Date.now })
  front.view.nowValue = BigInt(Math.floor(Date.now() / 1000))
  const is = { held: false, gone: false }
  const served = await serveHttp(async ({ method = 'GET', url = '/' }, body, response) => {
    if (is.gone) return void response.destroy()
    const open = url.includes('status') && !is.held ? front.ledger.active() : []
    for (const { id, progress } of open) if (progress.status === 'received') await world.execute(id)
    const answer = method === 'POST' ? await front.post(url, body) : await front.get(url)
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(await answer.text())
  })
  const env = {
    PROPOSER_GATEWAY: served.url,
    PROPOSER_HOME: world.home,
    PROPOSER_KEY_FILE: join(world.home, 'key'),
    NO_COLOR: '1',
  }
  return { world, is, env, close: served.close }
}

const masks: readonly (readonly [RegExp, RegExp, string])[] = [
  [
    /\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{12}-\d+|0x[0-9a-f]{8,}|^[0-9a-f]{4,}$/gm,
    /[0-9a-f]/g,
    'x',
  ],
  [/\/tmp\/proposer-\w+/g, /\w+$/g, 'xxxxxx'],
  [/(\d+ min )?\d+\s+m?s\b/g, /.+/gs, '0 s'],
  [/(SIGNED|ago) +/g, / +/g, '  '],
  [/\n?\^C/g, /.+/gs, ''],
  [/pid \d+/g, /\d+/g, '0000'],
  [/\d\d:\d\d(:\d\d)?Z|http:\/\/127\.0\.0\.1:\d+|\d{4}-\d\d-\d\d/g, /\d/g, '0'],
  [/[\u2801-\u28ff](?= )/g, /./g, '*'],
]
const still = (screen: readonly string[]) =>
  masks.reduce(
    (text, [what, letter, mask]) =>
      text.replaceAll(what, (found) => found.replaceAll(letter, mask)),
    screen.map((line) => line.trimEnd()).join('\n'),
  )

// Paths are wrapped too.
describe.runIf(hasTerminals && tmpdir() === '/tmp')('screens', () => {
  test.concurrent.for([40, 80, 120])(
    'on %i columns are as they are kept',
    async (columns, { expect }) => {
      const { world, is, env, close } = await openGateway()
      const kept: string[] = []
      const shows = async (
        argv: readonly string[],
        act: (terminal: Terminal) => Promise<void> = async () => {},
      ) => {
        const terminal = await onTerminal(argv, env, { columns })
        await act(terminal)
        const { text } = await terminal.ended
        expect(tooWide(text, columns)).toEqual([])
        kept.push(still([`== proposer ${argv.join(' ')}`, ...screenOf(text, columns)]), '')
      }
      const question = (name: string) => world.ask(name, { timestamp: '1760000000' }).questionId
      const rowsOf = (name: string) =>
        world.ndjson(
          `${name}.ndjson`,
          Array.from({ length: 30 }, (_, n) => ({
            identifier: question(`${name} ${n}`),
            outcome: 'p2',
          })),
        )

      await shows(['--help'])
      await shows(argvOf`submit ${question('one')} --outcome p2 --wait --yes`)
      is.held = true
      await shows(argvOf`submit ${question('two')} --outcome p2 --yes`)
      await shows(['journal', 'list'])
      is.held = false
      await shows(['poll', '--all'])
      await shows(argvOf`run ${rowsOf('thirty')} --yes`)
      is.held = true
      await shows(argvOf`run ${rowsOf('struck')} --yes`, async (terminal) => {
        await terminal.said(/following.*0 of 30.* s\b/s)
        kept.push('== while it runs', still(screenOf(terminal.screen(), columns)), '')
        terminal.type(ctrlC)
      })
      await shows(
        argvOf`submit ${question('gone')} --outcome p2 --wait --yes`,
        async (terminal) => {
          await terminal.said(/received/)
          is.gone = true
          await terminal.said(/since \d\d:.*,\s+at \d\d:\d\d:\d\dZ/s)
          kept.push('== while it is gone', still(screenOf(terminal.screen(), columns)), '')
          is.gone = is.held = false
        },
      )
      await shows(argvOf`devchain --port 0 --questions 3`, async (terminal) => {
        await terminal.said(/on-sunday\s+0x\w{64}/)
        terminal.type(ctrlC)
      })
      await close()
      await expect(kept.join('\n')).toMatchFileSnapshot(
        join(import.meta.dirname, `../../fixtures/screens/${columns}.txt`),
      )
    },
  )
})
