/** For `doctor`, `serve --check` and `trust verify` alike (contract §6). */
import { InterruptedError, ProposerError } from '#protocol/errors'

export interface Finding {
  /** Several findings may share it. */
  readonly id: string
  /** `warn` leaves a program that works, `skip`: it could not be checked. */
  readonly result: 'pass' | 'note' | 'warn' | 'fail' | 'skip'
  /** One sentence; outside text in it is the printer's to escape. */
  readonly detail: string
  readonly fix: string
}

export type Found = Finding | undefined | readonly (Finding | undefined)[]

export const listed = (found: Found): readonly Finding[] =>
  [found].flat().filter((one) => one !== undefined)

export const graded = (
  off: number,
  [least, most]: readonly [least: number, most: number],
  ...[id, detail, fix]: Parameters<typeof warn>
) => (off > most ? fail(id, detail, fix) : off > least ? warn(id, detail, fix) : pass(id, detail))

const finding =
  (result: Finding['result']) =>
  (id: string, detail: string, fix = '') => ({ id, result, detail, fix })

export const pass: (id: string, detail: string) => Finding = finding('pass')
export const note: (id: string, detail: string) => Finding = finding('note')
export const skip: (id: string, detail: string, fix: string) => Finding = finding('skip')
export const warn: (id: string, detail: string, fix: string) => Finding = finding('warn')
export const fail: (id: string, detail: string, fix: string) => Finding = finding('fail')

export async function guarded(
  id: string,
  run: () => Promise<Found>,
  fix = 'fix what the detail names',
): Promise<readonly Finding[]> {
  try {
    return listed(await run())
  } catch (error) {
    // Who stops it is told so (contract §9).
    if (!(error instanceof ProposerError) || error instanceof InterruptedError) throw error
    return [fail(id, error.detail, error.meta.hint ?? fix)]
  }
}
