/**
 * What the checks sign, by which wallet and for which question. All of it is journaled like any
 * other authorization (R4, R6, R8). But for the checks that want an execution, each is for an
 * amount that no wallet holds. SignedProposer pulls the whole permit.amount (domain §2), so that it
 * is admitted, fails in validation, and never executes, whoever gets hold of it. Those that name
 * too little name one raw unit. No such amount comes from an answer: the bond is the gateway's
 * word, and one that lies about it would choose what is signed.
 */

import { answerError } from '#client/gateway/answer'
import { type JournaledAuthorization, offersFor, openFor } from '#client/journal/authorizations'
import { chainChecks, type Form } from '#client/journal/records'
import { attempt } from '#client/propose/attempt'
import { draftOf, signDrafts } from '#client/propose/sign'
import { checkTerms, hashedRound } from '#client/propose/terms'
import { chainNow, confirmByChain } from '#client/trust/context'
import { checkOutcome, type QuestionContext } from '#client/trust/trust'
import type { Signer } from '#ports'
import { ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { priceOf } from '#protocol/proposal'
import { toHex } from '#protocol/witness'
import { type BareBench, lifeSeconds, outcomeFor } from './bench.js'
import { routes, untilServed } from './probe.js'
import { at, came, is, NotSeen, resultsIn, type Seen } from './rule.js'

export interface Pair {
  readonly wallet: Signer
  readonly context: QuestionContext
}
type Fits = (context: QuestionContext) => boolean

export interface SentProbe {
  readonly authorization: JournaledAuthorization
  readonly pair: Pair
  readonly seen: Seen
}

export interface ProbeTerms {
  readonly price?: string
  readonly amountRaw?: bigint
  readonly deadlineSeconds?: bigint
  readonly form?: Form
  readonly clientRef?: string
  readonly supersede?: string
}

/** More than any token has, and the sum of a few is still a uint256. */
export const unexecutableRaw = 2n ** 128n
/**
 * All that a check of the bond risks where the gateway admits it, or has reported a bond that is
 * none.
 */
export const leastRaw = 1n

export const places = { first: 0, rival: 1, other: 2 } as const

/** Whether a status tells an end: in our own words, or by what only an end has (§2.6). */
export function hasEnded(status: unknown): boolean {
  const word = at(status, 'status')
  if (word === 'executed' || word === 'failed' || is.structure(at(status, 'failure'))) return true
  return is.given(at(status, 'submission.proposal_event_index'))
}

const pauseMs = 2_000
const longestWaitMs = 90_000
const longestPauseMs = 30_000

/** The candidate id in an acknowledgement, or NotSeen: another check tells that it is missing. */
export function candidateIn(json: unknown, sent: string): string {
  const id = at(json, 'candidate_id')
  if (is.uuid(id)) return id
  throw new NotSeen(`${sent} gave no candidate`)
}

export const otherPrice = ({ signed }: JournaledAuthorization): string =>
  signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1

/**
 * NotSeen where a gateway looks at balance and allowance before it admits; the spec leaves that
 * open.
 */
function expectFunded(seen: Seen): Seen {
  const results = resultsIn(seen.json)
  const isUnfunded = (json: unknown) =>
    /balance|allowance|fund/.test(String(at(json, 'error.code') ?? ''))
  if (!isUnfunded(seen.json) && !(results.length > 0 && results.every(isUnfunded))) return seen
  throw new NotSeen(
    `the gateway admits funded proposals only (${came(seen)}), and these checks sign for more than any wallet holds`,
  )
}

/**
 * Sends by the client proper; the exchange as it came. Without one nothing is known of what became
 * of it, and the run ends (exit 6 or 75). `junk`: items that follow in the call.
 */
async function sendAll(
  bench: BareBench,
  authorizations: readonly JournaledAuthorization[],
  junk: readonly unknown[] = [],
): Promise<Seen> {
  const { gateway, ports, probe, signal } = bench
  const waiting = signal ? { signal } : {}
  const more = junk.map((one) => `,${JSON.stringify(one)}`).join('')
  const withJunk: typeof gateway = {
    ...gateway,
    submitBatch: (body, call) => gateway.submitBatch(body.replace(/\]\}$/, `${more}]}`), call),
  }
  const exchange = async () => {
    const { answers } = await attempt({ ...bench, gateway: withJunk }, authorizations, waiting)
    const [seen, answer] = [probe.last(), answers[0]]
    if (seen !== undefined) return seen
    if (answer !== undefined && answer.kind !== 'accepted') throw answerError(answer, 'submit')
    throw new UnavailableError('no_answer', 'no response', 'run `proposer replay`')
  }
  const parts = { clock: ports.clock, ...waiting }
  return expectFunded(await untilServed(parts, exchange, undefined, longestPauseMs))
}

/** What may be proposed on this question, once the chain, where there is one, and the user agree. */
async function confirmedAmount(bench: BareBench, { wallet, context }: Pair): Promise<bigint> {
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
  await bench.confirmBet?.({ context, proposer, outcome, label, amountRaw, bondIsConfirmed })
  return amountRaw
}

/** The admissions of one run. */
export function createAdmissions(bench: BareBench) {
  const { probe, ports, signal } = bench
  const ends = new Map<string, Promise<Seen>>()
  const closed = new Set<string>()

  const pairs = (count: number, fits: Fits = () => true, isLast = false) =>
    freePairs(bench, count, (one) => !closed.has(one.question_id) && fits(one), isLast)
  const send = (authorization: JournaledAuthorization) => sendAll(bench, [authorization])
  const status = (questionId: string, candidateId: string) =>
    probe.send(routes.status(questionId, candidateId))

  async function submitted(pair: Pair, authorization: JournaledAuthorization): Promise<SentProbe> {
    const seen = await send(authorization)
    if (at(seen.json, 'error.code') === 'proposer_not_eligible')
      throw new NotSeen(`${pair.wallet.address} is not eligible here`)
    return { authorization, pair, seen }
  }

  async function untilEnded(questionId: string, candidateId: string): Promise<Seen> {
    const untilMs = ports.clock.monotonicMs() + longestWaitMs
    for (;;) {
      const seen = await status(questionId, candidateId)
      if (seen.status !== 200) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
      if (hasEnded(seen.json)) return seen
      // What tells no status at all tells no end either.
      if (!is.word(at(seen.json, 'status'))) throw new NotSeen(`${seen.sent} gave no status`)
      if (ports.clock.monotonicMs() > untilMs)
        throw new NotSeen(`the candidate did not end in ${longestWaitMs / 1_000} s`)
      await ports.clock.sleep(pauseMs, signal)
    }
  }

  return {
    sign: (pair: Pair, terms?: ProbeTerms) => signWith(bench, pair, terms),
    send,
    status,
    sendBatch: (authorizations: readonly JournaledAuthorization[]) =>
      sendAll(bench, authorizations),
    /** Signs with something wrong in it; a refusal frees the question again. */
    async sendWrong(terms: ProbeTerms, fits?: Fits) {
      const authorization = await signWith(bench, (await pairs(1, fits))[0], terms)
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
    /**
     * Its nonce was prepared before, with another outcome too: a preparation must not reserve the
     * nonce, or its wallet's place (§4.1 rule 2).
     */
    first: once(async () => {
      const [pair] = await pairs(1)
      const authorization = await signWith(bench, pair)
      const { signature: _signature, ...body } = JSON.parse(authorization.signed.body)
      for (const outcome of ['p1', 'p2'])
        await probe.send(routes.prepare(pair.context.question_id, { ...body, outcome }))
      return submitted(pair, authorization)
    }),
    /**
     * One call of three items under one client_ref: two that can be admitted, and between them one
     * in conflict with the first.
     */
    batch: once(async () => {
      const [one, two] = await pairs(2)
      if (two === undefined) throw new NotSeen('two questions are required')
      const terms = { form: 'batch', clientRef: 'conformance' } as const
      const [first, other] = [await signWith(bench, one, terms), await signWith(bench, two, terms)]
      const junk = [{ ...(await bench.unsignedItem()), proposer: 'nobody' }]
      /** To be refused as a whole (§4.2 rule 2). */
      const malformed = await sendAll(bench, [first, other], junk)
      const changes = { price: otherPrice(first), supersede: first.id }
      const authorizations = [first, await signWith(bench, one, { ...terms, ...changes }), other]
      const seen = await sendAll(bench, authorizations)
      return { authorizations, pairs: [one, one, two], seen, malformed }
    }),
    executable: once(async () => {
      const [pair] = await pairs(1, undefined, true)
      try {
        const amountRaw = await confirmedAmount(bench, pair)
        closed.add(pair.context.question_id)
        return await submitted(pair, await signWith(bench, pair, { amountRaw }))
      } catch (error) {
        if (error instanceof UsageError) throw new NotSeen(error.detail)
        throw error
      }
    }),
    ended(questionId: string, candidateId: string): Promise<Seen> {
      const known = ends.get(candidateId) ?? untilEnded(questionId, candidateId)
      ends.set(candidateId, known)
      return known
    },
  }
}

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
async function freePairs(
  bench: BareBench,
  count: number,
  fits: Fits,
  isLast: boolean,
): Promise<readonly [Pair, ...Pair[]]> {
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
  const [first, ...others] = isLast ? free.slice(-count) : free.slice(0, count)
  if (first !== undefined && others.length === count - 1) return [first, ...others]
  throw new NotSeen(
    `${count} more of questions and wallets without an open authorization are required: add --question`,
  )
}

/** Reserves a nonce and signs, journaled; NotSeen where the question is held meanwhile. */
async function signWith(
  bench: BareBench,
  pair: Pair,
  terms: ProbeTerms = {},
): Promise<JournaledAuthorization> {
  const { ports, journal, trust } = bench
  const { wallet, context } = pair
  const { witness, ref } = hashedRound(trust, context)
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
    const [amount, deadline] = [String(amountRaw), String(deadlineSeconds)]
    const digest = toHex(witness.digest({ price, amount, nonce: String(nonce), deadline }))
    const prepared = {
      ...{ context, price, amountRaw, nonce, deadlineSeconds, digest },
      ...{ round: ref, unchecked: chainChecks },
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
