/** How a failure reads for people, and when it has colors (contract §9). */
import { type Argv, eachHome, run } from '#support/cli'

const home = eachHome()

const [red, dim] = ['\u001b[31m', '\u001b[2m']
const refused = ['config', 'get', 'nothing']
const said = async (argv: Argv, env: Record<string, string>, interactive = false) =>
  (await run(home.path, argv, { env: { NO_COLOR: '', ...env }, interactive })).stderr

test('contract §9: an error for people begins with `error: `, and its hint is on the next line', async () => {
  const { code, stderr } = await run(home.path, refused)
  expect(code).toBe(2)
  expect(stderr).toMatch(/^error: unknown setting "nothing"\nhint: the known settings are /)
})

test('on a terminal `error:` is red and the hint dim, else neither is', async () => {
  const colored = await said(refused, {}, true)
  expect(colored.startsWith(`${red}error:\u001b[39m unknown`)).toBe(true)
  expect(colored).toContain(`\n${dim}hint: `)
  expect(await said(refused, {})).not.toContain('\u001b')
})

test.each([false, true])('--color decides, terminal or not (%s)', async (interactive) => {
  expect(await said([...refused, '--color', 'always'], {}, interactive)).toContain(red)
  expect(await said([...refused, '--color=never'], {}, interactive)).not.toContain('\u001b')
})

test('FORCE_COLOR colors a pipe, FORCE_COLOR=0 no terminal; it outranks NO_COLOR', async () => {
  expect(await said(refused, { FORCE_COLOR: '1' })).toContain(red)
  expect(await said(refused, { FORCE_COLOR: '0' }, true)).not.toContain('\u001b')
  expect(await said(refused, { FORCE_COLOR: '1', NO_COLOR: '1' })).toContain(red)
  expect(await said(refused, { NO_COLOR: '1' }, true)).not.toContain('\u001b')
  expect(await said(refused, { TERM: 'dumb' }, true)).not.toContain('\u001b')
  expect(await said([...refused, '--color', 'never'], { FORCE_COLOR: '1' })).not.toContain(red)
})

test('another value than the three is refused with them', async () => {
  const { code, stderr } = await run(home.path, 'config path --color alway')
  expect([code, stderr]).toEqual([2, expect.stringContaining('Did you mean always?')])
})
