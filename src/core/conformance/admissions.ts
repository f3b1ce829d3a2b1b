/**
 * What the checks sign, by which wallet and for which question. All of it is journaled like any
 * other authorization (R4, R6, R8). But for the checks that want an execution, each is for an
 * amount that no wallet holds. SignedProposer pulls the whole permit.amount (domain §2), so that it
 * is admitted, fails in validation, and never executes, whoever gets hold of it. Those that name
 * too little name one raw unit. No such amount comes from an answer: the bond is the gateway's
 * word, and one that lies about it would choose what is signed.
 */
import { domainOf, roundRef } from '../chain/round.js'
import { answerError } from '../client/gateway/answer.js'
import {
  type JournaledAuthorization,
  offersFor,
  openFor,
} from '../client/journal/authorizations.js'
import { chainChecks, type Form } from '../client/journal/records.js'
import { attempt, type SubmitAnswer } from '../client/propose/attempt.js'
import { draftOf, signDrafts } from '../client/propose/sign.js'
import { checkTerms, requestOf } from '../client/propose/terms.js'
import { chainNow, confirmByChain } from '../client/trust/context.js'
import { checkOutcome, contractsOf, type QuestionContext } from '../client/trust/trust.js'
import type { Signer } from '../ports.js'
import { ProposerError, UnavailableError, UsageError } from '../protocol/errors.js'
import { priceOf } from '../protocol/proposal.js'
import { toHex, witnessRound } from '../protocol/witness.js'
import { type BareBench, type Bet, outcomeFor } from './bench.js'
import { retryMs, routes } from './probe.js'
import {
  at,
  came,
  isGiven,
  isStructure,
  isUuid,
  isWord,
  lifeSeconds,
  listAt,
  NotSeen,
  once,
  type Seen,
} from './rule.js'

export interface SentProbe {
  readonly authorization: JournaledAuthorization
  readonly pair: Pair
  readonly seen: Seen
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

/** The admissions of one run. */
export function createAdmissions(bench: BareBench) {
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
    sign: (pair: Pair, terms?: ProbeTerms) => signWith(bench, pair, terms),
    send,
    status,
    sendBatch: (authorizations: readonly JournaledAuthorization[]) =>
      sendBatch(bench, authorizations),
    /** Signs with something wrong in it; a refusal frees the question again. */
    async sendWrong(terms: ProbeTerms, fits?: Fits) {
      const authorization = await signWith(bench, await pairOf(fits), terms)
      return { ...(await send(authorization)), journalId: authorization.id }
    },
    /** By a wallet that is on no list, for an amount that nobody holds. */
    async sendStrange() {
      const wallet = bench.strangerWallet
      if (wallet === undefined)
        throw new NotSeen('no key of a wallet outside the allowlist was given')
      const [context] = await bench.open()
      if (context === undefined) throw new NotSeen('no question is open')
      return send(await signWith(bench, { wallet, context }))
    },
    /** Its nonce was prepared before, with another outcome too. */
    first: once(async () => submitted(await pairOf(), {}, true)),
    /**
     * One call of three items under one client_ref: two that can be admitted, and between them one
     * in conflict with the first.
     */
    batch: once(async () => {
      const [one, two] = await pairs(2)
      if (one === undefined || two === undefined) throw new NotSeen('two questions are required')
      const terms = { form: 'batch', clientRef: 'conformance' } as const
      const [first, other] = [await signWith(bench, one, terms), await signWith(bench, two, terms)]
      const junk = [{ ...(await bench.unsignedItem()), proposer: 'nobody' }]
      /** To be refused as a whole (§4.2 rule 2). */
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
    ended(questionId: string, candidateId: string): Promise<Seen> {
      const known =
        ends.get(candidateId) ?? untilEnded(bench, () => status(questionId, candidateId))
      ends.set(candidateId, known)
      return known
    },
  }
}

/** More than any token has, and the sum of a few is still a uint256. */
export const unexecutableRaw = 2n ** 128n
/**
 * All that a check of the bond risks where the gateway admits it, or has reported a bond that is
 * none.
 */
export const leastRaw = 1n

export interface Pair {
  readonly wallet: Signer
  readonly context: QuestionContext
}

export interface ProbeTerms {
  readonly price?: string
  readonly amountRaw?: bigint
  readonly deadlineSeconds?: bigint
  readonly form?: Form
  readonly clientRef?: string
  readonly supersede?: string
}

export type Fits = (context: QuestionContext) => boolean

function checkRisk({ may, maxAmountRaw }: BareBench, amountRaw: bigint): void {
  if (amountRaw <= leastRaw || amountRaw >= unexecutableRaw) return
  if (!may.execute)
    throw new NotSeen(
      `a wallet can pay ${amountRaw} raw units: such a proposal is signed with --allow-execution only`,
    )
  if (maxAmountRaw === undefined || amountRaw <= maxAmountRaw) return
  throw new NotSeen(`${amountRaw} raw units are more than --max-amount ${maxAmountRaw}`)
}

const wantedOf = ({ trust }: BareBench, { wallet, context }: Pair) => ({
  questionId: context.question_id,
  proposer: wallet.address,
  chainId: trust.chain_id,
})

/** Wallets and questions that no open authorization holds (R8); NotSeen where there are fewer. */
export async function freePairs(
  bench: BareBench,
  count: number,
  fits: Fits,
  order: 'first' | 'last',
): Promise<readonly Pair[]> {
  const { wallets, journal, ports } = bench
  if (wallets.length === 0) throw new NotSeen('no key of an eligible wallet was given')
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const contexts = (await bench.open()).filter(fits)
  const all = wallets.flatMap((wallet) => contexts.map((context) => ({ wallet, context })))
  const free = all.filter((pair) => {
    const wanted = wantedOf(bench, pair)
    const open = openFor(view.byQuestion(wanted.questionId), wanted, nowMs)
    return open.length === 0 && offersFor(view.offers, wanted, nowMs).length === 0
  })
  const taken = order === 'first' ? free.slice(0, count) : free.slice(-count)
  if (taken.length === count) return taken
  throw new NotSeen(
    `${count} more of questions and wallets without an open authorization are required: add --question`,
  )
}

/** Reserves a nonce and signs, journaled; NotSeen where the question is held meanwhile. */
export async function signWith(
  bench: BareBench,
  pair: Pair,
  terms: ProbeTerms = {},
): Promise<JournaledAuthorization> {
  const { ports, journal, trust } = bench
  const { wallet, context } = pair
  const request = requestOf(context)
  const contracts = contractsOf(trust)
  const witness = witnessRound(domainOf(contracts), request, context.bond.token)
  const price = terms.price ?? priceOf[outcomeFor(context)]
  const amountRaw = terms.amountRaw ?? unexecutableRaw
  checkRisk(bench, amountRaw)
  const deadlineSeconds = terms.deadlineSeconds ?? bench.nowSeconds() + lifeSeconds
  return journal.exclusive(async (view) => {
    const wanted = wantedOf(bench, pair)
    const open = openFor(view.byQuestion(wanted.questionId), wanted, ports.clock.nowMs())
    const rival = open.find(({ id }) => id !== terms.supersede)
    if (rival !== undefined) throw new NotSeen(`${rival.id} now holds the question`)
    const nonce = journal.nextNonce()
    const digest = toHex(
      witness.digest({
        price,
        amount: String(amountRaw),
        nonce: String(nonce),
        deadline: String(deadlineSeconds),
      }),
    )
    const round = roundRef(contracts, wanted.questionId, request, witness.ancillaryHash)
    const prepared = {
      context,
      price,
      amountRaw,
      nonce,
      deadlineSeconds,
      round,
      digest,
      unchecked: chainChecks,
    }
    const intent = { identifier: context.question_id, proposer: wallet.address, ...terms }
    const { draft, reserving } = draftOf({ journal, trust }, intent, prepared, view)
    await journal.append(reserving)
    const form = terms.form ?? 'single'
    const [signing] = await signDrafts({ ports, journal }, [draft], wallet, form)
    if (signing === undefined) throw new Error('a draft was not signed')
    if (signing instanceof ProposerError) throw signing
    return signing
  })
}
