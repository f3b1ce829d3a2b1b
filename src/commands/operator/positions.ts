/**
 * `operator positions`: what became of the executions of a store, by proposer, read from the chain
 * (contract §9). It advises; what follows from it is the operator's.
 */
import { Command } from 'commander'
import { aggregating } from '../../core/chain/aggregate.js'
import { configuredContracts } from '../../core/gateway/config.js'
import {
  countStates,
  type Execution,
  type ExecutionState,
  type ExecutionStates,
  type PositionCounts,
  readExecutionStates,
} from '../../core/gateway/operator/positions.js'
import { createDecisions } from '../../core/gateway/status/listing.js'
import { expectedChain } from '../../core/host/config-file.js'
import { yieldToEvents } from '../../core/io/serving/load.js'
import { ChainError } from '../../core/ports.js'
import { givenAddress } from '../../core/protocol/address.js'
import type { Address } from '../../core/protocol/schema.js'
import { sinceMs } from '../session/list-flags.js'
import type { Context } from '../terminal/context.js'
import { counted, fold, visible } from '../terminal/render.js'
import { type Column, tableText, wideOption } from '../terminal/table.js'
import { look, type Site, type StoreView, siteOf } from './access.js'
import { decisionOf, printRows } from './lists.js'
import { saidText } from './said.js'

interface PositionFlags {
  readonly since?: string
  readonly proposer?: string
  readonly wide?: boolean
}

export const executionPositionsCommand = (context: Context) =>
  new Command('positions')
    .description('show what became of the executed proposals, by proposer: disputed, won, lost')
    .option('--since <time>', 'only executions since then: an age such as 24h, or a time')
    .option('--proposer <address>', 'only executions of this wallet')
    .option(...wideOption)
    .addHelpText(
      'after',
      '\nThe node is asked for the logs of these proposals, up to the finalized block. What it does not report is\ncounted as unknown. Nothing is changed: who stays on the allowlist is for you to decide.\n\nExample:\n  proposer operator positions --since 30d',
    )
    .action(async (own: PositionFlags, command: Command) => {
      const site = await siteOf(context, command)
      const since = sinceMs(own.since, context.clock.nowMs())
      const proposer =
        own.proposer === undefined ? undefined : givenAddress(own.proposer, '--proposer')
      const decisions = createDecisions()
      const { output } = context
      await look(context, site, [decisions], async (view) => {
        const executions = await executionsOf(view, since, proposer)
        const found = await readAll(context, site, executions)
        const rows = rowsOf(executions, found).map(({ proposer: address, ...counts }) => ({
          proposer: address,
          ...counts,
          advice: adviceOn(site, view, address, counts),
          allowlist: {
            allowed: view.ledger.eligible(address),
            ...decisionOf(decisions.wallets.get(address), 'listed in the configuration'),
          },
        }))
        const totals = withShare(countStates([...found.states.values()]))
        const read = {
          store: site.store,
          from_block: found.fromBlock === null ? null : String(found.fromBlock),
          through_block: found.throughBlock === null ? null : String(found.throughBlock),
          fault: found.fault ?? null,
          totals,
        }
        if (found.fault !== undefined)
          output.warning('state_unavailable', `the chain was not read to the end: ${found.fault}`)
        printRows(output, 'operator-positions', rows, read, { ...read, proposers: rows }, () =>
          positionsText(rows, totals, own.wide, output),
        )
      })
    })

/** Executed candidates, the oldest first. */
async function executionsOf(
  { ledger }: StoreView,
  sinceMs: number,
  proposer: Address | undefined,
): Promise<readonly Execution[]> {
  const found: { readonly atMs: number; readonly execution: Execution }[] = []
  for (const { id, status, roundKey } of ledger.newest()) {
    if (status !== 'executed') continue
    const candidate = await ledger.get(id)
    if (candidate?.progress.status !== 'executed') continue
    const { transactionHash, indexedAtMs, submittedAtMs } = candidate.progress.submission
    const atMs = indexedAtMs ?? submittedAtMs ?? candidate.receivedAtMs
    if (atMs < sinceMs || candidate.proposer !== (proposer ?? candidate.proposer)) continue
    const { price } = candidate
    const execution = { proposer: candidate.proposer, price, roundKey, transactionHash }
    found.push({ atMs, execution })
  }
  return found.sort((one, other) => one.atMs - other.atMs).map(({ execution }) => execution)
}

/** Bounded by --timeout, after which the rest is unknown. */
async function readAll(
  context: Context,
  { loaded: { config }, timeoutMs }: Site,
  executions: readonly Execution[],
): Promise<ExecutionStates> {
  if (executions.length === 0)
    return { states: new Map(), fromBlock: null, throughBlock: null, fault: undefined }
  const { clock, signal, output } = context
  const late = new AbortController()
  const over = new AbortController()
  if (timeoutMs !== undefined)
    clock.sleep(timeoutMs, over.signal).then(
      () => late.abort(new ChainError('unavailable', 'the time limit (--timeout) was reached')),
      () => undefined, // it was read in time
    )
  const progress = output.progress('reading the chain')
  try {
    const chain = await context.edges.chain(config.chain.rpc_urls, expectedChain(config))
    return await readExecutionStates(
      {
        chain: aggregating(chain, yieldToEvents),
        contracts: configuredContracts(config),
        signal: AbortSignal.any([signal, late.signal]),
        onProgress: (block, last) => progress.update(`logs up to block ${block} of ${last}`),
      },
      executions,
    )
  } finally {
    over.abort()
    progress.stop()
  }
}

type Counts = PositionCounts & { readonly disputed_share: number | null }
type Row = Counts & {
  readonly proposer: Address
  readonly advice: string | null
  readonly allowlist: {
    readonly allowed: boolean
    readonly reason: string
    readonly by: string | null
  }
}

/** Of the executions whose state is known, rounded to a hundredth of a percent; null without any. */
function withShare(counts: PositionCounts): Counts {
  const known = counts.executed - counts.unknown
  const share = known === 0 ? null : Math.round((counts.disputed / known) * 10_000) / 10_000
  return { ...counts, disputed_share: share }
}

/** The most disputed first. */
function rowsOf(executions: readonly Execution[], { states }: ExecutionStates) {
  const byProposer = new Map<Address, ExecutionState[]>()
  for (const { proposer, roundKey } of executions) {
    const found = byProposer.get(proposer) ?? []
    byProposer.set(proposer, found)
    found.push(states.get(roundKey) ?? 'unknown')
  }
  return [...byProposer]
    .map(([proposer, found]) => ({ proposer, ...withShare(countStates(found)) }))
    .sort((one, other) => other.disputed - one.disputed || other.executed - one.executed)
}

/** What a dispute is a reason to look at; null without one. */
function adviceOn(
  { named }: Site,
  { ledger }: StoreView,
  proposer: Address,
  { disputed, executed, unknown, won, lost }: Counts,
): string | null {
  if (disputed === 0) return null
  const parts = [
    [lost, 'lost'],
    [won, 'won'],
    [disputed - won - lost, 'without an end yet'],
  ] as const
  const ends = parts.flatMap(([count, what]) => (count === 0 ? [] : `${count} ${what}`)).join(', ')
  const said = `disputed ${disputed} of ${executed - unknown}: ${ends}`
  return ledger.eligible(proposer)
    ? `${said}; see its line in ${named('list')}; ${named(`disallow ${proposer}`)} removes it`
    : `${said}; it is off the list`
}

const percent = (share: number | null) =>
  share === null ? null : `${(share * 100).toFixed(share === 0 ? 0 : 1)}%`
const numeric = (head: string, cell: (row: Row) => number, rank?: number): Column<Row> => ({
  head,
  right: true,
  cell: (row) => String(cell(row)),
  ...(rank === undefined ? {} : { rank }),
})

const columns: readonly Column<Row>[] = [
  { head: 'proposer', cell: ({ proposer }) => proposer, least: 10 },
  numeric('executed', ({ executed }) => executed),
  numeric('open', ({ open }) => open, 2),
  numeric('undisputed', ({ undisputed }) => undisputed, 3),
  numeric('disputed', ({ disputed }) => disputed),
  numeric('won', ({ won }) => won, 1),
  numeric('lost', ({ lost }) => lost),
  numeric('unknown', ({ unknown }) => unknown, 1),
  { head: 'share', right: true, cell: (row) => percent(row.disputed_share), rank: 2 },
  { head: 'allowed', cell: ({ allowlist }) => (allowlist.allowed ? 'yes' : 'no'), rank: 3 },
  {
    head: 'listed because',
    cell: ({ allowlist }) => visible(saidText(allowlist.reason, allowlist.by)),
    wide: true,
  },
]

function positionsText(
  rows: readonly Row[],
  totals: Counts,
  wide: boolean | undefined,
  output: Context['output'],
): string {
  if (rows.length === 0) return 'nothing has been executed'
  const share = percent(totals.disputed_share)
  const sum = `${counted(totals.executed, 'execution')}: disputed ${totals.disputed}${share === null ? '' : ` (${share})`}, lost ${totals.lost}, unknown ${totals.unknown}`
  const advice = rows.flatMap(({ proposer, advice }) =>
    advice === null ? [] : `${proposer}: ${advice}`,
  )
  return [
    tableText(columns, rows, output, wide),
    ...[sum, ...advice].map((line) => fold(line, output.columns, '  ')),
  ].join('\n')
}
