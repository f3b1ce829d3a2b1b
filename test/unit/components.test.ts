import { type Component, lackOf } from '#support/components'

const without =
  (...absent: readonly Component[]) =>
  (need: Component) =>
    absent.includes(need) ? `no ${need}` : undefined

test('tests are left out by name only where something is missing, and it is named', () => {
  expect(lackOf(['nginx', 'Chromium'], {}, without('promtool'))).toBeUndefined()
  expect(lackOf(['nginx', 'Chromium', 18], {}, without('Chromium', 18))).toEqual({
    why: 'no Chromium, no 18',
    isError: false,
  })
})

test('CI_REQUIRE_ALL=1 makes each missing component an error, PROPOSER_TEST_POSTGRES=required that of npm alone', () => {
  const isError = (need: Component, env: NodeJS.ProcessEnv) =>
    lackOf([need], env, without(need))?.isError
  const all: readonly Component[] = ['Chromium', 'softhsm2-util', 'pgbouncer', 15, 18]
  for (const need of all) {
    expect(isError(need, { CI_REQUIRE_ALL: '1' })).toBe(true)
    expect(isError(need, { PROPOSER_TEST_POSTGRES: 'required' })).toBe(need === 18)
    expect(isError(need, {})).toBe(false)
  }
})
