import { readdirSync } from 'node:fs'
import { afterAll, describe, expect, test } from 'vitest'
import { workshop } from '../support/processes.js'

const shop = workshop()
afterAll(() => shop.clean())

interface Step {
  name: string
  ok: boolean
  seconds: number
}

const life = ['question', 'sign', 'submit', 'validate', 'select', 'execute', 'index', 'replay', 'conflict', 'status']

describe('demo', () => {
  test('contract §6: --json tells every step of a whole life, exits 0 and leaves nothing in the temporary folder', async () => {
    const temporary = await shop.folder()
    const { code, stdout, stderr } = await shop.run(['demo', '--json'], { env: { TMPDIR: temporary } })
    expect(code, stderr).toBe(0)
    const told = JSON.parse(stdout) as { schema: string; steps: Step[]; ok: boolean }
    expect(Object.keys(told)[0]).toBe('schema')
    expect(told).toMatchObject({ schema: 'proposer.demo/1', ok: true })
    expect(told.steps.map(({ name }) => name).filter((name) => life.includes(name))).toEqual(life)
    for (const step of told.steps) expect(step).toMatchObject({ ok: true, seconds: expect.any(Number) })
    expect(readdirSync(temporary)).toEqual([])
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
