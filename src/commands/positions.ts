/** `positions` and `pnl`: what became of executed proposals and their bonds (contract §9, domain §10). */

import { aggregating } from '#chain/aggregate'
import { isContestedState } from '#client/positions/last-known'
import {
  type Position,
  type PositionParts,
  type Positions,
  type PositionTotals,
  readPnl,
  readPositions,
} from '#client/positions/positions'
import { runHook } from '#io/hook'
import { yieldToEvents } from '#io/serving/load'
import type { Chain } from '#ports'
import { givenAddress } from '#protocol/address'
import { instant } from '#protocol/candidate'
import { FailedError, PendingError, ProposerError, UsageError } from '#protocol/errors'
import { answerText } from '#protocol/outcome-words'
import { type PinnedUnits, pinnedUnits } from './session/question.js'
import { requireChain, type Session, sessionVerb } from './session/session.js'
import { flagInstantMs, signerFlags } from './session/settings.js'
import { apart, csvText, type Output, type Rows, table, together } from './terminal/output.js'
import {
  amountText,
  type Column,
  counted,
  durationText,
  jsonText,
  type TokenUnits,
  timeText,
  visible,
} from './terminal/render.js'
import type { FlagsOf } from './terminal/verb.js'

const walletFlag = {
  '--wallet <address...>': 'of these wallets; default: all that have signed in this home',
} as const

const positionFlags = {
  ...signerFlags,
  ...walletFlag,
  '--open': 'only positions that are not settled',
  '--watch': 'keep looking, and print a line for every change',
  '--fail-on-dispute': 'exit 7 if a proposal is disputed, 8 if that is not known',
  '--exec <program>': 'with --watch: run this program for each dispute; it reads one line of JSON',
  '--since <time>':
    'read the chain from then on: an age such as 30d, or a time; default: the first signature of this home',
} as const
type PositionFlags = FlagsOf<typeof positionFlags>

export const positionsCommand = sessionVerb({
  name: 'positions',
  about: 'show what became of executed proposals and where their bonds are',
  flags: positionFlags,
  help: 'Reads the logs of the oracle once and keeps them in the home folder; the next run reads what is new.',
  examples: [
    'positions --rpc-url http://127.0.0.1:8545',
    'positions --open --fail-on-dispute',
    'positions --watch --exec ./on-dispute.sh',
  ],
  async run(session, flags) {
    if (flags.exec !== undefined && flags.watch !== true)
      throw new UsageError(
        'exec_without_watch',
        '--exec is given without --watch',
        'add --watch, or leave out --exec',
      )
    const ms = flagInstantMs('--since', flags.since, session.clock.nowMs())
    const since = ms === undefined ? {} : { since: BigInt(Math.floor(ms / 1000)) }
    const wallets = await stakeWallets(session, flags.wallet)
    const chain = await requireChain(session, 'positions')
    const look = {
      units: await pinnedUnits(session),
      read: () => onStakes(session, chain, (parts) => readPositions(parts, wallets, since)),
    }
    if (flags.watch) return watchPositions(session, flags, look)
    const found = await look.read()
    const { positions, totals, notes, ...rest } = found
    const shown = flags.open ? positions.filter(isUnsettled) : positions
    for (const note of notes) session.output.remark(note)
    session.output.show(
      'positions',
      { positions: shown, totals, notes, ...rest },
      [
        apart([
          positionTable(shown, found, flags, look.units),
          ...totals.map((one) => totalsRows(one, look.units)),
        ]),
      ],
      { items: shown, summary: { positions: shown.length, totals, notes, ...rest } },
    )
    if (flags.failOnDispute) failOnDispute(positions)
  },
})

export const pnlCommand = sessionVerb({
  name: 'pnl',
  about: 'show what proposals earned and lost, from the logs of the oracle',
  flags: {
    ...signerFlags,
    ...walletFlag,
    '--from <time>': 'from then on: an age such as 30d, or a time',
    '--to <time>': 'up to then',
    '--csv': 'print every movement as CSV (RFC 4180)',
  },
  help: 'Every movement has its transaction and log index. Amounts of --csv and --json are raw token units.\nEnds with 8 if no log shows what this home has executed: sums are not known then.',
  examples: [
    'pnl --rpc-url http://127.0.0.1:8545',
    'pnl --from 2026-11-01 --to 2026-12-01 --csv > november.csv',
  ],
  async run(session, flags) {
    const { output, clock } = session
    const secondsOf = (flag: string, given: string | undefined) => {
      const ms = flagInstantMs(flag, given, clock.nowMs())
      return ms === undefined ? undefined : Math.max(0, Math.floor(ms / 1000))
    }
    const span = { from: secondsOf('--from', flags.from), to: secondsOf('--to', flags.to) }
    if ((span.from ?? 0) >= (span.to ?? Infinity))
      throw new UsageError('empty_span', '--from is not before --to', 'swap them, or omit one')
    const wallets = await stakeWallets(session, flags.wallet)
    const chain = await requireChain(session, 'pnl')
    const units = await pinnedUnits(session)
    const { pnl, missing } = await onStakes(session, chain, (parts) =>
      readPnl(parts, wallets, span),
    )
    const { rows: items, ...rest } = pnl
    for (const note of rest.notes) output.remark(note)
    if (flags.csv) output.text(csvText(movementColumns, items))
    else
      output.show('pnl', pnl, [apart(rest.totals.map((one) => pnlRows(one, units)))], {
        items,
        summary: { rows: items.length, ...rest },
      })
    requireShown(missing.map(({ signed }) => signed))
  },
})

async function stakeWallets(session: Session, named: readonly string[] | undefined) {
  if (named !== undefined) return [...new Set(named.map((one) => givenAddress(one, '--wallet')))]
  const { chain_id } = await session.trust()
  const { authorizations } = await session.journal.load()
  const signed = authorizations.flatMap(({ signed: { chainId, terms } }) =>
    chainId === chain_id ? terms.proposer : [],
  )
  return signed.length === 0 ? [await session.account.address()] : [...new Set(signed)]
}

const onStakes = <T>(session: Session, chain: Chain, read: (parts: PositionParts) => Promise<T>) =>
  session.output.during('reading the logs of the oracle', async (progress) =>
    read({
      ...session,
      home: session.settings.home.value,
      chain: aggregating(chain, yieldToEvents),
      trust: await session.trust(),
      view: await session.journal.load(),
      signal: session.until,
      onProgress: (block, head) => progress.update(`reading logs: block ${block} of ${head}`),
    }),
  )

export function failOnDispute(positions: readonly Position[]) {
  const contested = positions.filter(({ state }) => isContestedState(state))
  const [first] = contested
  if (first === undefined) {
    // What nobody knows is not clean.
    const unknown = positions.filter(({ state }) => state === null)
    requireShown(unknown.map((one) => ({ identifier: one.slug ?? one.question_id })))
    return
  }
  const id = first.slug ?? first.question_id
  throw new FailedError(
    'proposal_disputed',
    contested.length === 1
      ? `the proposal for ${id ?? 'a question'} is disputed`
      : `${contested.length} proposals are disputed`,
    id === null ? {} : `\`proposer reconcile ${id}\` says what to do`,
  )
}

export function requireShown(unknown: readonly { readonly identifier: string | null }[]) {
  const [first, ...more] = unknown
  if (first === undefined) return
  const id = first.identifier ?? '<identifier>'
  throw new PendingError(
    'positions_unknown',
    `the node does not show what became of ${more.length === 0 ? `the proposal for ${id}` : `${more.length + 1} proposals`}`,
    `\`proposer reconcile ${id}\` looks at its round; ask another node with --rpc-url`,
  )
}

const movementColumns =
  'at kind question_id slug wallet token amount net result transaction_hash log_index'.split(' ')

const unitsOf = (units: readonly PinnedUnits[], token: string | null) =>
  units.find(({ address }) => address === token)

function sumRows(
  one: { readonly wallet: string; readonly token: string },
  units: readonly PinnedUnits[],
  rows: (amount: (raw: string | null, text?: typeof signedText) => string) => Rows,
): Rows {
  const token = unitsOf(units, one.token)
  return [
    ['wallet', one.wallet],
    ['token', token === undefined ? one.token : `${token.symbol} ${one.token}`],
    ...rows((raw, text = amountText) => (raw === null ? 'not known' : text(raw, token))),
  ]
}

type PnlTotals = Awaited<ReturnType<typeof readPnl>>['pnl']['totals'][number]

const pnlRows = (one: PnlTotals, units: readonly PinnedUnits[]) =>
  sumRows(one, units, (amount) => [
    ...(['proposed', 'undisputed', 'won', 'lost'] as const).map(
      (key) => [key, String(one[key])] as const,
    ),
    ['rewards', amount(one.rewards, signedText)],
    ['bonds lost', amount(one.bonds_lost, signedText)],
    ['net', amount(one.net, signedText)],
    ['locked', amount(one.locked, signedText).replace('+', '')],
    ['deferred', amount(one.deferred, signedText).replace('+', '')],
  ])

const totalsRows = (one: PositionTotals, units: readonly PinnedUnits[]) =>
  sumRows(one, units, (amount) => [
    ...(['free', 'reserved', 'bonded', 'disputed', 'claimable'] as const).map(
      (key) => [key, amount(one[key])] as const,
    ),
    ['earned', amount(one.net, signedText)],
  ])

const isUnsettled = ({ state }: Position) => state !== 'settled'

const states = {
  open: ['open', 'cyan'],
  awaiting_settlement: ['awaiting settlement', 'white'],
  disputed: ['disputed', 'red'],
  voting: ['vote open', 'red'],
  settled: ['settled', 'green'],
  deferred: ['payout deferred', 'yellow'],
} as const satisfies Readonly<Record<NonNullable<Position['state']>, readonly string[]>>

function stateText({ state, result, late }: Position) {
  if (state === null) return 'not known'
  return `${states[state][0]}${late ? ', late' : ''}${result === null ? '' : `, ${result}`}`
}

function colourOf({ state, result, late }: Position) {
  if (late || state === null) return 'yellow'
  return result === 'lost' ? 'red' : states[state][1]
}

function signedText(raw: string, units: TokenUnits | undefined) {
  const isNegative = raw.startsWith('-')
  const sign = isNegative ? '-' : raw === '0' ? '' : '+'
  return `${sign}${amountText(isNegative ? raw.slice(1) : raw, units)}`
}

const paid = ({ bond, final_fee }: Position) =>
  bond === null || final_fee === null ? null : String(BigInt(bond) + BigInt(final_fee))

function netOf(position: Position) {
  const stake = paid(position)
  if (position.payout === null || stake === null) return null
  return String(BigInt(position.payout) - BigInt(stake))
}

function whenText(position: Position, nowSeconds: number) {
  const { state, disputable_until: until, disputed_at, settled_at, executed_at } = position
  const ago = (seconds: number) =>
    seconds < 0 ? `in ${durationText(-seconds)}` : `${durationText(seconds)} ago`
  const at = (iso: string | null) =>
    iso === null ? null : ago(nowSeconds - Date.parse(iso) / 1000)
  if (state === 'open' && until !== null)
    return `disputable for ${durationText(Number(until) - nowSeconds)}`
  if (state === 'awaiting_settlement' && until !== null && disputed_at === null)
    return `since ${durationText(nowSeconds - Number(until))}`
  return at(settled_at) ?? at(disputed_at) ?? at(executed_at)
}

const nameOf = ({ slug, title, question_id, round_timestamp }: Position) =>
  slug ?? title ?? question_id ?? `round ${round_timestamp}`

function positionTable(
  positions: readonly Position[],
  { block_timestamp, since }: Positions,
  { open }: PositionFlags,
  units: readonly PinnedUnits[],
) {
  const nowSeconds = Number(block_timestamp)
  if (positions.length === 0)
    return together(
      since.map(
        ({ wallet, block_number }) =>
          `No ${open ? 'open ' : ''}proposals of ${wallet} since block ${block_number}.`,
      ),
    )
  const amount = (raw: string | null, { token }: Position, text: typeof signedText = amountText) =>
    raw && text(raw, unitsOf(units, token))
  const columns: readonly Column<Position>[] = [
    { head: 'question', least: 14, cell: nameOf },
    {
      head: 'answer',
      least: 8,
      cell: ({ outcome, label, price }) =>
        outcome === null ? price && `price ${price}` : answerText(outcome, label),
    },
    { head: 'bond', right: true, rank: 2, cell: (one) => amount(paid(one), one) },
    { head: 'state', cell: stateText, colour: colourOf },
    { head: 'when', rank: 3, cell: (one) => whenText(one, nowSeconds) },
    { head: 'result', right: true, rank: 1, cell: (one) => amount(netOf(one), one, signedText) },
    ...(since.length > 1 ? [{ head: 'wallet', rank: 4, cell: (one: Position) => one.wallet }] : []),
  ]
  return table(columns, positions)
}

function countsText(positions: readonly Position[]) {
  const contested = positions.filter(({ state }) => isContestedState(state)).length
  return `${counted(positions.length, 'position')}${contested === 0 ? '' : `, ${contested} disputed`}`
}

/** A round of Polygon is a few blocks by then. */
const lookEveryMs = 15_000

/** What is disputed at the beginning is told to the program too: better twice than never. */
async function watchPositions(
  session: Session,
  flags: PositionFlags,
  look: { readonly units: readonly PinnedUnits[]; read(): Promise<Positions> },
) {
  const { output, clock } = session
  const known = new Map<string, Position>()
  let last: Positions | undefined
  let isSilent = false
  try {
    for (;;) {
      const found = await look.read().catch((error: unknown) => {
        if (!(error instanceof ProposerError) || error.code !== 'chain_unavailable') throw error
        if (!isSilent) output.remark(`${error.detail}; looking again`)
        return undefined
      })
      isSilent = found === undefined
      if (found !== undefined) {
        const changes = changesIn(found, known, instant(clock.nowMs()))
        for (const note of found.notes) if (last?.notes.includes(note) !== true) output.remark(note)
        const isFirst = last === undefined
        const isShown = (one: Position) => !isFirst || flags.open !== true || isUnsettled(one)
        if (isFirst && output.isForPeople) {
          const shown = positionTable(found.positions.filter(isShown), found, flags, look.units)
          output.text(`${shown(output)}\n`)
        } else for (const change of changes) if (isShown(change.position)) tell(output, change)
        last = found
        if (flags.exec !== undefined) await tellProgram(session, flags.exec, changes)
        if (flags.failOnDispute) failOnDispute(found.positions)
      }
      await clock.sleep(lookEveryMs, session.until)
    }
  } catch (error) {
    const open = (last?.positions ?? []).filter(isUnsettled)
    const { totals = [], notes = [], positions = [] } = last ?? {}
    if (output.isForPeople) output.note(`${countsText(open)} not settled`)
    else
      output.line({
        schema: 'proposer.positions/1',
        summary: { positions: positions.length, open: open.length, totals, notes },
      })
    const isTime = error instanceof ProposerError && error.code === 'timed_out'
    if (!isTime) throw error
    if (last === undefined || open.length > 0)
      throw new PendingError(
        'positions_open',
        `${countsText(open)} open after --timeout`,
        '`proposer positions --open` shows them',
      )
  }
}

interface Change {
  readonly at: string
  readonly from: Position['state']
  readonly gone: boolean
  readonly position: Position
}

function tell(output: Output, change: Change) {
  const { position, ...rest } = change
  if (!output.isForPeople) return output.line({ ...rest, ...position })
  output.text(`${visible(`${timeText(rest.at)}  ${nameOf(position)}  ${changeText(change)}`)}\n`)
}

const hookLimitMs = 30_000

async function tellProgram(
  { cwd, env, output, until: signal }: Session,
  program: string,
  changes: readonly Change[],
) {
  for (const { position, at, from, gone } of changes) {
    if (gone || !isContestedState(position.state) || isContestedState(from)) continue
    const line = jsonText({ schema: 'proposer.position/1', at, from, ...position }, 0)
    const fault = await runHook(program, line, { cwd, env, timeoutMs: hookLimitMs, signal })
    if (fault !== undefined) output.warning('exec_failed', `--exec ${program} ${fault}`)
  }
}

const keyOf = ({ wallet, oracle, requester, round_timestamp, question_id, journal_id }: Position) =>
  [wallet, oracle, requester, round_timestamp, question_id, oracle === null && journal_id].join(' ')

const shownOf = ({ state, result, late, disputed_by, new_round, payout }: Position) =>
  JSON.stringify([state, result, late, disputed_by, new_round, payout])

function changesIn({ positions }: Positions, known: Map<string, Position>, at: string) {
  const changes: Change[] = []
  const gone = new Map(known)
  known.clear()
  for (const position of positions) {
    const key = keyOf(position)
    const before = gone.get(key)
    gone.delete(key)
    known.set(key, position)
    if (before === undefined || shownOf(before) !== shownOf(position))
      changes.push({ at, from: before?.state ?? null, gone: false, position })
  }
  for (const position of gone.values())
    changes.push({ at, from: position.state, gone: true, position })
  return changes
}

function changeText({ from, gone, position }: Change) {
  if (gone) return 'gone: its block was undone, or the node leaves it out'
  const by = isContestedState(position.state) ? ` by ${position.disputed_by}` : ''
  const round = position.new_round ? ', new round open' : ''
  const before = from === null ? '' : ` (was ${from.replaceAll('_', ' ')})`
  return `${stateText(position)}${by}${round}${before}`
}
