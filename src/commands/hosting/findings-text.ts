/** Findings of checks as people read them (contract §6). */
import type { Finding } from '#checks/finding'
import type { Context } from '../terminal/context.js'
import type { Screen } from '../terminal/output.js'
import { fold } from '../terminal/render.js'

/** The findings with fixes that act on what was examined, wherever they are pasted. */
export const withPastedFixes = (
  { pasted = (text) => text }: Pick<Context, 'pasted'>,
  findings: readonly Finding[],
): readonly Finding[] => findings.map((one) => ({ ...one, fix: pasted(one.fix) }))

/** Many of one kind that pass are counted only, so that what is wrong stands out. */
export const passesCounted = (findings: readonly Finding[]): readonly Finding[] =>
  findings.flatMap((finding) => {
    if (finding.result !== 'pass') return [finding]
    const group = findings.filter(({ id, result }) => result === 'pass' && id === finding.id)
    if (group[0] !== finding) return []
    const detail = `all ${group.length} checks passed (--json lists them)`
    return [group.length === 1 ? finding : { ...finding, detail }]
  })

const shown = {
  pass: ['ok  ', 'green'],
  note: ['note', 'gray'],
  warn: ['WARN', 'yellow'],
  fail: ['FAIL', 'red'],
  skip: ['skip', 'gray'],
} as const

/**
 * A line each, in the order in which things were examined. What was skipped for one reason is
 * reported once, and a fix that stands above is not repeated.
 */
export function findingsText(
  findings: readonly Finding[],
  { columns, paint }: Pick<Screen, 'columns' | 'paint'>,
): string {
  const merged: Finding[] = []
  for (const one of findings) {
    const last = merged.at(-1)
    const isLike = last?.result === 'skip' && one.result === 'skip' && last.detail === one.detail
    if (isLike) merged[merged.length - 1] = { ...last, id: `${last.id}, ${one.id}` }
    else merged.push(one)
  }
  const folded = (text: string) => fold(text, columns - 6, '      ')
  return merged
    .flatMap(({ result, id, detail, fix }, at) => {
      const [word, colour] = shown[result]
      const isNew = fix !== '' && fix !== merged[at - 1]?.fix
      return [
        `${paint[colour](word)}  ${folded(`${id}: ${detail}`)}`,
        ...(isNew ? [`      ${folded(`fix: ${fix}`)}`] : []),
      ]
    })
    .join('\n')
}
