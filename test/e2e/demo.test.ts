import { readdirSync } from 'node:fs'
import { main } from '#commands/main'
import type { Context } from '#commands/terminal/context'
import { createHttp } from '#io/http'
import { createChain } from '#io/rpc/rpc'
import { fakeContext } from '#support/cli'
import { workshop } from '#support/processes'

const shop = workshop()

interface Step {
  name: string
  ok: boolean
  seconds: number
}

const life = [
  'question',
  'sign',
  'submit',
  'validate',
  'select',
  'execute',
  'index',
  'replay',
  'conflict',
  'status',
  'settle',
]

describe('demo', () => {
  test('contract §6: --json tells every step of a whole life, exits 0 and leaves nothing in the temporary folder', async () => {
    const temporary = await shop.folder()
    const { code, stdout, stderr } = await shop.run(['demo', '--json'], {
      // A store of the operator's is not one for a chain that is thrown away.
      env: { TMPDIR: temporary, PROPOSER_STORE_URL_FILE: '/nowhere/store.url' },
    })
    expect(code, stderr).toBe(0)
    const told = JSON.parse(stdout) as { schema: string; steps: Step[]; ok: boolean }
    expect(Object.keys(told)[0]).toBe('schema')
    expect(told).toMatchObject({ schema: 'proposer.demo/1', ok: true })
    expect(told.steps.map(({ name }) => name).filter((name) => life.includes(name))).toEqual(life)
    for (const step of told.steps)
      expect(step).toMatchObject({ ok: true, seconds: expect.any(Number) })
    expect(readdirSync(temporary)).toEqual([])
  })

  test('contract §6: --json ends without a word on stderr, where a person looks on too', async () => {
    const home = await shop.folder()
    const http = createHttp()
    const chains: { close(): Promise<void> }[] = []
    const { context, stdout, stderr } = fakeContext(home, { interactive: true, fetch: http.fetch })
    const chain: Context['edges']['chain'] = async (urls, expected) => {
      const opened = createChain(urls, expected)
      chains.push(opened)
      return opened
    }
    try {
      expect(
        await main(['demo', '--json'], { ...context, edges: { ...context.edges, chain } }),
      ).toBe(0)
    } finally {
      await Promise.all([http.close(), ...chains.map((one) => one.close())])
    }
    expect(JSON.parse(stdout.written.join(''))).toMatchObject({ ok: true })
    expect(stderr.written.join('')).toBe('')
  })

  test('contract §6: Ctrl-C exits 130 and leaves nothing', async () => {
    const temporary = await shop.folder()
    const demo = shop.start(['demo', '--ndjson'], { env: { TMPDIR: temporary } })
    expect(await demo.line<Step>()).toMatchObject({ name: 'chain', ok: true })
    const { code } = await demo.stop('SIGINT')
    expect(code).toBe(130)
    expect(readdirSync(temporary)).toEqual([])
  })
})
