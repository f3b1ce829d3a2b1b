/** docs/ci.md: the smoke test and the calls of `conformance` are run as they stand. */
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseFaultScript } from '#io/serving/fault-script'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import { questionOf, type ServeReady } from '#support/proposing'
import { blocksIn, section, shell } from '#support/readme'

const shop = workshop()

async function recipe(folder: string): Promise<string> {
  const text = blocksIn(section('A smoke test', 'docs/ci.md'), 'sh').join('\n')
  const path = join(folder, 'smoke.sh')
  await writeFile(path, text)
  await chmod(path, 0o755)
  return path
}

describe('docs: in CI', () => {
  test('the smoke test ends well, with JUnit of every check, and leaves no process', async () => {
    const folder = await shop.folder()
    const { code, stdout, stderr } = await shell(folder, await recipe(folder))
    expect(code, stdout + stderr).toBe(0)
    expect(stdout).toMatch(/^ok {4}1-trailing-slash\n/)
    const junit = await readFile(join(folder, 'conformance.xml'), 'utf8')
    const [, tests, failures] =
      /<testsuites?[^>]* tests="(\d+)"[^>]* failures="(\d+)"/.exec(junit) ?? []
    const told = /(\d+) named checks/.exec(section('Any gateway', 'docs/ci.md'))?.[1]
    expect([tests, failures]).toEqual([told, '0'])
    const { pid } = JSON.parse(await readFile(join(folder, 'ready.json'), 'utf8')) as ServeReady
    expect(() => process.kill(pid, 0)).toThrow(expect.objectContaining({ code: 'ESRCH' }))
  })

  test('the smoke test fails where the gateway does not start, with its log, and where a check fails, with its code', async () => {
    const folder = await shop.folder()
    const path = await recipe(folder)
    const dead = await shell(folder, path, { proposer: 'echo "no chain here" >&2; exit 75' })
    expect([dead.code, dead.stdout]).toEqual([1, 'no chain here\n'])
    const serving = `[ "$1" = serve ] && { trap 'exit 0' TERM; echo '{}'; while :; do sleep 0.1; done; }; exit 3`
    expect((await shell(folder, path, { proposer: serving })).code).toBe(3)
  })

  test('any gateway can be checked as shown, without sending what could be admitted', async () => {
    const gateway = await shop
      .start(argvOf`serve --dev --port 0 --json --set budget.per_ip_items=100000`)
      .line<ServeReady>()
    const folder = await shop.folder()
    await writeFile(join(folder, 'trust.json'), JSON.stringify(gateway.dev.trust))
    const script = blocksIn(section('Any gateway', 'docs/ci.md'), 'sh').join('\n')
    const pointed = script
      .replace('https://gateway.example', gateway.url)
      .replace('some-slug', questionOf(gateway.dev, 0).slug)
    const { code, stdout, stderr } = await shell(folder, pointed)
    expect(code, stdout + stderr).toBe(0)
    expect(stdout).toMatch(/^ok {4}/m)
    expect(stdout).not.toMatch(/^FAIL/m)
  })

  test('the fault script is one, and the same that the worked example uses', async () => {
    const [json = '', ...more] = blocksIn(
      section('A gateway that goes wrong on purpose', 'docs/ci.md'),
      'json',
    )
    expect(more).toEqual([])
    const shown = JSON.parse(json)
    expect(parseFaultScript(shown, 'docs/ci.md').rules).toHaveLength(2)
    const example = await readFile(join(import.meta.dirname, 'serve-faults.sh'), 'utf8')
    expect(JSON.parse(/<<'JSON'\n(.*?)^JSON$/ms.exec(example)?.[1] ?? '')).toEqual(shown)
  })
})
