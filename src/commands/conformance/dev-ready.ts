/**
 * What a development gateway printed of itself, for the checks: its address, pins, throwaway keys
 * and open questions (contract §6).
 */
import * as z from 'zod'
import { Trust } from '../../core/client/trust/trust-file.js'
import { UsageError } from '../../core/protocol/errors.js'
import { Bytes32 } from '../../core/protocol/schema.js'
import { readInput } from '../session/inputs.js'
import type { Context } from '../terminal/context.js'

const ReadyLine = z.object({
  event: z.literal('ready'),
  url: z.string(),
  dev: z.object({
    rpc_url: z.string().optional(),
    trust: Trust,
    accounts: z.array(z.object({ role: z.string(), private_key: z.string() })),
    questions: z.array(z.object({ question_id: Bytes32, slug: z.string() })),
  }),
})
export type ReadyLine = z.infer<typeof ReadyLine>

/** A gateway of this process as its ready line would describe it. Throws where it is none. */
export const readyOf = (line: unknown): ReadyLine => ReadyLine.parse(line)

/** The first line of the file (`-`: stdin) that is one. UsageError `no_ready_line`. */
export async function readReadyLine(context: Context, path: string): Promise<ReadyLine> {
  const text = new TextDecoder().decode(await readInput(context, path))
  for (const line of text.split('\n').filter((one) => one.startsWith('{'))) {
    try {
      const parsed = ReadyLine.safeParse(JSON.parse(line))
      if (parsed.success) return parsed.data
    } catch {
      // Not this line; where none is, the error below says so.
    }
  }
  throw new UsageError(
    'no_ready_line',
    `${path === '-' ? 'stdin' : path} holds no ready line of a development gateway`,
    'give what `proposer serve --dev --json` printed',
  )
}
