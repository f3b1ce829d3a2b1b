/** contract §9, Confirmation, on a terminal of its own: what was answered is kept. */
import { argvOf } from '#support/argv'
import { type BatchWorld, openBatchWorld } from '#support/batch-world'
import { workshop } from '#support/processes'
import { hasTerminals, onTerminal, tooWide } from '#support/terminal'

// Builds dist/ where it is old.
workshop()
let world: BatchWorld

test.runIf(hasTerminals).each([80, 40])(
  'contract §9: init asks at %i columns, and keeps what was answered before Ctrl-C',
  async (columns) => {
    world = await openBatchWorld()
    const env = { PROPOSER_HOME: world.home }
    const first = await onTerminal(['init'], env, { columns })
    await first.said(/Profile: /)
    first.type('mine\n')
    await first.said(/Gateway URL:\s/)
    first.type('https://gateway.example\n')
    await first.said(/Enter\s+to\s+skip/)
    first.type('\u0003')
    expect((await first.ended).code).toBe(130)
    const again = await onTerminal(argvOf`init --profile mine`, env, { columns })
    await again.said(/kept +gateway:\s+in profile mine/)
    await again.said(/Enter\s+to\s+skip/)
    again.type('\u0003')
    expect((await again.ended).code).toBe(130)
    expect(again.screen()).not.toContain('Gateway URL')
    expect([...tooWide(first.screen(), columns), ...tooWide(again.screen(), columns)]).toEqual([])
  },
)
