/**
 * One proposal through two gateways on one PostgreSQL. The gateway that leads is killed in the
 * middle, and the other one carries the proposal out (contract §9).
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { topics } from '../core/chain/constants.js'
import type { DevDescription } from '../core/devchain/dev-chain.js'
import { type Closers, createClosers } from '../core/io/closers.js'
import { startLocalPostgres } from '../core/io/local-postgres.js'
import { type OwnedProcess, startOwned } from '../core/io/owned-process.js'
import { packageRoot } from '../core/io/package-root.js'
import type { SqlRow, SqlSession } from '../core/ports.js'
import { UsageError } from '../core/protocol/errors.js'
import { membersOf } from '../core/storage/postgres/members.js'
import { lookAtStore } from '../core/storage/postgres/schema.js'
import { notReached } from '../core/storage/postgres/session.js'
import {
  admittedAs,
  type DemoStep,
  differs,
  followTo,
  hashOf,
  openClient,
  questionCount,
  type RunStep,
  replayStep,
  signAnswer,
  steps,
} from './demo-life.js'
import type { Context } from './terminal/context.js'

/** A gateway is started, or takes over, in less; a busy machine may need it. */
const waitMs = 60_000
const lookMs = 100

interface Gateway {
  readonly number: number
  readonly url: string
  readonly adminUrl: string
  readonly process: OwnedProcess
}

/** What all steps work on. */
interface Scene {
  readonly context: Context
  readonly step: RunStep
  readonly folder: string
  readonly dev: DevDescription
  readonly database: SqlSession
  readonly closers: Closers
}

/**
 * Lives through every step, with a server of its own or in the empty database of `storeUrl`.
 * Everything it makes is gone when it settles, whatever happened. Rejects with the first step's
 * failure; UsageError (2) `postgres_missing`, or for a database that cannot be used.
 */
export async function liveWithGateways(
  context: Context,
  report: (step: DemoStep) => void,
  storeUrl: string | undefined,
): Promise<void> {
  const step = steps(context, report)
  const folder = await mkdtemp(join(tmpdir(), 'proposer-demo-'))
  const closers = createClosers()
  closers.add(() => rm(folder, { recursive: true, force: true }))
  try {
    const { startDevChain } = await import('../core/devchain/dev-chain.js')
    const { writeDevFolder } = await import('../core/devchain/dev-folder.js')
    const { description: dev, stop } = await step(
      'chain',
      () => startDevChain({ questions: questionCount }),
      ({ description: { questions } }) =>
        `a throwaway chain with contracts, funded accounts and ${questions.length} open questions`,
    )
    closers.add(stop)
    const { url, session } = await openDatabase(context, step, storeUrl, closers)
    await writeDevFolder(join(folder, 'gateway'), dev)
    const scene = { context, step, folder, dev, database: session, closers }
    const gateways = await step(
      'gateways',
      async () => {
        const leader = await startGateway(scene, 1, url)
        await untilLeads(scene, leader)
        return { leader, other: await startGateway(scene, 2, url) }
      },
      ({ leader, other }) =>
        `1 at ${leader.url} leads, that is, executes; 2 at ${other.url} admits too`,
    )
    await propose(scene, gateways)
  } finally {
    await closers.close()
  }
}

async function openDatabase(
  context: Context,
  step: RunStep,
  storeUrl: string | undefined,
  closers: Closers,
) {
  return step(
    'database',
    async () => {
      const server = storeUrl === undefined ? await startLocalPostgres(context.env.PATH) : undefined
      if (server) closers.add(server.stop)
      const url = server?.url ?? storeUrl ?? ''
      const database = await context.edges.database(url)
      const session = await database.connect().catch((cause: unknown) => {
        throw notReached(database.name, cause)
      })
      closers.add(session.destroy)
      if ((await lookAtStore(session, database.name)).kind !== 'empty')
        throw new UsageError('store_not_empty', `${database.name} already holds a store`, {
          hint: 'give --store-url with an empty database, or leave it out',
        })
      // Only in a database where there was none.
      if (!server) closers.add(() => session.script('DROP SCHEMA IF EXISTS proposer CASCADE'))
      const what = server ? `PostgreSQL ${server.version}, started for this demo` : database.name
      return { url, session, what }
    },
    ({ what }) => `${what}: the one log that all gateways write`,
  )
}

/** Throws UsageError `invalid_store_url`. Arguments are visible to every user. */
export async function refusePassword(url: string): Promise<void> {
  const { parsePostgresUrl } = await import('../core/io/postgres.js')
  if (parsePostgresUrl(url).password !== undefined)
    throw new UsageError('invalid_store_url', 'the URL in --store-url holds a password', {
      hint: 'give one without; a server on this machine may trust its users, see pg_hba.conf',
    })
}

/** Starts `serve` as a process of its own, and waits until it is ready. */
async function startGateway(
  { folder, closers, context: { env, signal } }: Scene,
  number: number,
  storeUrl: string,
): Promise<Gateway> {
  const set = (assignment: string) => ['--set', assignment]
  const process_ = startOwned(
    process.execPath,
    [
      ...[join(packageRoot(), 'bin', 'proposer.js'), 'serve', '--config', 'gateway.json'],
      ...['--port', '0', '--json', '--no-log'],
      ...set(`store=${storeUrl}`),
      ...set(`admin.token_file=./admin-${number}.token`),
    ],
    {
      cwd: join(folder, 'gateway'),
      end: 'SIGKILL',
      // Nothing of ours: keys and stores of this machine are not the demo's.
      env: { PATH: env.PATH, TMPDIR: tmpdir(), PROPOSER_HOME: join(folder, `home-${number}`) },
    },
  )
  closers.add(process_.stop)
  const ready = await process_.said(/^\{"event":"ready".*\}$/m, waitMs)
  signal.throwIfAborted()
  if (!ready) {
    const last = process_.output().trim().split('\n').at(-1)
    throw differs(`gateway ${number} does not start: ${last}`)
  }
  const { url, admin_url } = JSON.parse(ready[0]) as { url: string; admin_url: string }
  return { number, url, adminUrl: admin_url, process: process_ }
}

async function untilLeads(
  { context: { clock, signal }, database }: Scene,
  { number, adminUrl }: Gateway,
): Promise<void> {
  const ask = (text: string): Promise<readonly SqlRow[]> => database.query(text)
  for (const startMs = clock.monotonicMs(); clock.monotonicMs() - startMs < waitMs; ) {
    const [first] = await membersOf({ ask })
    if (first?.isLeader === true && first.adminUrl === adminUrl) return
    await clock.sleep(lookMs, signal)
  }
  throw differs(`gateway ${number} does not lead`)
}

async function propose(
  scene: Scene,
  { leader, other }: { readonly leader: Gateway; readonly other: Gateway },
): Promise<void> {
  const { context, step, folder, dev, closers } = scene
  const setting = { dev, url: other.url, home: join(folder, 'home') }
  const client = await openClient(context, setting, closers)
  const { send } = await signAnswer(context, step, client)
  const { candidateId } = await step(
    'submit',
    async () => admittedAs(await send(), 202),
    (accepted) => `202 of gateway 2, which does not lead: candidate ${accepted.candidateId}`,
  )
  const target = { candidateId, identifier: client.question.question_id }
  await step(
    'select',
    followTo(client, target, 'selected'),
    () => 'gateway 1 selected it for this round; gateway 2 reports it too',
  )
  await step('kill', leader.process.stop, () => 'gateway 1 is killed with SIGKILL')
  await step(
    'takeover',
    () => untilLeads(scene, other),
    () => 'its lease has ended, and gateway 2 leads',
  )
  const executed = await step(
    'execute',
    followTo(client, target),
    (status) => `on chain and final: transaction ${hashOf(status)}`,
  )
  await step(
    'once',
    () => provenOnce(scene, client, executed.submission?.transaction_hash),
    () => 'the chain has one proposal for this round, and the log one transaction slot',
  )
  await replayStep(step, send, candidateId)
}

/** Rejects with FailedError `demo_failed` where the round was proposed for more than once. */
async function provenOnce(
  { database, dev }: Scene,
  { chain }: Awaited<ReturnType<typeof openClient>>,
  hash: string | null | undefined,
): Promise<void> {
  const head = await chain.block('latest')
  const events = await chain.logs({
    fromBlock: 0n,
    toBlock: head?.number ?? 0n,
    addresses: dev.trust.oracles,
    topics: [topics.proposePrice],
  })
  if (events.length !== 1 || events[0]?.transactionHash !== hash)
    throw differs(`the chain has ${events.length} proposals, not one`)
  const slots = await database.query('SELECT id FROM proposer.slot')
  if (slots.length !== 1) throw differs(`the log has ${slots.length} slots, not one`)
}
