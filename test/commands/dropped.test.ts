/** What earlier versions had is refused by its name, with what stands for it (contract §10). */
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { dropped } from '#commands/dropped'
import { droppedKeys } from '#gateway/config'
import { run } from '#support/cli'
import { temporaryFolder } from '#support/folders'

test.each(Object.entries(dropped))('%s: exit 2, nothing is written', async (line, instead) => {
  const home = temporaryFolder()
  const { code, stdout, stderr } = await run(home, [...line.split(' '), 'x', '--json'])
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(JSON.parse(stderr)).toMatchObject({ error: { code: 'usage' } })
  expect(stderr).toContain(JSON.stringify(instead).slice(1, -1))
  expect(await readdir(home)).toEqual([])
})

test('gateway.json chain.confirmations as a number: exit 2, nothing is started', async () => {
  const home = temporaryFolder()
  const path = join(home, 'gateway.json')
  const config = JSON.parse(await readFile('fixtures/v0.2/inputs/gateway-all-keys.json', 'utf8'))
  config.chain.confirmations = 12
  await writeFile(path, JSON.stringify(config))
  const { code, stdout, stderr } = await run(home, `serve --config ${path} --json`)
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(JSON.parse(stderr).error.detail).toContain(
    'chain.confirmations must be "finalized", or omitted: a number of blocks is no longer possible',
  )
  expect(await readdir(home)).toEqual(['gateway.json'])
})

test.each(Object.entries(droppedKeys))(
  'gateway.json %s: exit 2, nothing is started',
  async (key, instead) => {
    const home = temporaryFolder()
    const config = key.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), [])
    await writeFile(join(home, 'gateway.json'), JSON.stringify(config))
    const argv = ['serve', '--config', join(home, 'gateway.json'), '--json']
    const { code, stdout, stderr } = await run(home, argv)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain(
      `${JSON.stringify(key).slice(1, -1)}\\" is no longer a configuration key`,
    )
    expect(stderr).toContain(JSON.stringify(instead).slice(1, -1))
    expect(await readdir(home)).toEqual(['gateway.json'])
  },
)
