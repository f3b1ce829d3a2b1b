/** The input of a batch: a file, a pipe or stdin, read once. */
import type { Command } from 'commander'
import { Option } from 'commander'
import {
  type BatchFormat,
  type BatchSource,
  batchFormats,
  inputLimits,
} from '../../core/client/input/rows.js'
import { readInput } from '../session/inputs.js'
import type { Context } from '../terminal/context.js'

export interface FormatFlags {
  readonly format?: BatchFormat
}

/** `--format`, for inputs that neither name nor first byte tell about. */
export function addFormatFlag(command: Command): Command {
  return command.addOption(
    new Option('--format <format>', 'input format; default: from extension or first byte').choices(
      batchFormats,
    ),
  )
}

/** UsageError `input_unreadable`, `input_too_large` (exit 2). */
export const readSource = async (context: Context, path: string): Promise<BatchSource> => ({
  name: path === '-' ? 'stdin' : path,
  bytes: await readInput(context, path, undefined, inputLimits.bytes),
})
