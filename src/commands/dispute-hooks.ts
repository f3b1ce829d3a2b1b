/** `positions --watch --exec`: a program is told of each dispute. */
import { isContestedState } from '../core/client/positions/last-known.js'
import type { Position } from '../core/client/positions/rows.js'
import { runHook } from '../core/io/hook.js'
import { UsageError } from '../core/protocol/errors.js'
import type { Session } from './session/session.js'
import type { Context } from './terminal/context.js'
import { jsonText } from './terminal/render.js'

const hookLimitMs = 30_000

export interface HookFlags {
  readonly watch?: boolean
  readonly exec?: string
}

/** A position as it is now, or was before its block was `gone`. `from`: its state before, null: new. */
export interface PositionChange {
  readonly at: string
  readonly from: Position['state']
  readonly gone: boolean
  readonly position: Position
}

/** UsageError `exec_without_watch`. */
export function requireWatch({ watch, exec }: HookFlags): void {
  if (watch === true || exec === undefined) return
  throw new UsageError('exec_without_watch', '--exec is given without --watch', {
    hint: 'add --watch, or leave out --exec',
  })
}

/** One run for each dispute among the changes. What fails is told, and the watch goes on. */
export async function tellProgram(
  { cwd, env, output }: Context,
  { signal }: Session,
  program: string,
  changes: readonly PositionChange[],
): Promise<void> {
  for (const { position, at, from, gone } of changes) {
    if (gone || !isContestedState(position.state) || isContestedState(from)) continue
    const line = jsonText({ schema: 'proposer.position/1', at, from, ...position }, 0)
    const fault = await runHook(program, line, { cwd, env, timeoutMs: hookLimitMs, signal })
    if (fault !== undefined) output.warning('exec_failed', `--exec ${program} ${fault}`)
  }
}
