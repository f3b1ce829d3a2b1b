/** What earlier versions had is refused by its name, with what stands for it (contract §10). */
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { dropped } from '../../src/commands/dropped.js'
import { droppedKeys } from '../../src/core/gateway/config-faults.js'
import { run, temporaryHome } from '../support/cli.js'

test.each(Object.entries(dropped))('%s: exit 2, nothing is written', async (line, instead) => {
  const home = await temporaryHome()
  try {
    const { code, stdout, stderr } = await run(home.path, [...line.split(' '), 'x', '--json'])
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(JSON.parse(stderr)).toMatchObject({ error: { code: 'usage' } })
    expect(stderr).toContain(JSON.stringify(instead).slice(1, -1))
    expect(await readdir(home.path)).toEqual([])
  } finally {
    await home.remove()
  }
})

test.each(Object.entries(droppedKeys))(
  'gateway.json %s: exit 2, nothing is started',
  async (key, instead) => {
    const home = await temporaryHome()
    try {
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
    } finally {
      await home.remove()
    }
  },
)
