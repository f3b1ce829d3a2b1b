/**
 * Gateways go on with the stores that earlier versions left (fixtures/v0.1, fixtures/v0.2), on the
 * chain as it was then and at its time.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import pg from 'pg'
import { type Anvil, startAnvil } from '#devchain/dev-anvil'
import { devRpc } from '#devchain/dev-contracts'
import { createChain } from '#io/rpc/rpc'
import { argvOf } from '#support/argv'
import { run } from '#support/cli'
import { describeWith } from '#support/components'
import {
  clockFrom,
  expectedOf,
  type KeptVersion,
  keptFiles,
  keptVersions,
} from '#support/kept-files'
import { startPostgres } from '#support/postgres/server'

let files: string
let anvil: Anvil
let chain: ReturnType<typeof createChain>
/** That of the fixtures, so that no deadline in them ever passes. */
let clock: ReturnType<typeof clockFrom>

async function open(version: KeptVersion): Promise<void> {
  const { made_ms: madeMs } = expectedOf(version)
  files = await keptFiles(version)
  const state = join(files, 'chain.json')
  await writeFile(state, brotliDecompressSync(await readFile(join(files, 'chain.json.br'))))
  const loaded = argvOf`--load-state ${state} --no-mining --chain-id 31337 --accounts 0`
  anvil = await startAnvil(0, argvOf`${loaded} --slots-in-an-epoch 1 --hardfork prague`)
  clock = clockFrom(madeMs)
  const rpc = devRpc(anvil.rpcUrl)
  await rpc.request('anvil_setTime', [Math.floor(madeMs / 1000)])
  await rpc.request('evm_setIntervalMining', [1])
  // State is read at the finalized block, and what was before the last block is not kept.
  for (let block = 0; block < 3; block += 1) await rpc.request('evm_mine', [])
  chain = createChain([anvil.rpcUrl])
}
afterEach(async () => {
  await chain.close()
  await anvil.stop()
})

async function say<T = Record<string, unknown>>(
  home: string,
  ...argv: readonly string[]
): Promise<T> {
  const env = { PROPOSER_TRUST: join(files, 'dev/trust.json') }
  const ran = await run(join(files, home), [...argv, '--json'], {
    cwd: files,
    clock,
    chain,
    env,
  })
  if (ran.code !== 0) throw new Error(`${argv.join(' ')} ended with ${ran.code}: ${ran.stderr}`)
  return JSON.parse(ran.stdout) as T
}

interface Row {
  readonly candidate_id: string
  readonly sequence: number
  readonly question_id: string
  readonly status: string
  readonly submission: string | null
}
interface Event {
  readonly event: string
  readonly nonce?: number
  readonly attempt?: { readonly hash: string }
}

const gatewayOf = (store: string) => `stores/${store}/gateway.json`

async function rowsOf(store: string): Promise<readonly Row[]> {
  return (
    await say<{ candidates: Row[] }>(
      'home',
      'operator',
      'store',
      'export',
      '--config',
      gatewayOf(store),
    )
  ).candidates
}

async function rowOf(store: string, matches: (row: Row) => boolean): Promise<Row> {
  const found = (await rowsOf(store)).find(matches)
  if (!found) throw new Error(`${store} holds no such candidate`)
  return found
}

async function signedFor(store: string, { candidate_id: id }: Row) {
  const config = ['--config', gatewayOf(store)] as const
  const { events } = await say<{ events: readonly Event[] }>(
    'home',
    'operator',
    'candidates',
    'explain',
    id,
    ...config,
  )
  return events
    .filter(({ event }) => event === 'signed')
    .map(({ nonce, attempt }) => ({ nonce, hash: attempt?.hash }))
}

const send = (store: string, questionId: string, payload: string, ...more: readonly string[]) =>
  say('another-home', 'submit', questionId, payload, '--local', gatewayOf(store), ...more)

async function expectGoesOn(store: string, live: Row, payload: string): Promise<void> {
  const signed = await signedFor(store, live)
  expect(signed).toHaveLength(1)
  const sent = await send(store, live.question_id, payload, '--wait', '--timeout', '60')
  expect(sent).toMatchObject({ outcome: 'replayed', candidate_id: live.candidate_id })
  const after = await rowOf(store, ({ sequence }) => sequence === live.sequence)
  expect(after).toMatchObject({
    status: 'executed',
    submission: 'indexed',
    transaction_hash: signed[0]?.hash,
  })
  expect(await signedFor(store, live)).toEqual(signed)
  // Not a rule of R1 to R3 is broken over what two versions have written.
  expect(
    await say('home', 'operator', 'store', 'verify', '--config', gatewayOf(store)),
  ).toMatchObject({ torn_bytes: 0 })
}

const compactedNames = {
  'v0.1': ['executed', 'rejected', 'executed-later', 'live', 'received', 'after'],
  'v0.2': ['executed', 'executed-later', 'live', 'received'],
} as const

describe.each(keptVersions)('stores of %s', (version) => {
  test('R2, R7: unknowns are settled by its store: the same candidate where it had admitted them', async () => {
    await open(version)
    const { authorizations } = await say<{
      authorizations: { journal_id: string; state: string; question_id: string }[]
    }>(...(['home', 'journal', 'list'] as const))
    const unknown = authorizations.filter(({ state }) => state === 'unknown')
    const held = new Map((await rowsOf('small')).map((row) => [row.question_id, row.candidate_id]))
    const ids = unknown.map(({ journal_id }) => journal_id)
    const { results } = await say<{ results: object[] }>(
      'home',
      'replay',
      ...ids,
      '--local',
      gatewayOf('small'),
    )
    const settled = unknown.map(({ journal_id, question_id }) => {
      const candidate = held.get(question_id)
      return candidate
        ? { journal_id, outcome: 'replayed', candidate_id: candidate }
        : { journal_id, outcome: 'accepted' }
    })
    expect(results).toMatchObject(settled)
    expect(new Set(settled.map(({ outcome }) => outcome))).toEqual(
      new Set(['replayed', 'accepted']),
    )
  })

  test('R2, R3: a live slot whose transaction was sent keeps nonce and bytes', async () => {
    await open(version)
    const live = await rowOf('small', ({ submission }) => submission === 'submitted')
    const { payload } = await say<{ payload: object }>(
      'home',
      'journal',
      'show',
      live.candidate_id,
      '--reveal-signature',
    )
    await writeFile(join(files, 'payload-live.json'), JSON.stringify(payload))
    await expectGoesOn('small', live, 'payload-live.json')
  })

  test('R2, R3: a compacted store answers for all that it ever held while admission is paused, and its live slot goes on', async () => {
    await open(version)
    const names = compactedNames[version]
    const rows = await rowsOf('compacted')
    expect(rows.map(({ sequence }) => sequence)).toEqual(names.map((_name, index) => index + 1))
    for (const [index, row] of rows.entries()) {
      const payload = `stores/compacted/payload-${names[index]}.json`
      if (names[index] === 'live') await expectGoesOn('compacted', row, payload)
      else {
        const sent = await send('compacted', row.question_id, payload)
        expect(sent).toMatchObject({ outcome: 'replayed', candidate_id: row.candidate_id })
      }
    }
  })
})

test('R1, R3: after a kill the prepared bytes are the ones that are sent; a torn admission was none', async () => {
  await open('v0.1')
  const prepared = await rowOf('killed', ({ submission }) => submission === 'prepared')
  await expectGoesOn('killed', prepared, 'stores/killed/payload-prepared.json')
  const questions = JSON.parse(await readFile(join(files, 'dev/questions.json'), 'utf8')) as {
    question_id: string
  }[]
  const torn = await send(
    'killed',
    questions[21]?.question_id ?? '',
    'stores/killed/payload-torn.json',
  )
  expect(torn).toMatchObject({ outcome: 'accepted' })
})

describeWith([18], 'a database of v0.2', () => {
  test('R2, R3, R25: its live slot keeps nonce and bytes, what was executed is replayed', async () => {
    await open('v0.2')
    const server = await startPostgres()
    onTestFinished(() => server.close())
    const url = await server.createDatabase()
    const client = new pg.Client(url)
    await client.connect()
    await client.query(await readFile(join(files, 'stores/shared/database.sql'), 'utf8'))
    await client.end()
    const config = join(files, gatewayOf('shared'))
    const raw = JSON.parse(await readFile(config, 'utf8')) as object
    await writeFile(config, JSON.stringify({ ...raw, store: url }))
    const [executed, live] = await rowsOf('shared')
    if (!executed || !live) throw new Error('the database holds two candidates')
    const payload = (name: string) => `stores/shared/payload-${name}.json`
    expect(await send('shared', executed.question_id, payload('executed'))).toMatchObject({
      outcome: 'replayed',
      candidate_id: executed.candidate_id,
    })
    await expectGoesOn('shared', live, payload('live'))
  })
})
