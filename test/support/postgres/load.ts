import { setTimeout as sleep } from 'node:timers/promises'
import { identitiesIn, type JoinedLedger, numbered, outcome, statusOf } from './gateways.js'
import type { PostgresServer } from './server.js'

export const identities = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => numbered(from + index).identity)

export async function sameMoment(gateways: readonly JoinedLedger[], count: number): Promise<void> {
  for (let n = 1; n <= count; n++) {
    const told = await Promise.all(
      gateways.map(({ ledger }) =>
        ledger.admit(numbered(n)).catch((error) => ({ kind: String(statusOf(error)) })),
      ),
    )
    const kinds = told.map(({ kind }) => kind).sort()
    expect(kinds).toEqual(['admitted', 'replayed', 'replayed', 'replayed'])
    expect(new Set(told.map((each) => 'candidate' in each && each.candidate.id)).size).toBe(1)
  }
  for (const { log, ledger } of gateways) {
    await log.catchUp()
    expect(ledger.counts().received).toBe(count)
    expect(await identitiesIn(log)).toEqual(identities(1, count))
  }
}

export async function underKills(
  server: PostgresServer,
  gateways: readonly JoinedLedger[],
  kills: number,
): Promise<number> {
  const acknowledged: string[] = []
  let isOver = false
  let n = 0
  const load = async (index: number) => {
    const gateway = gateways[index % gateways.length]
    while (gateway && !isOver) {
      const candidate = numbered(++n)
      const status = await outcome(gateway.ledger.admit(candidate))
      if (status === 202) acknowledged.push(candidate.identity)
      else await sleep(20)
    }
  }
  const loads = Array.from({ length: 8 }, (_, index) => load(index))
  for (let kill = 0; kill < kills; kill++) {
    const before = acknowledged.length
    await until(() => acknowledged.length > before + 20)
    await server.kill()
    await server.restart()
  }
  const before = acknowledged.length
  await until(() => acknowledged.length > before + 20)
  isOver = true
  await Promise.all(loads)
  const there = new Set((await Promise.all(gateways.map(({ log }) => identitiesIn(log)))).flat())
  expect(acknowledged.filter((identity) => !there.has(identity))).toEqual([])
  for (const { ledger, log } of gateways) {
    await log.catchUp()
    expect(ledger.counts().received).toBe(there.size)
  }
  return acknowledged.length
}

export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const end = performance.now() + 40_000
  while (!(await holds())) {
    if (performance.now() > end) expect.fail('it does not come to that')
    await sleep(20)
  }
}
