/** contract §9, Confirmation, on a terminal of its own: the sum is asked before anything is signed. */
import { afterEach, expect, test } from 'vitest'
import { argvOf } from '#support/argv'
import { type BatchWorld, openBatchWorld } from '#support/batch-world'
import { type HeldGateway, holdGateway } from '#support/held-gateway'
import { workshop } from '#support/processes'
import { hasTerminals, onTerminal, tooWide, wordsOn } from '#support/terminal'

// Builds dist/ where it is old.
workshop()
let world: BatchWorld
let gateway: HeldGateway
afterEach(async () => {
  await gateway?.close()
  await world?.close()
})

test.runIf(hasTerminals).each([80, 40])(
  'contract §9: run shows the sum at %i columns and asks; n signs nothing, y goes on',
  async (columns) => {
    world = await openBatchWorld()
    const { questionId } = world.ask('asked on a terminal', { timestamp: '1760000000' })
    const file = world.ndjson('rows.ndjson', [{ identifier: questionId, outcome: 'p2' }])
    gateway = await holdGateway(world, { kind: 'status', at: 'answered' })
    const env = {
      PROPOSER_HOME: world.home,
      PROPOSER_GATEWAY: gateway.url,
      PROPOSER_KEY_FILE: `${world.home}/key`,
    }
    const declined = await onTerminal(['run', file], env, { columns })
    await declined.said(/Sign 1 proposal as\s[\s\S]*\[y\/N\]/)
    declined.type('n\n')
    expect((await declined.ended).code).toBe(2)
    const listed = await world.run(argvOf`journal list --json`)
    expect(JSON.parse(listed.stdout)).toMatchObject({ authorizations: [] })

    const agreed = await onTerminal(['run', file], env, { columns })
    await agreed.said(/\[y\/N\]/)
    agreed.type('y\n')
    await gateway.reached
    agreed.type('\u0003')
    const { code, text } = await agreed.ended
    expect(code).toBe(130)
    expect(wordsOn(text)).toContain('1 row: 1 accepted')
    expect([...tooWide(declined.screen(), columns), ...tooWide(text, columns)]).toEqual([])
  },
)

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
