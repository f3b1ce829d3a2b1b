/**
 * T1, T6, T8: client, gateway, executor and chain in one process through scripts that a seed draws,
 * on simulated disks, clocks and networks. `CAMPAIGN_SCALE` makes more of them, `CAMPAIGN_SEED`
 * others.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { figures, firstSeed, scaled } from '#support/campaign'
import { runScript, shrink } from '#support/sim/run'
import { drawScript, Script, sweptScripts } from '#support/sim/script'

// Signatures are real, but nobody's is looked at twice.
vi.mock('#protocol/signature', async (original) => {
  const real = await original<typeof import('#protocol/signature')>()
  const { rememberingRecovery } = await import('#support/sim/makers')
  return { ...real, recoverSigner: rememberingRecovery(real.recoverSigner) }
})
// What the answers look like is held by other tests; here there are too many of them to keep.
vi.unmock('#gateway/gateway')

const scripts = scaled(850)
const swept = sweptScripts()
const fixtures = new URL('../../fixtures/simulation/', import.meta.url)
const stackFrames = Error.stackTraceLimit

beforeAll(async () => {
  // A simulated disk fails by the thousand, and nobody reads where.
  Error.stackTraceLimit = 1
  // What is imported at its first use is fetched while simulated time stands still or runs on, as
  // it happens: nobody judges this one.
  await runScript(drawScript(0)).catch(() => undefined)
})
afterAll(() => {
  Error.stackTraceLimit = stackFrames
})

async function told(failing: Script): Promise<string> {
  const { script, faults } = await shrink(failing)
  return `seed ${script.seed}: ${faults.join('; ')}\nas a fixture: ${JSON.stringify(script)}`
}

const counts = new Map<string, number>()
const of = (name: string) => counts.get(name) ?? 0

const parts = Array.from({ length: 5 }, (_, part) => ({
  from: firstSeed + Math.floor((scripts * part) / 5),
  upTo: firstSeed + Math.floor((scripts * (part + 1)) / 5),
}))

describe('R1-R4, R6-R8, R13, R15, R23: crashes, faults, clock jumps and reorganisations break no rule', () => {
  test.each(parts)('from seed $from up to $upTo', async ({ from, upTo }) => {
    for (let seed = from; seed < upTo; seed++) {
      const { faults, counts: found } = await runScript(drawScript(seed))
      if (faults.length > 0) throw new Error(await told(drawScript(seed)))
      for (const [name, count] of found) counts.set(name, of(name) + count)
    }
  })

  test('there was something to break', () => {
    for (const name of [
      'gateway deaths',
      'client deaths',
      'power cuts',
      'network faults',
      'outcome unknown',
      'became executed',
    ])
      expect(of(name), name).toBeGreaterThan(0)
    figures('simulation', {
      'scripts drawn': scripts,
      'scripts swept': swept.length,
      steps: of('steps'),
      'power cuts': of('power cuts'),
      'deaths at a disk call': of('gateway deaths') + of('client deaths'),
      'acknowledgements told': of('acknowledgements told'),
      'acknowledgements lost or invented': 0,
      'rounds sent': of('rounds sent'),
      'outcomes unknown': of('outcome unknown'),
      'unknown at the end of an open round': 0,
    })
  })
})

test('R1, R10, R11, R15, R23: each write and each sync of one proposal fails once, on either side', async () => {
  expect(swept).toHaveLength(182)
  for (const script of swept)
    if ((await runScript(script)).faults.length > 0) throw new Error(await told(script))
})

describe('scripts that once failed, or came close', () => {
  const names = readdirSync(fixtures).filter((name) => name.endsWith('.json'))
  test('there are some, each with steps', () => {
    expect(names.length).toBeGreaterThan(4)
  })
  test.each(names)('R1-R4, R6-R8, R15: %s breaks no rule', async (name) => {
    const script = Script.parse(JSON.parse(readFileSync(new URL(name, fixtures), 'utf8')))
    expect(script.steps.length).toBeGreaterThan(0)
    expect((await runScript(script)).faults).toEqual([])
  })
})

test('the same script gives the same run, so that a seed is worth writing down', async () => {
  const script = drawScript(firstSeed + 4)
  const [first, second] = [await runScript(script), await runScript(script)]
  expect([...first.counts]).toEqual([...second.counts])
})
