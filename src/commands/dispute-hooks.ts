/** Who is told of disputes that `positions --watch` meets: a program, and a receiver outside. */
import { isContestedState } from '../core/client/positions/last-known.js'
import type { Position } from '../core/client/positions/rows.js'
import { runHook } from '../core/io/hook.js'
import { readWebhookSecret } from '../core/io/key-files.js'
import {
  callWebhook,
  givenUpAfterMs,
  mostWaiting,
  triesAfterMs,
  type WebhookTarget,
} from '../core/io/webhook-call.js'
import { UsageError } from '../core/protocol/errors.js'
import { urlFault } from '../core/protocol/plain-http.js'
import { counted } from '../core/protocol/text.js'
import { programVersion } from '../core/protocol/version.js'
import type { Session } from './session/session.js'
import { allowedHttp } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { positionName, stateText } from './terminal/positions-text.js'
import { jsonText } from './terminal/render.js'

const hookLimitMs = 30_000

export interface HookFlags {
  readonly watch?: boolean
  readonly exec?: string
  readonly webhook?: string
  readonly webhookSecretFile?: string
}

/** A position as it is now, or was before its block was `gone`. `from`: its state before, null: new. */
export interface PositionChange {
  readonly at: string
  readonly from: Position['state']
  readonly gone: boolean
  readonly position: Position
}

export interface DisputeHooks {
  /** Tells of the disputes among the changes, and again of what a receiver has not taken. */
  tell(changes: readonly PositionChange[]): Promise<void>
  /** Says what was not delivered. */
  end(): void
}

/** UsageError `exec_without_watch`, `webhook_without_watch`, `webhook_secret_without_webhook`. */
export function requireWatch({ watch, exec, webhook, webhookSecretFile }: HookFlags): void {
  const refuse = (code: string, flag: string, other: string) => {
    throw new UsageError(code, `${flag} is given without ${other}`, {
      hint: `add ${other}, or leave out ${flag}`,
    })
  }
  if (watch !== true && exec !== undefined) refuse('exec_without_watch', '--exec', '--watch')
  if (watch !== true && webhook !== undefined)
    refuse('webhook_without_watch', '--webhook', '--watch')
  if (webhook === undefined && webhookSecretFile !== undefined)
    refuse('webhook_secret_without_webhook', '--webhook-secret-file', '--webhook')
}

/** UsageError `invalid_webhook_url`, and as `readWebhookSecret`. */
export async function disputeHooks(
  context: Context,
  session: Session,
  { exec, webhook, webhookSecretFile }: HookFlags,
): Promise<DisputeHooks> {
  const receiver =
    webhook === undefined
      ? undefined
      : await receiverOf(context, session, webhook, webhookSecretFile)
  return {
    async tell(changes) {
      const disputes = changes.filter(
        ({ position, gone, from }) =>
          !gone && isContestedState(position.state) && !isContestedState(from),
      )
      // A program may take its 30 seconds: the receiver is told first.
      await receiver?.tell(disputes)
      if (exec !== undefined) await tellProgram(context, session, exec, disputes)
    },
    end: () => receiver?.end(),
  }
}

/** One run for each dispute. What fails is told, and the watch goes on. */
async function tellProgram(
  { cwd, env, output }: Context,
  { signal }: Session,
  program: string,
  disputes: readonly PositionChange[],
): Promise<void> {
  for (const { position, at, from } of disputes) {
    const line = jsonText({ schema: 'proposer.position/1', at, from, ...position }, 0)
    const fault = await runHook(program, line, { cwd, env, timeoutMs: hookLimitMs, signal })
    if (fault !== undefined) output.warning('exec_failed', `--exec ${program} ${fault}`)
  }
}

async function receiverOf(
  context: Context,
  session: Session,
  url: string,
  secretFile: string | undefined,
): Promise<DisputeHooks> {
  const fault = urlFault(url, allowedHttp(session.settings.allowHttp))
  if (fault !== undefined)
    throw new UsageError('invalid_webhook_url', `the --webhook URL ${fault}`, {
      hint: 'give it as https://host[:port][/path]; http:// is for localhost, 127.0.0.0/8 and [::1], and for hosts that `proposer config set allow-http <host[:port],…>` names',
    })
  const secret = secretFile === undefined ? undefined : await readWebhookSecret(secretFile)
  const { chain_id } = await session.trust()
  return receiver(context, session.signal, chain_id, {
    ...{ url, version: programVersion },
    ...(secret !== undefined && { secret }),
  })
}

interface Waiting {
  readonly body: string
  readonly bornMs: number
  tries: number
}

/**
 * The five tries of a gateway's webhooks, each at the first look after its time. While the receiver
 * does not answer, the others wait: a look takes one try longer at most.
 */
function receiver(
  { clock, random, liveness, output, edges }: Context,
  signal: AbortSignal,
  chainId: number,
  target: WebhookTarget,
): DisputeHooks {
  const { host } = new URL(target.url)
  const waiting = new Set<Waiting>()
  let isFailing = false
  // One line for an outage, however many disputes it costs.
  const lost = (why: string) => {
    if (!isFailing)
      output.warning('webhook_failed', `--webhook ${host}: a dispute was not delivered: ${why}`)
    isFailing = true
  }

  const take = ({ at, from, position }: PositionChange) => {
    if (waiting.size >= mostWaiting) return lost(`${mostWaiting} others wait already`)
    const body = jsonText(
      {
        schema: 'proposer.webhook/1',
        ...{ id: random.uuid(), event: 'disputed', at, host: liveness.host, chain_id: chainId },
        text: `the proposal for ${positionName(position)} is ${stateText(position)} by ${position.disputed_by}`,
        position: { from, ...position },
      },
      0,
    )
    waiting.add({ body, bornMs: clock.monotonicMs(), tries: 0 })
  }

  return {
    async tell(disputes) {
      for (const one of disputes) take(one)
      const fetch = await edges.fetch()
      for (const one of waiting) {
        const ageMs = clock.monotonicMs() - one.bornMs
        const dueMs = triesAfterMs[one.tries] ?? 0
        if (ageMs < dueMs) continue
        const how = { nowMs: clock.nowMs(), signal }
        const fault =
          ageMs > givenUpAfterMs
            ? 'the receiver did not take it in ten minutes'
            : await callWebhook(fetch, target, one.body, how)
        one.tries += 1
        const isOver = ageMs > givenUpAfterMs || one.tries >= triesAfterMs.length
        if (fault === undefined || isOver) waiting.delete(one)
        if (fault === undefined) isFailing = false
        else if (isOver) lost(fault)
        else return
      }
    },
    end() {
      if (waiting.size > 0)
        output.warning(
          'webhook_failed',
          `--webhook ${host}: ${counted(waiting.size, 'dispute')} not delivered yet`,
        )
    },
  }
}
