/**
 * Checks as JUnit XML, or as a calm list. All text of the gateway is escaped (R20).
 */
import type { CheckResult } from '../../core/conformance/run.js'
import type { Output } from '../terminal/output.js'
import { counted, fold, visible } from '../terminal/render.js'

export interface Summary {
  readonly total: number
  readonly passed: number
  readonly failed: number
  readonly skipped: number
}

/** How many ended how. */
export function summaryOf(checks: readonly CheckResult[]): Summary {
  const count = (result: CheckResult['result']) =>
    checks.filter((check) => check.result === result).length
  return {
    total: checks.length,
    passed: count('pass'),
    failed: count('fail'),
    skipped: count('skip'),
  }
}

/** XML 1.0 has no way to write most control characters; `visible` has spelled them out. */
const xml = (text: string) =>
  visible(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)

/** One suite; sections are class names. */
export function junitText(checks: readonly CheckResult[], seconds: number): string {
  const { total, failed, skipped } = summaryOf(checks)
  const cases = checks.map(({ id, section, result, detail }) => {
    const start = `    <testcase classname="${xml(section)}" name="${xml(id)}"`
    if (result === 'pass') return `${start}/>`
    const inner =
      result === 'skip'
        ? `<skipped message="${xml(detail)}"/>`
        : `<failure message="${xml(detail)}">${xml(detail)}</failure>`
    return `${start}>\n      ${inner}\n    </testcase>`
  })
  const counts = `tests="${total}" failures="${failed}" skipped="${skipped}" time="${seconds.toFixed(3)}"`
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="proposer conformance" ${counts}>`,
    `  <testsuite name="conformance" ${counts}>`,
    ...cases,
    '  </testsuite>',
    '</testsuites>',
    '',
  ].join('\n')
}

/** A line for people; what failed or was left out says why, and notes follow. */
export function listLine(
  { id, result, detail, notes = [] }: CheckResult,
  { paint, columns, isTerminal }: Output,
): string {
  const mark = { pass: paint.green('ok  '), fail: paint.red('FAIL'), skip: paint.dim('skip') }[
    result
  ]
  const lines = [...(result === 'pass' ? [] : [detail]), ...notes.map((note) => `note: ${note}`)]
  // What a program reads stays on its line.
  const width = isTerminal ? columns : Number.POSITIVE_INFINITY
  return `${mark}  ${visible(id)}\n${lines.map((text) => `${fold(visible(text), width, '      ')}\n`).join('')}`
}

export function summaryText({ total, passed, failed, skipped }: Summary): string {
  return `${counted(total, 'check')}: ${passed} passed, ${failed} failed, ${skipped} skipped`
}
