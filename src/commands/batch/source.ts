/** The input of a batch: a file, a pipe or stdin, read once. */
import { type BatchSource, batchFormats, inputLimits } from '#client/input/rows'
import { readInput } from '../session/inputs.js'
import type { Context } from '../terminal/context.js'

/** For inputs that neither name nor first byte tell about. */
export const formatFlag = {
  '--format <format>': {
    about: 'input format; default: from extension or first byte',
    choices: batchFormats,
  },
} as const

export const readSource = async (context: Context, path: string): Promise<BatchSource> => ({
  name: path === '-' ? 'stdin' : path,
  bytes: await readInput(context, path, undefined, inputLimits.bytes),
})
