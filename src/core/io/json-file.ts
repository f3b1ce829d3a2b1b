import { resolve } from 'node:path'
import type { Machine } from '#ports'
import { UsageError } from '#protocol/errors'
import { errorCode } from '#storage/failures'

export const maximumInputBytes = 4 * 1024 * 1024

export const inputTooLarge = (name: string, most: number) =>
  new UsageError(
    'input_too_large',
    `${name} holds more than ${most} bytes`,
    most > maximumInputBytes
      ? 'split it into several files'
      : 'give the file that this command is meant for',
  )

export async function readInputFile(
  { files, cwd }: Pick<Machine, 'files' | 'cwd'>,
  path: string,
  hint: string,
  most: number = maximumInputBytes,
) {
  const file = resolve(cwd, path)
  try {
    const bytes = await files.read(file).catch(async (error: unknown) => {
      if (errorCode(error) !== 'ESPIPE') throw error
      // A pipe: `--config <(…)`.
      const { readNamed } = await import('./files.js')
      return readNamed(file, most)
    })
    if (bytes.length > most) throw inputTooLarge(path, most)
    return bytes
  } catch (error) {
    if (error instanceof UsageError) throw error
    const code = errorCode(error) ?? 'unreadable'
    if (code === 'EFBIG') throw inputTooLarge(path, most)
    throw new UsageError('input_unreadable', `${path} cannot be read (${code})`, {
      cause: error,
      hint,
    })
  }
}

/** Errors name the input, never its content (R5). */
export function parseJsonInput(bytes: Uint8Array, name: string, hint: string): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    // The parser's message quotes the input.
    throw new UsageError('input_not_json', `${name} is not JSON in UTF-8`, hint)
  }
}

export const jsonHint = 'correct the file: JSON takes no comments and no comma before a bracket'

export const readJsonFile = async (
  machine: Pick<Machine, 'files' | 'cwd'>,
  path: string,
  missing: string,
) => parseJsonInput(await readInputFile(machine, path, missing), path, jsonHint)
