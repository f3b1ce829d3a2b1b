/**
 * `--dry-run` of the verbs that write or send (contract §6). Signing and sending have previews of
 * their own.
 */
import type { Context } from './context.js'
import { visible } from './render.js'

export interface DryRunFlag {
  readonly dryRun?: boolean
}

export const dryRunFlag = { '--dry-run': 'show what would be done; do nothing' } as const
export const dryRunOption = ['--dry-run', dryRunFlag['--dry-run']] as const

/**
 * Prints `proposer.preview/1 {dry_run: true, would, …}`; for people one line. `would` is a verb and
 * its object, to be escaped here.
 */
export function showDryRun(context: Context, would: string, data: object = {}): undefined {
  context.output.result(
    'preview',
    { dry_run: true, would, ...data },
    () => `would ${visible(would)}`,
  )
}
