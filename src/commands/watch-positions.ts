/** `positions --watch`: a line a change, and a program told of each dispute (contract §9). */
import { isContestedState } from '../core/client/positions/last-known.js'
import type { Positions } from '../core/client/positions/positions.js'
import type { Position } from '../core/client/positions/rows.js'
import { instant } from '../core/protocol/candidate.js'
import { PendingError, ProposerError } from '../core/protocol/errors.js'
import { type HookFlags, type PositionChange, tellProgram } from './dispute-hooks.js'
import type { Session } from './session/session.js'
import { failOnDispute, type Looker } from './session/stakes.js'
import type { Context } from './terminal/context.js'
import type { Output } from './terminal/output.js'
import {
  isUnsettledPosition,
  positionCountsText,
  positionName,
  positionsText,
  stateText,
} from './terminal/positions-text.js'
import { timeText, visible } from './terminal/render.js'

/** A round of Polygon is a few blocks by then. */
const lookEveryMs = 15_000

export interface WatchFlags extends HookFlags {
  readonly open?: boolean
  readonly failOnDispute?: boolean
  readonly wide?: boolean
}

/**
 * Looks until Ctrl-C, until --timeout, or with --fail-on-dispute until a dispute. What is disputed
 * at the beginning is told to the program too: twice is better than not at all.
 */
export async function watchPositions(
  context: Context,
  session: Session,
  flags: WatchFlags,
  look: Looker,
): Promise<void> {
  const { output, clock } = context
  const known = new Map<string, Position>()
  let last: Positions | undefined
  let isSilent = false
  try {
    for (;;) {
      const found = await look.read().catch((error: unknown) => {
        if (!(error instanceof ProposerError) || error.code !== 'chain_unavailable') throw error
        if (!isSilent) output.note(`note: ${visible(error.detail)}; looking again`)
        return undefined
      })
      isSilent = found === undefined
      if (found !== undefined) {
        const changes = changesIn(found, known, instant(clock.nowMs()))
        for (const note of found.notes)
          if (last?.notes.includes(note) !== true) output.note(`note: ${visible(note)}`)
        if (last === undefined) begin(context, flags, look, found, changes)
        else for (const change of changes) tell(output, change)
        last = found
        if (flags.exec !== undefined) await tellProgram(context, session, flags.exec, changes)
        if (flags.failOnDispute === true) failOnDispute(found.positions)
      }
      await clock.sleep(lookEveryMs, session.signal)
    }
  } catch (error) {
    const open = (last?.positions ?? []).filter(isUnsettledPosition)
    const { totals = [], notes = [] } = last ?? {}
    if (output.mode === 'human') output.note(`${positionCountsText(open)} not settled`)
    else
      output.line({
        schema: 'proposer.positions/1',
        summary: { positions: last?.positions.length ?? 0, open: open.length, totals, notes },
      })
    const isTime = error instanceof ProposerError && error.code === 'timed_out'
    if (!isTime) throw error
    if (last === undefined || open.length > 0)
      throw new PendingError('positions_open', `${positionCountsText(open)} open after --timeout`, {
        hint: '`proposer positions --open` shows them',
      })
  }
}

/** What there is at first: people see the table. */
function begin(
  { output }: Context,
  { open, wide }: WatchFlags,
  { units }: Looker,
  found: Positions,
  changes: readonly PositionChange[],
): void {
  const isShown = (position: Position) => open !== true || isUnsettledPosition(position)
  if (output.mode === 'human') {
    const how = { units, output, wide, isOpen: open === true }
    output.text(`${positionsText(found.positions.filter(isShown), found, how)}\n`)
  } else for (const change of changes) if (isShown(change.position)) tell(output, change)
}

function tell(output: Output, change: PositionChange): void {
  const { position, ...rest } = change
  if (output.mode !== 'human') output.line({ ...rest, ...position })
  else
    output.text(
      `${timeText(rest.at)}  ${visible(`${positionName(position)}  ${changeText(change)}`)}\n`,
    )
}

const keyOf = ({ wallet, oracle, requester, round_timestamp, question_id, journal_id }: Position) =>
  [wallet, oracle, requester, round_timestamp, question_id, oracle === null && journal_id].join(' ')

const shownOf = ({ state, result, late, disputed_by, new_round, payout }: Position) =>
  JSON.stringify([state, result, late, disputed_by, new_round, payout])

/** What is new or other than before; what a reorganisation took away is gone. */
function changesIn(
  { positions }: Positions,
  known: Map<string, Position>,
  at: string,
): PositionChange[] {
  const changes: PositionChange[] = []
  const now = new Map(positions.map((position) => [keyOf(position), position]))
  for (const [key, position] of now) {
    const before = known.get(key)
    if (before !== undefined && shownOf(before) === shownOf(position)) continue
    changes.push({ at, from: before?.state ?? null, gone: false, position })
  }
  for (const [key, position] of known)
    if (!now.has(key)) changes.push({ at, from: position.state, gone: true, position })
  known.clear()
  for (const [key, position] of now) known.set(key, position)
  return changes
}

function changeText({ from, gone, position }: PositionChange): string {
  if (gone) return 'gone: its block was undone, or the node leaves it out'
  const by = isContestedState(position.state) ? ` by ${position.disputed_by}` : ''
  const round = position.new_round === true ? ', new round open' : ''
  const before = from === null ? '' : ` (was ${from.replaceAll('_', ' ')})`
  return `${stateText(position)}${by}${round}${before}`
}
