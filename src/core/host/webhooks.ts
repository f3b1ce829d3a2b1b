/**
 * Tells receivers outside what happens to a gateway (contract §9, `webhooks`): signed, tried five
 * times in ten minutes, in bounded memory. Nobody waits for a receiver, and nothing is told twice
 * after a restart: the store has the truth, a call is a hint to look.
 */
import { resolve } from 'node:path'
import pLimit from 'p-limit'
import { candidateRow } from '../gateway/status/listing.js'
import type { WebhookEvent } from '../gateway/webhooks.js'
import { readWebhookSecret } from '../io/key-files.js'
import { callWebhook, givenUpAfterMs, mostWaiting, triesAfterMs } from '../io/webhook-call.js'
import type { Fetch, Machine } from '../ports.js'
import { instant } from '../protocol/candidate.js'
import { ProposerError } from '../protocol/errors.js'
import { withoutNodeWords } from '../protocol/node-words.js'
import { pick } from '../protocol/pick.js'
import { enoughProposals, fewProposals, type Observation } from '../protocol/vitals.js'
import type { LoadedConfig } from './config-file.js'
import type { DisputeNews } from './followed-stakes.js'
import type { HostedGateway } from './gateway-host.js'

/** A receiver, and the secret that its calls are signed with. */
export interface Webhook {
  readonly url: string
  readonly events: readonly WebhookEvent[]
  readonly secret: string
}

/** The receivers of a configuration. UsageError for a secret that cannot be read, or by others. */
export const webhooksOf = ({ config, folder }: LoadedConfig): Promise<readonly Webhook[]> =>
  Promise.all(
    config.webhooks.map(async ({ secret_file, ...hook }) => ({
      ...hook,
      secret: await readWebhookSecret(resolve(folder, secret_file)),
    })),
  )

/** Calls that are open to one receiver. */
const mostOpen = 4
const lookMs = 1_000
/** A gateway that is not ready so long after its start is told of. */
const startingMs = 60_000

export interface WebhookParts {
  readonly machine: Pick<Machine, 'clock' | 'random' | 'liveness' | 'edges'>
  readonly chainId: number
  readonly version: string
  readonly onObservation: (observation: Observation) => void
  readonly onWarning: (code: string, detail: string) => void
  /** How often readiness and balance are looked at, and how long a try may take: for tests. */
  readonly everyMs?: number
  readonly tryMs?: number
}

type Told = Pick<
  HostedGateway,
  'gateway' | 'ledger' | 'view' | 'vitals' | 'executor' | 'onDispute'
> & {
  readonly store: Pick<HostedGateway['store'], 'cluster'>
}

interface Happening {
  readonly event: WebhookEvent
  /** One sentence for people. */
  readonly text: string
  /** Made at the first try, so that what waits takes little room. */
  facts(): object | Promise<object>
}

/** Tells the receivers from now on, until it is stopped; what waits then is dropped. */
export function tellWebhooks(
  webhooks: readonly Webhook[],
  hosted: Told,
  parts: WebhookParts,
): () => void {
  if (webhooks.length === 0) return () => undefined
  const stopping = new AbortController()
  const { signal } = stopping
  const fetch = parts.machine.edges.fetch()
  const receivers = webhooks.map((hook, at) => receiver(hook, at + 1, parts, { fetch, signal }))
  const tell = (happening: Happening) => {
    for (const receive of receivers) receive(happening)
  }
  // All gateways of a store hear of its candidates; one of them speaks.
  const speaks = () => {
    const { cluster } = hosted.store
    return cluster === undefined || cluster.leadership()?.epoch !== undefined
  }
  const unfollow = hosted.ledger.onChange((events) => {
    for (const event of events)
      if (event.kind === 'candidate.progress' && event.progress.status === 'failed' && speaks())
        tell(failureOf(hosted, event.id, event.progress.failure.code))
  })
  const undispute = hosted.onDispute((dispute) => {
    if (speaks()) tell(disputeOf(hosted, dispute))
  })
  const readiness = watchReadiness(parts.machine.clock.monotonicMs, tell)
  const balance = watchBalance(hosted, tell)
  const timer = setInterval(() => {
    readiness(hosted.gateway.readiness().map(withoutNodeWords))
    if (speaks()) balance()
  }, parts.everyMs ?? lookMs).unref()
  return () => {
    clearInterval(timer)
    unfollow()
    undispute()
    stopping.abort()
  }
}

const failureOf = (hosted: Told, id: string, code: string): Happening => ({
  event: 'candidate_failed',
  text: `candidate ${id} failed: ${code}`,
  async facts() {
    const row = await rowOf(hosted, id)
    return {
      candidate: {
        ...pick(row, 'candidate_id', 'question_id', 'slug', 'proposer', 'outcome', 'received_at'),
        ...pick(row, 'failure_stage', 'failure_code', 'failure_detail', 'retryable'),
        ...pick(row, 'next_action', 'transaction_hash'),
      },
    }
  },
})

const disputeOf = (hosted: Told, { candidateId, news }: DisputeNews): Happening => ({
  event: 'disputed',
  text: `the proposal of candidate ${candidateId} was disputed by ${news.disputer}`,
  async facts() {
    const row = await rowOf(hosted, candidateId)
    return {
      candidate: {
        ...pick(row, 'candidate_id', 'question_id', 'slug', 'proposer', 'outcome', 'received_at'),
        ...pick(row, 'round', 'transaction_hash', 'proposal_event_index'),
      },
      dispute: {
        disputer: news.disputer,
        block_number: String(news.block),
        transaction_hash: news.transaction,
        event_index: news.index,
      },
    }
  },
})

async function rowOf({ ledger, view }: Told, id: string) {
  const candidate = await ledger.get(id)
  if (candidate === undefined) throw new RangeError(`no candidate ${id}`)
  return candidateRow(candidate, view.entry(candidate.round.questionId)?.slug)
}

/** Tells when readiness changes, and once of a start that leads to none. */
function watchReadiness(monotonicMs: () => number, tell: (happening: Happening) => void) {
  const startMs = monotonicMs()
  let told: boolean | undefined
  return (reasons: readonly string[]) => {
    const isReady = reasons.length === 0
    if (isReady === told) return
    if (told === undefined && !isReady && monotonicMs() - startMs < startingMs) return
    told = isReady
    tell({
      event: isReady ? 'ready' : 'not_ready',
      text: isReady ? 'the gateway is ready' : `the gateway is not ready: ${reasons.join('; ')}`,
      facts: () => ({ reasons }),
    })
  }
}

/** Tells once that the balance is low, and again only after it was enough in between. */
function watchBalance(
  { vitals, executor: address }: Told,
  tell: (happening: Happening) => void,
): () => void {
  let isTold = false
  return () => {
    const { executor } = vitals()
    const pays = executor?.paidProposals
    if (pays === undefined) return
    if (isTold) isTold = pays < enoughProposals
    else if (pays < fewProposals) {
      isTold = true
      const balance = executor?.balanceWei
      tell({
        event: 'low_balance',
        text: `the executor ${address} can pay for about ${pays} more proposals`,
        facts: () => ({
          executor: address ?? null,
          balance_wei: balance === undefined ? null : String(balance),
          pays_for: pays,
        }),
      })
    }
  }
}

function receiver(
  { url, events, secret }: Webhook,
  webhook: number,
  { machine, chainId, version, onObservation, onWarning, tryMs }: WebhookParts,
  { fetch, signal }: { readonly fetch: Promise<Fetch>; readonly signal: AbortSignal },
): (happening: Happening) => void {
  const { clock, random, liveness } = machine
  const inTurn = pLimit(mostOpen)
  let waiting = 0
  let isFailing = false

  const end = (event: WebhookEvent, outcome: 'delivered' | 'given_up' | 'dropped', why = '') => {
    onObservation({ kind: 'webhook', webhook, outcome })
    // One line for an outage, however many events it costs.
    if (outcome !== 'delivered' && !isFailing)
      onWarning('webhook_failed', `webhook ${webhook} (${new URL(url).host}): ${event} ${why}`)
    isFailing = outcome !== 'delivered'
  }

  const deliver = async (happening: Happening, bornMs: number, head: object) => {
    let body: string | undefined
    let why = 'it waited too long to be sent'
    for (const afterMs of triesAfterMs) {
      await clock.sleep(Math.max(0, bornMs + afterMs - clock.monotonicMs()), signal)
      const failed = await inTurn(async () => {
        signal.throwIfAborted()
        if (clock.monotonicMs() - bornMs > givenUpAfterMs) return why
        try {
          body ??= JSON.stringify({ ...head, ...(await happening.facts()) })
        } catch (error) {
          // The store cannot be read now.
          if (error instanceof ProposerError) return error.code
          throw error
        }
        const how = { nowMs: clock.nowMs(), signal, ...(tryMs !== undefined && { tryMs }) }
        return callWebhook(await fetch, { url, secret, version }, body, how)
      })
      if (failed === undefined) return end(happening.event, 'delivered')
      why = failed
    }
    signal.throwIfAborted()
    end(happening.event, 'given_up', `was not delivered: ${why}`)
  }

  return (happening) => {
    const { event, text } = happening
    if (!events.includes(event)) return
    if (waiting >= mostWaiting)
      return end(event, 'dropped', `was dropped: ${mostWaiting} others are already waiting`)
    waiting += 1
    const head = {
      schema: 'proposer.webhook/1',
      id: random.uuid(),
      event,
      at: instant(clock.nowMs()),
      host: liveness.host,
      chain_id: chainId,
      text,
    }
    deliver(happening, clock.monotonicMs(), head)
      .catch((error: unknown) => {
        if (!signal.aborted) throw error
      })
      .finally(() => {
        waiting -= 1
      })
  }
}
