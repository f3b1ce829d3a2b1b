/** The input of a batch: a file, or stdin kept on disk for a second reading. */
import type { Command } from 'commander'
import { Option } from 'commander'
import {
  type BatchFormat,
  type BatchSource,
  batchFormats,
  inputLimits,
  tooLarge,
} from '../../core/client/input/rows.js'
import { fromCwd } from '../../core/io/home-paths.js'
import type { FileHandle } from '../../core/ports.js'
import { UsageError } from '../../core/protocol/errors.js'
import { hexOf, joinPath, writeAll } from '../../core/storage/durable.js'
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

/**
 * Opens the input, hands it over, and lets it go whatever comes. Throws UsageError
 * `input_unreadable`, `input_too_large` (exit 2).
 */
export async function withSource<T>(
  context: Context,
  home: string,
  path: string,
  use: (source: BatchSource) => Promise<T>,
): Promise<T> {
  const handle = path === '-' ? await spoolStdin(context, home) : await openNamed(context, path)
  try {
    return await use({
      name: path === '-' ? 'stdin' : path,
      read: (position, length) => readAt(handle, path, position, length),
    })
  } finally {
    await handle.close()
  }
}

async function readAt(
  handle: FileHandle,
  path: string,
  position: number,
  length: number,
): Promise<Uint8Array> {
  try {
    return await handle.read(position, length)
  } catch (error) {
    throw unreadable(path, error)
  }
}

async function openNamed(context: Context, path: string): Promise<FileHandle> {
  try {
    return await context.files.open(fromCwd(context.cwd, path), 'read')
  } catch (error) {
    throw unreadable(path, error)
  }
}

function unreadable(path: string, error: unknown): UsageError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable'
  return new UsageError('input_unreadable', `${path} cannot be read (${code})`, {
    cause: error,
    // A pipe can be read once only; stdin is kept for the second reading.
    hint:
      code === 'ESPIPE'
        ? 'hand a pipe over as stdin, with - for the file'
        : 'give the path of a readable file, or - for stdin',
  })
}

/**
 * Stdin in a file of mode 0600 that has no name from the start: whatever becomes of this process,
 * nothing of it stays.
 */
async function spoolStdin(context: Context, home: string): Promise<FileHandle> {
  const { files, random } = context
  await files.makeDir(home)
  const path = joinPath(home, `spool-${hexOf(random.bytes(8))}.tmp`)
  const handle = await files.open(path, 'exclusive')
  try {
    await files.remove(path)
    let bytes = 0
    for await (const chunk of context.stdin) {
      const piece = typeof chunk === 'string' ? new TextEncoder().encode(chunk) : chunk
      bytes += piece.length
      if (bytes > inputLimits.bytes) throw tooLarge({ name: 'stdin' })
      await writeAll(handle, piece)
    }
    return handle
  } catch (error) {
    await handle.close()
    throw error
  }
}
