/**
 * `operator positions` (contract §9): what became of a store's executions, on a chain of the test's
 * own, and on nodes that do not tell all.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { topics } from '../../src/core/chain/contracts.js'
import { openStore } from '../../src/core/gateway/ledger/open-store.js'
import { systemClock, systemHash, systemRandom } from '../../src/core/io/clock.js'
import { systemFiles } from '../../src/core/io/files.js'
import { type Chain, ChainError } from '../../src/core/ports.js'
import type { Candidate } from '../../src/core/protocol/candidate.js'
import type { Address } from '../../src/core/protocol/schema.js'
import { type Ran, run, temporaryHome } from '../support/cli.js'
import { dispute, rivalProposes, settle } from '../support/fake-events.js'
import { adapter as disputer, fakeContracts, questionOf } from '../support/fake-world.js'
import { createPipelineWorld, type PipelineWorld } from '../support/pipeline-world.js'

let home: Awaited<ReturnType<typeof temporaryHome>>
let world: PipelineWorld
beforeEach(async () => {
  home = await temporaryHome()
  world = await createPipelineWorld()
})
afterEach(() => home.remove())

/** Executes a proposal of the n-th wallet for p2. */
async function executed(name: string, by = 0) {
  const questionId = await world.question(name)
  const round = questionOf(world.chain.world, questionId).timestamp
  const candidate = await world.submit(questionId, { by })
  await world.pass(6)
  return { questionId, round, candidate: await world.now(candidate) }
}

/** Writes a store on the disk with these candidates, all of one allowlist. */
async function save(candidates: readonly Candidate[], allowlist: readonly Address[]) {
  const { requesters, chainId, signedProposer, oracles, tokens } = fakeContracts
  const genesis = await world.chain.block(0n)
  writeFileSync(
    join(home.path, 'gateway.json'),
    JSON.stringify({
      store: './store',
      chain: {
        id: chainId,
        rpc_urls: ['http://127.0.0.1:1'],
        signed_proposer: signedProposer,
        ...{ oracles, requesters, tokens },
      },
    }),
  )
  const ports = {
    clock: systemClock,
    random: systemRandom,
    hash: systemHash,
    files: systemFiles,
  }
  const { ledger } = await openStore(ports, join(home.path, 'store'), {
    settings: async () => ({
      chainId,
      genesisHash: genesis?.hash,
      allowlist,
      admissionEnabled: true,
    }),
  })
  for (const { progress, ...candidate } of candidates) {
    const admitted = await ledger.admit(candidate)
    if (admitted.kind !== 'admitted' || progress.status !== 'executed') throw new Error('not made')
    const { validatedAtMs, selectedAtMs } = progress
    const { id } = admitted.candidate
    for (const step of [
      { status: 'validated', validatedAtMs } as const,
      { status: 'selected', validatedAtMs, selectedAtMs, submission: null } as const,
      progress,
    ])
      await ledger.commit([{ kind: 'candidate.progress', id, progress: step }])
  }
  await ledger.close()
}

const positions = (chain: Chain, ...more: string[]) =>
  run(home.path, ['operator', 'positions', ...more], { chain })
interface Document {
  readonly schema: string
  readonly fault: string | null
  readonly from_block: string | null
  readonly through_block: string | null
  readonly totals: Record<string, number | null>
  readonly proposers: (Record<string, number | null> & {
    readonly proposer: Address
    readonly advice: string | null
    readonly allowlist: Record<string, unknown>
  })[]
}
const documentOf = (ran: Ran): Document => {
  expect(ran.code, ran.stderr).toBe(0)
  return JSON.parse(ran.stdout)
}

/** Two wallets: one has a proposal of each end, the other an undisputed one. */
async function season() {
  const [open, calm, won, lost, contested] = [
    await executed('open'),
    await executed('calm'),
    await executed('won'),
    await executed('lost'),
    await executed('contested'),
  ]
  const other = await executed('other', 1)
  for (const { questionId } of [won, lost, contested]) dispute(world.chain, questionId)
  await world.pass(2)
  settle(world.chain, calm.questionId, {})
  settle(world.chain, won.questionId, { round: won.round, disputer })
  settle(world.chain, lost.questionId, { round: lost.round, price: 0n, disputer })
  settle(world.chain, other.questionId, {})
  // Somebody else's, and one that is not final.
  const foreign = await world.question('foreign')
  rivalProposes(world.chain, foreign, `0x${'9'.repeat(40)}`)
  await world.pass(5)
  settle(world.chain, open.questionId, {})
  world.chain.mine()
  const [first, second] = [open.candidate.proposer, other.candidate.proposer]
  const all = [open, calm, won, lost, contested, other].map(({ candidate }) => candidate)
  await save(all, [second])
  return { first, second, all }
}

const first = { executed: 5, open: 1, undisputed: 1, disputed: 3, won: 1, lost: 1, unknown: 0 }

describe('contract §9: operator positions', () => {
  test('counts by proposer, the share that was disputed, advice, and the line of the allowlist', async () => {
    const { first: loud, second: calm } = await season()
    const document = documentOf(await positions(world.chain, '--json'))
    expect(document).toMatchObject({
      schema: 'proposer.operator-positions/1',
      fault: null,
      totals: { ...first, executed: 6, undisputed: 2, disputed_share: 0.5 },
    })
    expect(document.proposers).toMatchObject([
      {
        proposer: loud,
        ...first,
        disputed_share: 0.6,
        advice: 'disputed 3 of 5: 1 lost, 1 won, 1 without an end yet; it is off the list',
        allowlist: { allowed: false },
      },
      {
        proposer: calm,
        ...{ executed: 1, undisputed: 1, disputed: 0, disputed_share: 0 },
        advice: null,
        allowlist: { allowed: true, reason: 'listed in the configuration', by: null },
      },
    ])
    expect(Number(document.from_block)).toBeLessThan(Number(document.through_block))
    expect(documentOf(await positions(world.chain, '--json', '--proposer', calm)).totals).toEqual(
      expect.objectContaining({ executed: 1, disputed: 0 }),
    )
  })

  test('people read a table, the sum and the advice, with the command that would take a wallet off', async () => {
    const { all, first: loud } = await season()
    const { stdout, code } = await positions(world.chain)
    expect(code).toBe(0)
    expect(stdout).toContain('6 executions: disputed 3 (50.0%), lost 1, unknown 0')
    expect(stdout).toMatch(new RegExp(`${loud}: disputed 3 of 5`))
    await run(home.path, ['operator', 'allow', loud, '--reason', 'signed', '--by', 'alice'])
    const listed = await positions(world.chain, '--wide')
    expect(listed.stdout.replaceAll(/\s+/g, ' ')).toContain(`proposer operator disallow ${loud}`)
    expect(listed.stdout).toContain('signed (by alice)')
    const lines = (await positions(world.chain, '--ndjson')).stdout.trim().split('\n')
    expect(lines.map((line) => JSON.parse(line).executed)).toEqual([5, 1, undefined])
    expect(JSON.parse(lines.at(-1) ?? '').summary.totals.executed).toBe(all.length)
  })

  test('a store without executions asks no node', async () => {
    await save([], [])
    const { code, stdout } = await run(home.path, ['operator', 'positions'])
    expect([code, stdout]).toEqual([0, 'nothing has been executed\n'])
  })
})

describe('R16: a node that does not tell all', () => {
  test('leaves settlements and disputes out: the requests themselves say it', async () => {
    await season()
    const left: readonly string[] = [topics.settle, topics.disputePrice]
    const chain: Chain = {
      ...world.chain,
      logs: async (filter) =>
        (await world.chain.logs(filter)).filter((log) => !left.includes(log.topics[0] ?? '')),
    }
    expect(documentOf(await positions(chain, '--json')).totals).toMatchObject({
      ...first,
      executed: 6,
      undisputed: 2,
    })
  })

  test('leaves the proposals out: they are unknown', async () => {
    await season()
    const chain: Chain = { ...world.chain, logs: async () => [] }
    const { totals, proposers } = documentOf(await positions(chain, '--json'))
    expect(totals).toMatchObject({ executed: 6, unknown: 6, open: 0, disputed_share: null })
    expect(proposers.map(({ advice }) => advice)).toEqual([null, null])
  })

  test('answers single blocks only, and then not at all: what was read stands, the rest is unknown, and why', async () => {
    await season()
    const { chain } = world
    const slow: Chain = {
      ...chain,
      logs: async (filter) => {
        if (filter.toBlock > filter.fromBlock) throw new ChainError('refused', 'too many blocks')
        return chain.logs(filter)
      },
    }
    expect(documentOf(await positions(slow, '--json')).totals).toMatchObject({ unknown: 0 })
    const until = BigInt(documentOf(await positions(chain, '--json')).through_block ?? 0) - 3n
    const dying: Chain = {
      ...slow,
      logs: async (filter) => {
        if (filter.fromBlock > until) throw new ChainError('unavailable', 'the node has gone')
        return slow.logs(filter)
      },
    }
    const ran = await positions(dying, '--json')
    const { totals, fault, through_block } = documentOf(ran)
    expect([fault, through_block]).toEqual(['the node has gone', null])
    expect(totals).toMatchObject({ executed: 6, open: 0, unknown: expect.any(Number) })
    expect(totals.unknown).toBeGreaterThan(0)
    expect(ran.stderr).toContain('the chain was not read to the end: the node has gone')
  })

  test('knows no receipt: nothing is known, and the store is still counted', async () => {
    await season()
    const chain: Chain = { ...world.chain, receipt: async () => null }
    const { totals, fault } = documentOf(await positions(chain, '--json'))
    expect(totals).toMatchObject({ executed: 6, unknown: 6 })
    expect(fault).toContain('no receipt')
  })
})
