/** What became of an executed proposal, for people and as JSON (contract §9, `positions`). */
import {
  isContestedState,
  type LastPosition,
  type LastPositions,
  lastPositions,
} from '#client/positions/last-known'
import type { ReconciledEntry } from '#client/wallet/advice'
import { amountText } from '#protocol/amount'
import type { Context } from './context.js'
import { timeText, visible } from './render.js'

/** As the chain was last read. */
export const lastKnown = ({ files, output }: Context, home: string) =>
  lastPositions({ files, home }, (text) => output.note(`note: ${visible(text)}`))

/** With the names that contract §9 gives the rows of `positions`; `null` where it is not known. */
export function positionData({ position }: Pick<ReconciledEntry, 'position'>) {
  if (position === undefined) return null
  const { state, result, terms, hasNewRound } = position
  return {
    state,
    result,
    disputed_by: terms.disputer ?? null,
    new_round: hasNewRound,
    disputable_until: String(terms.disputableUntil),
    bond: String(terms.bondRaw),
    final_fee: String(terms.finalFeeRaw),
  }
}

export function positionText({ state, result, disputed_by: by, as_of: at }: LastPosition) {
  const ended = result === null ? '' : `, ${result}`
  const whom = by === null ? '' : ` by ${by}`
  return `${state ?? 'not known'}${ended}${whom} (${timeText(at)})`.replaceAll('_', ' ')
}

export function contestedLines(last: LastPositions) {
  const contested = [...last.values()].filter(({ state }) => isContestedState(state))
  if (contested.length === 0) return []
  const newRounds = contested.filter(({ new_round: isOpen }) => isOpen === true).length
  const what = `${contested.length} of your executed proposals ${contested.length === 1 ? 'is' : 'are'} disputed`
  const open = newRounds === 0 ? '' : `, ${newRounds} with a new round`
  return [`${what}${open}: proposer positions --open`]
}

export function nextLines({
  next,
  rewardFell,
  standing,
}: Pick<ReconciledEntry, 'next' | 'rewardFell' | 'standing'>) {
  const { command } = next
  const amount = (raw: bigint) => amountText(String(raw), standing?.now.round?.token)
  return [
    rewardFell &&
      `the reward is ${amount(rewardFell.nowRaw)} now; it was ${amount(rewardFell.signedRaw)} when this was signed`,
    `next: ${next.text}`,
    command !== undefined && (() => `  ${visible(command)}`),
  ]
}
