/** What comes in from outside a command: files, stdin, answers of the person at the terminal. */
import {
  inputTooLarge,
  jsonHint,
  maximumInputBytes,
  parseJsonInput,
  readInputFile,
} from '#io/json-file'
import { InterruptedError, UsageError } from '#protocol/errors'
import type { Context, InputStream } from '../terminal/context.js'
import { fold } from '../terminal/render.js'

/** Of stdin for `-`. UsageError `input_unreadable` (with `hint`), `input_too_large`. */
export const readInput = (
  context: Context,
  path: string,
  hint = 'give the path of a readable file, or - for stdin',
  most: number = maximumInputBytes,
) => (path === '-' ? readStdin(context, most) : readInputFile(context, path, hint, most))

async function readStdin(context: Context, most: number) {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of context.stdin) {
    const bytes = typeof chunk === 'string' ? new TextEncoder().encode(chunk) : chunk
    size += bytes.length
    if (size > most) throw inputTooLarge('stdin', most)
    chunks.push(bytes)
  }
  return Buffer.concat(chunks)
}

export const parseJson = (
  bytes: Uint8Array,
  name: string,
  hint = 'give the file as this program printed it',
) => parseJsonInput(bytes, name === '-' ? 'stdin' : name, hint)

export const readText = async (context: Context, path: string) =>
  new TextDecoder().decode(await readInput(context, path))

export const readJson = async (context: Context, path: string) =>
  parseJson(await readInput(context, path), path)

/** What a text holds: the whole of it as JSON, and each line that is an object by itself. */
export const jsonIn = (text: string) =>
  [text, ...text.split('\n').filter((line) => line.startsWith('{'))].flatMap((one): unknown[] => {
    try {
      return [JSON.parse(one)]
    } catch {
      // not this one; where none is JSON, whoever asks says so
      return []
    }
  })

/** Of a file that people write; `missing` is the hint where it cannot be read. */
export const readOwnJson = async (context: Context, path: string, missing?: string) =>
  parseJson(await readInput(context, path, missing), path, jsonHint)

/**
 * Without a terminal, or with --yes, nothing is asked: `yes` decides or --yes is named (exit 2).
 */
export async function confirm(context: Context, question: string, yes: boolean) {
  if (yes) return
  if (!context.isInteractive)
    throw new UsageError(
      'confirmation_needed',
      `${question} There is no terminal to confirm it`,
      'add --yes to proceed',
    )
  const answer = await ask(context, `${question} [y/N] `, false)
  if (/^\s*y(es)?\s*$/i.test(answer)) return
  throw new UsageError('declined', 'declined; nothing was done', 'rerun the command and answer y')
}

/** On a terminal, unless the output is for programs (contract §9, Confirmation). */
export const asksPerson = (
  { isInteractive, output }: Context,
  flags: { readonly quiet?: boolean; readonly yes?: boolean; readonly dryRun?: boolean },
) =>
  isInteractive &&
  output.isForPeople &&
  flags.quiet !== true &&
  flags.yes !== true &&
  flags.dryRun !== true

/** UsageError naming `flag` where there is no terminal. */
const asking =
  (code: 'password_needed' | 'answer_needed') =>
  async (context: Context, question: string, flag: string) => {
    if (context.isInteractive) return ask(context, question, code === 'password_needed')
    throw new UsageError(
      code,
      `${question.replace(/:?\s*$/, '')} is required, and there is no terminal to prompt on`,
      `give ${flag}`,
    )
  }

/** Without echo. */
export const askHidden = asking('password_needed')

/** With blanks around it; empty where only Enter was pressed. */
export const askLine = asking('answer_needed')

const leftover = new WeakMap<InputStream, string>()

/**
 * Prompts go to stderr (contract §6). Hidden input is read in raw mode, where keys are
 * characters.
 */
async function ask(context: Context, question: string, hidden: boolean) {
  const { stdin } = context
  const { stderr } = context.streams
  const setRaw = (on: boolean) => {
    if (hidden) stdin.setRawMode?.(on)
  }
  // Before the prompt: a quick typist must not be echoed.
  setRaw(true)
  const lines = question.trimEnd().split('\n')
  stderr.write(`${lines.map((line) => fold(line, context.output.columns)).join('\n')} `)
  try {
    return await readLine(context, hidden)
  } finally {
    setRaw(false)
    stdin.pause()
    // The Enter that ended a hidden line was not echoed.
    if (hidden) stderr.write('\n')
  }
}

function readLine({ stdin, signal, streams: { stderr } }: Context, hidden: boolean) {
  const decoder = new TextDecoder()
  let line = ''
  return new Promise<string>((resolve, reject) => {
    const end = (settle: () => void) => {
      stdin.removeListener('data', take)
      stdin.removeListener('end', ended)
      signal.removeEventListener('abort', stopped)
      settle()
    }
    const stopped = () =>
      end(() => {
        // The Ctrl-C that was echoed; of a hidden line `ask` ends the line.
        if (!hidden) stderr.write('\n')
        reject(signal.reason)
      })
    const ended = () =>
      end(() => {
        // Ctrl-D and a terminal that is gone look the same; `signal` tells them apart one turn
        // later.
        stderr.write('\n')
        setImmediate(() =>
          signal.aborted
            ? reject(signal.reason)
            : line === ''
              ? reject(unanswered())
              : resolve(line),
        )
      })
    const take = (chunk: Uint8Array | string) => {
      const text = typeof chunk === 'string' ? chunk : decoder.decode(chunk, { stream: true })
      const characters = [...text]
      for (const [index, character] of characters.entries()) {
        if (character === '\n' || character === '\r') {
          const rest = characters.slice(index + 1).join('')
          leftover.set(stdin, character === '\r' && rest.startsWith('\n') ? rest.slice(1) : rest)
          return end(() => resolve(line))
        }
        if (hidden && character === '\u0003') return end(() => reject(stoppedAtPrompt()))
        if (hidden && character === '\u0004') return end(() => reject(unanswered()))
        if (hidden && (character === '\u007f' || character === '\b'))
          line = [...line].slice(0, -1).join('')
        else line += character
      }
    }
    if (signal.aborted) return stopped()
    const before = leftover.get(stdin)
    leftover.delete(stdin)
    if (before?.includes('\n') || before?.includes('\r')) return take(before)
    line = before ?? ''
    if (!stdin.readable) return ended()
    signal.addEventListener('abort', stopped, { once: true })
    // A stream that an earlier prompt has paused does not flow again by itself.
    stdin.on('end', ended).on('data', take).resume()
  })
}

function stoppedAtPrompt() {
  return new InterruptedError(
    'interrupted',
    'stopped at the prompt; nothing was done',
    'rerun the command and answer',
  )
}

function unanswered() {
  return new UsageError(
    'declined',
    'no reply at the prompt; nothing was done',
    'rerun the command and answer',
  )
}
