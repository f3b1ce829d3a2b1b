/**
 * What the checks sign and submit. All of it is journaled like any other authorization (R4, R6,
 * R8). But for the checks that want an execution, each is for an amount that no wallet holds:
 * SignedProposer pulls the whole permit.amount (domain §2), so that it is admitted, fails in
 * validation, and never executes, whoever gets hold of it. Those that name too little name one raw
 * unit. No such amount comes from an answer: the bond is the gateway's word, and one that lies
 * about it would choose what is signed.
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
import { chainNow, confirmByChain, type QuestionContext } from '../client/trust/context.js'
import { checkOutcome, contractsOf } from '../client/trust/trust.js'
import type { Hex, Signer } from '../ports.js'
import { ProposerError, UnavailableError, UsageError } from '../protocol/errors.js'
import { priceOf } from '../protocol/proposal.js'
import { toHex, witnessRound } from '../protocol/witness.js'
import { type Bench, type Bet, outcomeFor } from './bench.js'
import { retryMs, routes } from './probe.js'
import { at, came, lifeSeconds, listAt, NotSeen, once, type Seen } from './rule.js'
import { isGiven, isStructure, isUuid } from './shapes.js'

/** More than any token has, and the sum of a few is still a uint256. */
export const unexecutableRaw = 2n ** 128n
/**
 * All that a check of the bond risks where the gateway admits it, or has told a bond that is none.
 */
export const leastRaw = 1n

export interface Pair {
  readonly wallet: Signer
  readonly context: QuestionContext
}

/** What an authorization says otherwise than usual. */
export interface ProbeTerms {
  readonly price?: string
  readonly amountRaw?: bigint
  readonly deadlineSeconds?: bigint
  readonly form?: Form
  readonly clientRef?: string
  readonly supersede?: string
}

export interface SentProbe {
  readonly authorization: JournaledAuthorization
  readonly pair: Pair
  readonly seen: Seen
}

type Fits = (context: QuestionContext) => boolean

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
  /** A submission that can execute. */
  executable(): Promise<SentProbe>
  status(questionId: string, candidateId: string): Promise<Seen>
  /** Polls until the candidate has ended, in whatever words; NotSeen where that takes too long. */
  ended(questionId: string, candidateId: string): Promise<Seen>
}

/**
 * One call of three items under one client_ref: two that can be admitted, and between them one in
 * conflict with the first.
 */
export interface BatchSent {
  /** In input order. */
  readonly authorizations: readonly JournaledAuthorization[]
  readonly pairs: readonly Pair[]
  readonly seen: Seen
  /** The first two, sent before beside a malformed item: to be refused as a whole (§4.2 rule 2). */
  readonly malformed: Seen
}

/** The three items' indexes in a batch. */
export const places = { first: 0, rival: 1, other: 2 } as const

/** Whether a status tells an end: in our own words, or by what only an end has (§2.6). */
export function hasEnded(status: unknown): boolean {
  const word = at(status, 'status')
  if (word === 'executed' || word === 'failed') return true
  if (isStructure(at(status, 'failure'))) return true
  return isGiven(at(status, 'submission', 'proposal_event_index'))
}

/** As the probe's. */
const tries = 10
const pauseMs = 2_000
const longestWaitMs = 90_000

/** The candidate id in an acknowledgement, or NotSeen: another check tells that it is missing. */
export function candidateIn(json: unknown, sent: string): string {
  const id = at(json, 'candidate_id')
  if (isUuid(id)) return id
  throw new NotSeen(`${sent} gave no candidate`)
}

/** A price that conflicts with the one that was signed. */
export const otherPrice = ({ signed }: JournaledAuthorization): string =>
  signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1

/** What the functions below need: a bench whose admissions are being made. */
type Parts = Omit<Bench, 'admissions'>

/** The last look at an amount before it is signed, whichever check wants it. */
function checkRisk({ may, maxAmountRaw }: Parts, amountRaw: bigint): void {
  if (amountRaw <= leastRaw || amountRaw >= unexecutableRaw) return
  if (!may.execute)
    throw new NotSeen(
      `a wallet could pay ${amountRaw} raw units: that is signed with --allow-execution only`,
    )
  if (maxAmountRaw === undefined || amountRaw <= maxAmountRaw) return
  throw new NotSeen(`${amountRaw} raw units are more than --max-amount ${maxAmountRaw}`)
}

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
    `the gateway admits only what is funded (${came(seen)}), and these checks sign for more than anybody holds`,
  )
}

const wantedOf = ({ trust }: Parts, { wallet, context }: Pair) => ({
  questionId: context.question_id as Hex,
  proposer: wallet.address,
  chainId: trust.chain_id,
})

/** Wallets and questions that no open authorization holds (R8); NotSeen where there are fewer. */
async function freePairs(
  bench: Parts,
  count: number,
  fits: Fits,
  order: 'first' | 'last',
): Promise<readonly Pair[]> {
  const { wallets, journal, ports } = bench
  if (wallets.length === 0) throw new NotSeen('no key of an eligible wallet is given')
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
    `${count} more of questions and wallets without an open authorization would be needed: add --question`,
  )
}

async function sign(
  bench: Parts,
  pair: Pair,
  terms: ProbeTerms = {},
): Promise<JournaledAuthorization> {
  const { ports, journal, trust } = bench
  const { wallet, context } = pair
  const request = requestOf(context)
  const contracts = contractsOf(trust)
  const witness = witnessRound(domainOf(contracts), request, context.bond.token as Hex)
  const price = terms.price ?? priceOf[outcomeFor(context)]
  const amountRaw = terms.amountRaw ?? unexecutableRaw
  checkRisk(bench, amountRaw)
  const deadlineSeconds = terms.deadlineSeconds ?? bench.nowSeconds() + lifeSeconds
  return journal.exclusive(async (view) => {
    const wanted = wantedOf(bench, pair)
    const open = openFor(view.byQuestion(wanted.questionId), wanted, ports.clock.nowMs())
    const rival = open.find(({ id }) => id !== terms.supersede)
    if (rival !== undefined) throw new NotSeen(`${rival.id} holds the question meanwhile`)
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
    if (signing === undefined) throw new Error('a draft was left unsigned')
    if (signing instanceof ProposerError) throw signing
    return signing
  })
}

/**
 * The exchange as it came. Without one nothing is known of what became of it, and the run ends
 * (exit 6 or 75).
 */
async function exchanged(
  { probe, ports: { clock }, signal }: Parts,
  call: () => Promise<SubmitAnswer | undefined>,
): Promise<Seen> {
  for (let tried = 1; ; tried++) {
    const answer = await call()
    const seen = probe.last()
    if (seen === undefined) {
      if (answer === undefined || answer.kind === 'accepted')
        throw new UnavailableError('no_answer', 'nothing came back', 'run `proposer replay`')
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

/** `junk` is appended to what is journaled, because it is nobody's authorization. */
function sendBatch(
  bench: Parts,
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
async function prepareBefore({ probe }: Parts, { signed }: JournaledAuthorization): Promise<void> {
  const { signature: _signature, ...body } = JSON.parse(signed.body)
  for (const outcome of ['p1', 'p2'])
    await probe.send(routes.prepare(signed.questionId, { ...body, outcome }))
}

/** What may be proposed on this question, once the chain, where there is one, and the user agree. */
async function confirmedBet(bench: Parts, { wallet, context }: Pair): Promise<Bet> {
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
  { ports: { clock }, signal }: Parts,
  status: () => Promise<Seen>,
): Promise<Seen> {
  const untilMs = clock.monotonicMs() + longestWaitMs
  for (;;) {
    const seen = await status()
    if (seen.status !== 200) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
    if (hasEnded(seen.json)) return seen
    if (clock.monotonicMs() > untilMs)
      throw new NotSeen(`the candidate did not end in ${longestWaitMs / 1_000} s`)
    await clock.sleep(pauseMs, signal)
  }
}

/** The admissions of one run. */
export function createAdmissions(bench: Parts): Admissions {
  const { probe, signal } = bench
  /** Waited for once, however many rules ask, also where it never came. */
  const ends = new Map<string, Promise<Seen>>()
  /** Questions whose round a run has closed itself. */
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
    const authorization = await sign(bench, pair, terms)
    if (isPrepared) await prepareBefore(bench, authorization)
    const seen = await send(authorization)
    if (at(seen.json, 'error', 'code') === 'proposer_not_eligible')
      throw new NotSeen(`${pair.wallet.address} is not eligible here`)
    return { authorization, pair, seen }
  }

  return {
    sign: (pair, terms) => sign(bench, pair, terms),
    send,
    status,
    sendBatch: (authorizations, junk) => sendBatch(bench, authorizations, junk),
    async sendWrong(terms, fits) {
      const authorization = await sign(bench, await pairOf(fits), terms)
      return { ...(await send(authorization)), journalId: authorization.id }
    },
    async sendStrange() {
      const wallet = bench.strangerWallet
      if (wallet === undefined) throw new NotSeen('no key of a wallet on no list is given')
      const [context] = await bench.open()
      if (context === undefined) throw new NotSeen('no question is open')
      return send(await sign(bench, { wallet, context }))
    },
    first: once(async () => submitted(await pairOf(), {}, true)),
    batch: once(async () => {
      const [one, two] = await pairs(2)
      if (one === undefined || two === undefined) throw new NotSeen('two questions would be needed')
      const terms = { form: 'batch', clientRef: 'conformance' } as const
      const [first, other] = [await sign(bench, one, terms), await sign(bench, two, terms)]
      const junk = [{ ...(await bench.unsignedItem()), proposer: 'nobody' }]
      const malformed = await sendBatch(bench, [first, other], junk)
      const changes = { price: otherPrice(first), supersede: first.id }
      const authorizations = [first, await sign(bench, one, { ...terms, ...changes }), other]
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
