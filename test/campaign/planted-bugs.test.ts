/**
 * T15: a suite that has never failed proves little. Each bug of the list is planted, and the test
 * that names its rule has to fail.
 */
import { plantedBugs } from '#support/planted/bugs'
import { planted } from '#support/planted/plant'
import { testPlanted } from '#support/planted/run'

describe('T15: a planted bug is caught', () => {
  testPlanted('own', plantedBugs, 21, 280_000)

  const edited = (find: string, replace: string, text: string) => {
    const bug = {
      name: 'b',
      room: 'x',
      edits: { [find]: replace },
      caughtBy: { file: '', title: '' },
    }
    return planted(bug, new Map([['x/a.ts', text]])).text
  }

  test('a pattern survives formatting, types and other names', () => {
    expect(edited('$a.sync()', 'skip($a)', 'const x = (handle as Handle)\n  .sync()')).toBe(
      'const x = skip((handle as Handle))',
    )
    expect(
      edited(
        'try { a($$all) } catch ($e) { throw $e }',
        'a($$all)',
        'try { a(1, b) } catch (x) { throw x }',
      ),
    ).toBe('a(1, b)')
    expect(() => edited('a()', 'b()', 'a(); a()')).toThrow('no longer fits x: a() is there 2 times')
    expect(() => edited('$x + $x', '0', 'a + b')).toThrow('is there 0 times')
  })
})
