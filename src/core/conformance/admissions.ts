import { answerError } from '../client/gateway/answer.js'
import type { JournaledAuthorization } from '../client/journal/authorizations.js'
import { attempt, type SubmitAnswer } from '../client/propose/attempt.js'
import { checkTerms } from '../client/propose/terms.js'
import { chainNow, confirmByChain } from '../client/trust/context.js'
import { checkOutcome } from '../client/trust/trust.js'
import { UnavailableError, UsageError } from '../protocol/errors.js'
import { priceOf } from '../protocol/proposal.js'
import {
  type BareBench,
  type Fits,
  freePairs,
  type Pair,
  type ProbeTerms,
  signWith,
} from './authorizations.js'
import { type Bet, outcomeFor } from './bench.js'
import { retryMs, routes } from './probe.js'
import { at, came, listAt, NotSeen, once, type Seen } from './rule.js'
import { isGiven, isStructure, isUuid, isWord } from './shapes.js'

export interface SentProbe {
  readonly authorization: JournaledAuthorization
  readonly pair: Pair
  readonly seen: Seen
}

export interface Admissions {
  /**
   * NotSeen for an amount that a wallet could pay where nothing may execute, or where it is above
   * the cap.
   */
  sign(pair: Pair, terms?: ProbeTerms): Promise<JournaledAuthorization>
  /** Sends the saved bytes once, waiting where the gateway says to come back later. */
  send(authorization: JournaledAuthorization): Promise<Seen>
  /** Sends several items in one call; `junk` goes behind them, and authorizes nothing. */
  sendBatch(
    authorizations: readonly JournaledAuthorization[],
    junk?: readonly unknown[],
  ): Promise<Seen>
  /** Signs with something wrong in it and sends it; a refusal frees the question again. */
  sendWrong(terms: ProbeTerms, fits?: Fits): Promise<Seen & { readonly journalId: string }>
  /** Signs by a wallet that is on no list, for an amount that nobody holds, and sends it. */
  sendStrange(): Promise<Seen>
  /** The first single submission; its nonce was prepared before, with another outcome too. */
  first(): Promise<SentProbe>
  batch(): Promise<BatchSent>
  executable(): Promise<SentProbe>
  status(questionId: string, candidateId: string): Promise<Seen>
  ended(questionId: string, candidateId: string): Promise<Seen>
}

/**
 * One call of three items under one client_ref: two that can be admitted, and between them one in
 * conflict with the first.
 */
export interface BatchSent {
  readonly authorizations: readonly JournaledAuthorization[]
  readonly pairs: readonly Pair[]
  readonly seen: Seen
  /** The first two, sent before beside a malformed item: to be refused as a whole (§4.2 rule 2). */
  readonly malformed: Seen
}

export const places = { first: 0, rival: 1, other: 2 } as const

/** Whether a status tells an end: in our own words, or by what only an end has (§2.6). */
export function hasEnded(status: unknown): boolean {
  const word = at(status, 'status')
  if (word === 'executed' || word === 'failed') return true
  if (isStructure(at(status, 'failure'))) return true
  return isGiven(at(status, 'submission', 'proposal_event_index'))
}

const tries = 10
const pauseMs = 2_000
const longestWaitMs = 90_000

/** The candidate id in an acknowledgement, or NotSeen: another check tells that it is missing. */
export function candidateIn(json: unknown, sent: string): string {
  const id = at(json, 'candidate_id')
  if (isUuid(id)) return id
  throw new NotSeen(`${sent} gave no candidate`)
}

export const otherPrice = ({ signed }: JournaledAuthorization): string =>
  signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1

/**
 * NotSeen where a gateway looks at balance and allowance before it admits; the spec leaves that
 * open.
 */
function expectFunded(seen: Seen): void {
  const results = listAt(seen.json, 'results')
  const isUnfunded = (json: unknown) =>
    /balance|allowance|fund/.test(String(at(json, 'error', 'code') ?? ''))
  if (!isUnfunded(seen.json) && !(results.length > 0 && results.every(isUnfunded))) return
  throw new NotSeen(
    `the gateway admits funded proposals only (${came(seen)}), and these checks sign for more than any wallet holds`,
  )
}

/**
 * The exchange as it came. Without one nothing is known of what became of it, and the run ends
 * (exit 6 or 75).
 */
async function exchanged(
  { probe, ports: { clock }, signal }: BareBench,
  call: () => Promise<SubmitAnswer | undefined>,
): Promise<Seen> {
  for (let tried = 1; ; tried++) {
    const answer = await call()
    const seen = probe.last()
    if (seen === undefined) {
      if (answer === undefined || answer.kind === 'accepted')
        throw new UnavailableError('no_answer', 'no response', 'run `proposer replay`')
      throw answerError(answer, 'submit')
    }
    if (seen.status !== 429 && seen.status !== 503) {
      expectFunded(seen)
      return seen
    }
    if (tried === tries) throw new NotSeen(`${seen.sent} was answered ${came(seen)} ${tried} times`)
    if (seen.status === 503)
      await clock.sleep(Math.max(1_000, Math.min(retryMs(seen, clock) ?? 0, 30_000)), signal)
  }
}

function sendBatch(
  bench: BareBench,
  authorizations: readonly JournaledAuthorization[],
  junk: readonly unknown[] = [],
): Promise<Seen> {
  const { gateway, signal } = bench
  const more = junk.map((one) => `,${JSON.stringify(one)}`).join('')
  const withJunk: typeof gateway = {
    ...gateway,
    submitBatch: (body, call) => gateway.submitBatch(body.replace(/\]\}$/, `${more}]}`), call),
  }
  const parts = { ...bench, gateway: withJunk }
  return exchanged(
    bench,
    async () => (await attempt(parts, authorizations, signal ? { signal } : {})).answers[0],
  )
}

/**
 * What a preparation must not do to the submission that follows: reserve its nonce, or its wallet's
 * place (§4.1 rule 2).
 */
async function prepareBefore(
  { probe }: BareBench,
  { signed }: JournaledAuthorization,
): Promise<void> {
  const { signature: _signature, ...body } = JSON.parse(signed.body)
  for (const outcome of ['p1', 'p2'])
    await probe.send(routes.prepare(signed.questionId, { ...body, outcome }))
}

/** What may be proposed on this question, once the chain, where there is one, and the user agree. */
async function confirmedBet(bench: BareBench, { wallet, context }: Pair): Promise<Bet> {
  const { chain, trust, maxAmountRaw } = bench
  const nowSeconds = chain
    ? await chainNow(chain, trust, bench.ports.clock)
    : Number(bench.nowSeconds())
  const bondIsConfirmed =
    chain !== undefined && (await confirmByChain(chain, trust, context)) !== undefined
  const cap = maxAmountRaw === undefined ? {} : { maxAmountRaw }
  const { amountRaw } = checkTerms(cap, context, nowSeconds, bondIsConfirmed)
  const outcome = outcomeFor(context)
  const { label } = checkOutcome(trust, context, outcome)
  const proposer = wallet.address
  const bet: Bet = { context, proposer, outcome, label, amountRaw, bondIsConfirmed }
  await bench.confirmBet?.(bet)
  return bet
}

async function untilEnded(
  { ports: { clock }, signal }: BareBench,
  status: () => Promise<Seen>,
): Promise<Seen> {
  const untilMs = clock.monotonicMs() + longestWaitMs
  for (;;) {
    const seen = await status()
    if (seen.status !== 200) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
    if (hasEnded(seen.json)) return seen
    // What tells no status at all tells no end either.
    if (!isWord(at(seen.json, 'status'))) throw new NotSeen(`${seen.sent} gave no status`)
    if (clock.monotonicMs() > untilMs)
      throw new NotSeen(`the candidate did not end in ${longestWaitMs / 1_000} s`)
    await clock.sleep(pauseMs, signal)
  }
}

export function createAdmissions(bench: BareBench): Admissions {
  const { probe, signal } = bench
  const ends = new Map<string, Promise<Seen>>()
  const closed = new Set<string>()

  const pairs = (count: number, fits: Fits = () => true, order: 'first' | 'last' = 'first') =>
    freePairs(bench, count, (one) => !closed.has(one.question_id) && fits(one), order)
  async function pairOf(fits?: Fits, order?: 'first' | 'last'): Promise<Pair> {
    const [pair] = await pairs(1, fits, order)
    if (pair === undefined) throw new NotSeen('no question is free')
    return pair
  }
  const send = (authorization: JournaledAuthorization) =>
    exchanged(
      bench,
      async () => (await attempt(bench, [authorization], signal ? { signal } : {})).answers[0],
    )
  const status = (questionId: string, candidateId: string) =>
    probe.send(routes.status(questionId, candidateId))

  async function submitted(pair: Pair, terms: ProbeTerms, isPrepared: boolean): Promise<SentProbe> {
    const authorization = await signWith(bench, pair, terms)
    if (isPrepared) await prepareBefore(bench, authorization)
    const seen = await send(authorization)
    if (at(seen.json, 'error', 'code') === 'proposer_not_eligible')
      throw new NotSeen(`${pair.wallet.address} is not eligible here`)
    return { authorization, pair, seen }
  }

  return {
    sign: (pair, terms) => signWith(bench, pair, terms),
    send,
    status,
    sendBatch: (authorizations, junk) => sendBatch(bench, authorizations, junk),
    async sendWrong(terms, fits) {
      const authorization = await signWith(bench, await pairOf(fits), terms)
      return { ...(await send(authorization)), journalId: authorization.id }
    },
    async sendStrange() {
      const wallet = bench.strangerWallet
      if (wallet === undefined)
        throw new NotSeen('no key of a wallet outside the allowlist was given')
      const [context] = await bench.open()
      if (context === undefined) throw new NotSeen('no question is open')
      return send(await signWith(bench, { wallet, context }))
    },
    first: once(async () => submitted(await pairOf(), {}, true)),
    batch: once(async () => {
      const [one, two] = await pairs(2)
      if (one === undefined || two === undefined) throw new NotSeen('two questions are required')
      const terms = { form: 'batch', clientRef: 'conformance' } as const
      const [first, other] = [await signWith(bench, one, terms), await signWith(bench, two, terms)]
      const junk = [{ ...(await bench.unsignedItem()), proposer: 'nobody' }]
      const malformed = await sendBatch(bench, [first, other], junk)
      const changes = { price: otherPrice(first), supersede: first.id }
      const authorizations = [first, await signWith(bench, one, { ...terms, ...changes }), other]
      const seen = await sendBatch(bench, authorizations)
      return { authorizations, pairs: [one, one, two], seen, malformed }
    }),
    executable: once(async () => {
      const pair = await pairOf(undefined, 'last')
      try {
        const { amountRaw } = await confirmedBet(bench, pair)
        closed.add(pair.context.question_id)
        return await submitted(pair, { amountRaw }, false)
      } catch (error) {
        if (error instanceof UsageError) throw new NotSeen(error.detail)
        throw error
      }
    }),
    ended(questionId, candidateId) {
      const known =
        ends.get(candidateId) ?? untilEnded(bench, () => status(questionId, candidateId))
      ends.set(candidateId, known)
      return known
    },
  }
}
