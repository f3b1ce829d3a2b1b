/** `--dry-run` of what writes or sends (contract §6). Signing and sending have own previews. */
import type { Context } from './context.js'
import { visible } from './render.js'

export const dryRunFlag = { '--dry-run': 'show what would be done; do nothing' } as const

/** `would` is a verb and its object, to be escaped here. */
export function showDryRun(context: Context, would: string, data: object = {}): undefined {
  context.output.result(
    'preview',
    { dry_run: true, would, ...data },
    () => `would ${visible(would)}`,
  )
}
