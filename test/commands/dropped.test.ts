/** What earlier versions had is refused by its name, with what stands for it (contract §10). */
import { readdir } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { dropped } from '../../src/commands/dropped.js'
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
