/** What earlier versions had is refused by its name, with what stands for it (contract §10). */
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { dropped } from '#commands/dropped'
import { droppedKeys } from '#gateway/config'
import { run, temporaryHome } from '#support/cli'

test.each(Object.entries(dropped))('%s: exit 2, nothing is written', async (line, instead) => {
  const home = await temporaryHome()
  onTestFinished(() => home.remove())
  const { code, stdout, stderr } = await run(home.path, [...line.split(' '), 'x', '--json'])
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(JSON.parse(stderr)).toMatchObject({ error: { code: 'usage' } })
  expect(stderr).toContain(JSON.stringify(instead).slice(1, -1))
  expect(await readdir(home.path)).toEqual([])
})

test('gateway.json chain.confirmations as a number: exit 2, nothing is started', async () => {
  const home = await temporaryHome()
  onTestFinished(() => home.remove())
  const path = join(home.path, 'gateway.json')
  const config = JSON.parse(await readFile('fixtures/v0.2/inputs/gateway-all-keys.json', 'utf8'))
  config.chain.confirmations = 12
  await writeFile(path, JSON.stringify(config))
  const { code, stdout, stderr } = await run(home.path, `serve --config ${path} --json`)
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(JSON.parse(stderr).error.detail).toContain(
    'chain.confirmations must be "finalized", or omitted: a number of blocks is no longer possible',
  )
  expect(await readdir(home.path)).toEqual(['gateway.json'])
})

test.each(Object.entries(droppedKeys))(
  'gateway.json %s: exit 2, nothing is started',
  async (key, instead) => {
    const home = await temporaryHome()
    onTestFinished(() => home.remove())
    const config = key.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), [])
    await writeFile(join(home.path, 'gateway.json'), JSON.stringify(config))
    const argv = ['serve', '--config', join(home.path, 'gateway.json'), '--json']
    const { code, stdout, stderr } = await run(home.path, argv)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain(
      `${JSON.stringify(key).slice(1, -1)}\\" is no longer a configuration key`,
    )
    expect(stderr).toContain(JSON.stringify(instead).slice(1, -1))
    expect(await readdir(home.path)).toEqual(['gateway.json'])
  },
)
