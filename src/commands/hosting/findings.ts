/**
 * What `serve --check` found: what is right, what is told, what is worth a look, and what keeps a
 * gateway from its work.
 */
import { ProposerError } from '../../core/protocol/errors.js'
import type { Output } from '../terminal/output.js'
import { fold } from '../terminal/render.js'

export interface Finding {
  /**
   * `told`: no fault, but good to know. A `warning` leaves a working gateway, a `fault` does not.
   */
  readonly result: 'right' | 'told' | 'warning' | 'fault'
  /** A stable name of what was looked at; several findings may share it. */
  readonly check: string
  /** One sentence. */
  readonly detail: string
  /** What to do; empty where nothing is to be done. */
  readonly hint: string
}

export const right = (check: string, detail: string): Finding => ({
  result: 'right',
  check,
  detail,
  hint: '',
})
export const told = (check: string, detail: string): Finding => ({
  result: 'told',
  check,
  detail,
  hint: '',
})
export const warning = (check: string, detail: string, hint: string): Finding => ({
  result: 'warning',
  check,
  detail,
  hint,
})
export const fault = (check: string, detail: string, hint: string): Finding => ({
  result: 'fault',
  check,
  detail,
  hint,
})

/**
 * The value of `work`, or the fault that the error of ours it threw amounts to. Other errors are
 * thrown on.
 */
export async function orFault<T>(
  check: string,
  findings: Finding[],
  work: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    findings.push(fault(check, error.detail, error.meta.hint ?? 'correct gateway.json'))
    return undefined
  }
}

/** The document of `--json`. Its keys are a promise: new ones may come. */
export function report(findings: readonly Finding[]) {
  const of = (result: Finding['result']) => findings.filter((finding) => finding.result === result)
  const plain = ({ check, detail }: Finding) => ({ check, detail })
  const mended = ({ check, detail, hint }: Finding) => ({ check, detail, hint })
  return {
    ok: of('fault').length === 0,
    faults: of('fault').map(mended),
    warnings: of('warning').map(mended),
    told: of('told').map(plain),
    right: of('right').map(plain),
  }
}

const words = { right: 'ok  ', told: 'note', warning: 'WARN', fault: 'FAIL' } as const
const paints = { right: 'green', told: 'gray', warning: 'yellow', fault: 'red' } as const

/**
 * The same for people: a line each, in the order in which things were looked at, with the fix
 * below. Many of one kind that are right are counted only, so that what is wrong stands out.
 */
export function findingsText(
  findings: readonly Finding[],
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
): string {
  const text = ({ result, check, detail, hint }: Finding) => {
    const fix = hint === '' ? '' : `\n      ${fold(`fix: ${hint}`, columns - 6, '      ')}`
    return `${paint[paints[result]](words[result])}  ${fold(`${check}: ${detail}`, columns - 6, '      ')}${fix}`
  }
  const alike = ({ check }: Finding) =>
    findings.filter((other) => other.result === 'right' && other.check === check)
  return findings
    .flatMap((finding) => {
      const group = finding.result === 'right' ? alike(finding) : [finding]
      if (group.length === 1) return [text(finding)]
      return group[0] === finding
        ? [text(right(finding.check, `all ${group.length} checks hold (--json tells each)`))]
        : []
    })
    .join('\n')
}
