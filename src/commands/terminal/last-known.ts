import { isContestedState, type LastPositions, lastPositions } from '#client/positions/last-known'
import type { Context } from './context.js'

export const lastKnown = ({ files, output }: Context, home: string) =>
  lastPositions({ files, home, onNote: (text) => output.remark(text) })

export function contestedLines(last: LastPositions) {
  const contested = [...last.values()].filter(({ state }) => isContestedState(state))
  if (contested.length === 0) return []
  const newRounds = contested.filter(({ new_round: isOpen }) => isOpen === true).length
  const what = `${contested.length} of your executed proposals ${contested.length === 1 ? 'is' : 'are'} disputed`
  const open = newRounds === 0 ? '' : `, ${newRounds} with a new round`
  return [`${what}${open}: proposer positions --open`]
}
