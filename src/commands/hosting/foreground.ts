/** What `serve`, `devchain` and `demo` share: they stay in the foreground until told to end. */
import { UsageError } from '#protocol/errors'
import type { Output } from '../terminal/output.js'
import { fold, shellWord, visible } from '../terminal/render.js'

/**
 * For a chain that did not start: `undefined` where the run was told to end meanwhile, else the
 * error again. A signal to the whole terminal may reach the chain's watcher before it has a session
 * of its own.
 */
export const unlessStopped =
  (signal: AbortSignal) =>
  (error: unknown): undefined => {
    if (!signal.aborted) throw error
  }

export function wholeNumber(flag: string, text: string, least: number, most: number): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  if (value >= least && value <= most) return value
  throw new UsageError(
    'bad_number',
    `${flag} must be a whole number from ${least} to ${most}`,
    `give it as ${flag} ${least}`,
  )
}

export const portNumber = (flag: string, text: string): number => wholeNumber(flag, text, 0, 65_535)

/**
 * Notes the first three of a development chain's questions by slug and id, on two lines each where
 * one would be wider than the terminal. `rest` stands behind the count of the others.
 */
export function noteQuestions(
  output: Pick<Output, 'note' | 'columns'>,
  questions: readonly { slug: string; question_id: string }[],
  rest = '',
): void {
  for (const { slug, question_id } of questions.slice(0, 3)) {
    const line = `  ${visible(slug)}  ${question_id}`
    output.note(line.length <= output.columns ? line : `  ${visible(slug)}\n    ${question_id}`)
  }
  if (questions.length > 3) output.note(`  and ${questions.length - 3} more${rest}`)
}

/** Variables of who proposes at a development gateway: its throwaway files are in `folder`. */
export const devVariables = (
  folder: string,
  gateway: string,
  dev: { readonly rpc_url: string },
): Readonly<Record<string, string>> => ({
  PROPOSER_HOME: `${folder}/home`,
  PROPOSER_TRUST: `${folder}/trust.json`,
  PROPOSER_KEY_FILE: `${folder}/proposer-1.key`,
  PROPOSER_GATEWAY: gateway,
  PROPOSER_RPC_URL: dev.rpc_url,
})

export const devExports = (...parts: Parameters<typeof devVariables>): readonly string[] =>
  Object.entries(devVariables(...parts)).map(
    ([name, value]) => `export ${name}=${shellWord(value)}`,
  )

/**
 * Notes chain and questions, what is pasted into another terminal to propose at a development
 * gateway, and what to type there: its throwaway files go with it.
 */
export function noteDevSession(
  output: Pick<Output, 'note' | 'columns' | 'notesAreTerminal'>,
  folder: string,
  gateway: string,
  dev: {
    readonly chain_id: number
    readonly rpc_url: string
    readonly questions: readonly { slug: string; question_id: string }[]
  },
): void {
  const [first] = dev.questions
  const note = (text: string) =>
    output.note(output.notesAreTerminal ? fold(text, output.columns) : text)
  note(`chain ${dev.chain_id} at ${dev.rpc_url}. Open questions:`)
  noteQuestions(output, dev.questions)
  // A log is pasted nowhere; the result has them then.
  if (!output.notesAreTerminal) return
  note('To propose here, paste into another terminal:')
  output.note('')
  for (const line of devExports(folder, gateway, dev)) output.note(line)
  output.note('\nThen:\n  proposer questions list')
  if (first !== undefined)
    output.note(`  proposer submit ${shellWord(first.slug)} --outcome yes --wait`)
}
