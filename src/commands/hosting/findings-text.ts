/** Findings of checks as people and programs read them. */
import type { Finding } from '../../core/checks/finding.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { fold } from '../terminal/render.js'

/** The findings with fixes that act on what was examined, wherever they are pasted. */
export const withPastedFixes = (
  { pasted = (text) => text }: Pick<Context, 'pasted'>,
  findings: readonly Finding[],
): readonly Finding[] => findings.map((one) => ({ ...one, fix: pasted(one.fix) }))

/** The document of `serve --check --json`. Its keys are a promise: new ones may come. */
export function checkReport(findings: readonly Finding[]) {
  const of = (result: Finding['result']) => findings.filter((one) => one.result === result)
  const plain = ({ id, detail }: Finding) => ({ check: id, detail })
  const mended = ({ id, detail, fix }: Finding) => ({ check: id, detail, hint: fix })
  return {
    ok: of('fail').length === 0,
    faults: of('fail').map(mended),
    warnings: of('warn').map(mended),
    told: of('note').map(plain),
    right: of('pass').map(plain),
  }
}

const shown = {
  pass: { word: 'ok  ', paint: 'green' },
  note: { word: 'note', paint: 'gray' },
  warn: { word: 'WARN', paint: 'yellow' },
  fail: { word: 'FAIL', paint: 'red' },
  skip: { word: 'skip', paint: 'gray' },
} as const

/** One finding, with its fix below. */
export function findingText(
  { result, id, detail, fix }: Finding,
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
): string {
  const folded = (text: string) => fold(text, columns - 6, '      ')
  const mend = fix === '' ? '' : `\n      ${folded(`fix: ${fix}`)}`
  return `${paint[shown[result].paint](shown[result].word)}  ${folded(`${id}: ${detail}`)}${mend}`
}

/**
 * A line each, in the order in which things were examined. Many of one kind that pass are counted
 * only, so that what is wrong stands out.
 */
export function findingsText(
  findings: readonly Finding[],
  output: Pick<Output, 'columns' | 'paint'>,
): string {
  return findings
    .flatMap((finding) => {
      const isLike = ({ id, result }: Finding) => result === 'pass' && id === finding.id
      const group = finding.result === 'pass' ? findings.filter(isLike) : [finding]
      if (group[0] !== finding) return []
      const detail = `all ${group.length} checks passed (--json lists them)`
      return [findingText(group.length === 1 ? finding : { ...finding, detail }, output)]
    })
    .join('\n')
}
