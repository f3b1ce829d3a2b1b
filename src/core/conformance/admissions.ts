/**
 * What the checks sign, by which wallet and for which question. All of it is journaled like any
 * other authorization (R4, R6, R8). But for the checks that want an execution, each is for an
 * amount that no wallet holds. SignedProposer pulls the whole permit.amount (domain §2), so that it
 * is admitted, fails in validation, and never executes, whoever gets hold of it. Those that name
 * too little name one raw unit. No such amount comes from an answer: the bond is the gateway's
 * word, and one that lies about it would choose what is signed.
 */
import { type JournaledAuthorization, openFor } from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import { chainChecks, type Form } from '#client/journal/records'
import { attempt } from '#client/propose/attempt'
import { draftOf, signDrafts } from '#client/propose/sign'
import { checkTerms, hashedRound } from '#client/propose/terms'
import { confirmByChain, nowOf } from '#client/trust/context'
import { checkOutcome, type QuestionContext } from '#client/trust/trust'
import type { Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { priceOf } from '#protocol/proposal'
import { toHex } from '#protocol/witness'
import { at, is, NotSeen, type Seen } from './answer.js'
import { type BareBench, type BenchParts, bareBench, lifeSeconds, outcomeFor } from './bench.js'
import { routes } from './probe.js'

export interface Pair {
  readonly wallet: Signer
  readonly context: QuestionContext
}
type Fits = (context: QuestionContext) => boolean

export interface ProbeTerms {
  readonly price?: string
  readonly amountRaw?: bigint
  readonly deadlineSeconds?: bigint
  readonly form?: Form
  readonly clientRef?: string
  readonly supersede?: string
}

export type Bench = BareBench & { readonly admissions: ReturnType<typeof createAdmissions> }

export function createBench(parts: BenchParts): Bench {
  const bench = bareBench(parts)
  return { ...bench, admissions: createAdmissions(bench) }
}

/** More than any token has, and the sum of a few is still a uint256. */
export const unexecutableRaw = 2n ** 128n
/**
 * All that a check of the bond risks where the gateway admits it, or has reported a bond that is
 * none.
 */
export const leastRaw = 1n

/** Whether a status tells an end: in our own words, or by what only an end has (§2.6). */
export function hasEnded(status: Seen): boolean {
  const word = status.at('status')
  if (word === 'executed' || word === 'failed' || is.structure(status.at('failure'))) return true
  return is.given(status.at('submission.proposal_event_index'))
}

const pauseMs = 2_000
const longestWaitMs = 90_000
const longestPauseMs = 30_000

/** The candidate id in an acknowledgement, or NotSeen: another check tells that it is missing. */
export function candidateIn({ sent, json }: Pick<Seen, 'sent' | 'json'>): string {
  const id = at(json, 'candidate_id')
  if (is.uuid(id)) return id
  throw new NotSeen(`${sent} gave no candidate`)
}

/** Another price than this one's, in its place. */
export const rivalTo = ({ id, signed }: JournaledAuthorization, supersede = id): ProbeTerms => ({
  price: signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1,
  supersede,
})

/**
 * Sends by the client proper; the exchange as it came. Without one nothing is known of what became
 * of it, and the run ends (exit 6 or 75). `junk`: items that follow in the call. NotSeen where a
 * gateway looks at balance and allowance before it admits; the spec leaves that open.
 */
async function sendAll(
  bench: BareBench,
  authorizations: readonly JournaledAuthorization[],
  junk: readonly unknown[] = [],
): Promise<Seen> {
  const { gateway, probe, signal } = bench
  const more = junk.map((one) => `,${JSON.stringify(one)}`).join('')
  const withJunk: typeof gateway = {
    ...gateway,
    submitBatch: (body, call) => gateway.submitBatch(body.replace(/\]\}$/, `${more}]}`), call),
  }
  const seen = await probe.sendBy(
    authorizations.length + junk.length,
    async () => {
      const parts = { ...bench, gateway: withJunk }
      const { answers } = await attempt(parts, authorizations, { ...(signal && { signal }) })
      return answers[0]
    },
    longestPauseMs,
  )
  const isUnfunded = (json: unknown) =>
    /balance|allowance|fund/.test(String(at(json, 'error.code') ?? ''))
  const { results } = seen
  if (!isUnfunded(seen.json) && !(results.length > 0 && results.every(isUnfunded))) return seen
  throw new NotSeen(
    `the gateway admits funded proposals only (${seen.came}), and these checks sign for more than any wallet holds`,
  )
}

/** What may be proposed on this question, once the chain, where there is one, and the user agree. */
async function confirmedAmount(bench: BareBench, { wallet, context }: Pair) {
  const { chain, trust, maxAmountRaw } = bench
  const nowSeconds = await nowOf(bench)
  const bondIsConfirmed = chain !== undefined
  if (chain !== undefined) await confirmByChain(chain, trust, context)
  const cap = maxAmountRaw === undefined ? {} : { maxAmountRaw }
  const { amountRaw } = checkTerms(cap, context, nowSeconds, bondIsConfirmed)
  const outcome = outcomeFor(context)
  const { label } = checkOutcome(trust, context, outcome)
  const proposer = wallet.address
  await bench.confirmBet?.({ context, proposer, outcome, label, amountRaw, bondIsConfirmed })
  return amountRaw
}

function createAdmissions(bench: BareBench) {
  const { ports, signal } = bench
  const ends = new Map<string, Promise<Seen>>()
  let closed: string | undefined

  const pairs = (count: number, fits: Fits = () => true, isLast = false) =>
    freePairs(bench, count, (one) => one.question_id !== closed && fits(one), isLast)
  const sign = (pair: Pair, terms?: ProbeTerms) => signWith(bench, pair, terms)
  const send = (...authorizations: readonly JournaledAuthorization[]) =>
    sendAll(bench, authorizations)
  const status = (questionId: string, candidateId: string) =>
    bench.send(routes.status(questionId, candidateId))

  async function submitted(pair: Pair, authorization: JournaledAuthorization) {
    const seen = await send(authorization)
    if (seen.at('error.code') === 'proposer_not_eligible')
      throw new NotSeen(`${pair.wallet.address} is not eligible here`)
    return { authorization, pair, seen, questionId: pair.context.question_id }
  }

  async function untilEnded(questionId: string, candidateId: string): Promise<Seen> {
    const untilMs = ports.clock.monotonicMs() + longestWaitMs
    for (;;) {
      const seen = (await status(questionId, candidateId)).given(200)
      if (hasEnded(seen)) return seen
      // What tells no status at all tells no end either.
      if (!is.word(seen.at('status'))) throw new NotSeen(`${seen.sent} gave no status`)
      if (ports.clock.monotonicMs() > untilMs)
        throw new NotSeen(`the candidate did not end in ${longestWaitMs / 1_000} s`)
      await ports.clock.sleep(pauseMs, signal)
    }
  }

  return {
    sign,
    send,
    status,
    /** Signs with something wrong in it; a refusal frees the question again. */
    async sendWrong(terms: ProbeTerms, fits?: Fits) {
      const authorization = await sign((await pairs(1, fits))[0], terms)
      return { seen: await send(authorization), journalId: authorization.id }
    },
    /** By a wallet that is on no list, for an amount that nobody holds. */
    async sendStrange() {
      const wallet = bench.strangerWallet
      if (wallet === undefined)
        throw new NotSeen('no key of a wallet outside the allowlist was given')
      const [context] = await bench.open()
      if (context === undefined) throw new NotSeen('no question is open')
      return send(await sign({ wallet, context }))
    },
    /**
     * Its nonce was prepared before, with another outcome too: a preparation must not reserve the
     * nonce, or its wallet's place (§4.1 rule 2).
     */
    first: once(async () => {
      const [pair] = await pairs(1)
      const authorization = await sign(pair)
      const { signature: _signature, ...body } = JSON.parse(authorization.signed.body)
      for (const outcome of ['p1', 'p2'])
        await bench.send(routes.prepare(pair.context.question_id, { ...body, outcome }))
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
      const [first, other] = [await sign(one, terms), await sign(two, terms)]
      const junk = [{ ...(await bench.unsignedItem()), proposer: 'nobody' }]
      /** To be refused as a whole (§4.2 rule 2). */
      const malformed = await sendAll(bench, [first, other], junk)
      const authorizations = [first, await sign(one, { ...terms, ...rivalTo(first) }), other]
      const seen = await send(...authorizations)
      return { authorizations, questionId: one.context.question_id, seen, malformed }
    }),
    executable: once(async () => {
      const [pair] = await pairs(1, undefined, true)
      try {
        const amountRaw = await confirmedAmount(bench, pair)
        closed = pair.context.question_id
        return await submitted(pair, await sign(pair, { amountRaw }))
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

function checkRisk({ may, maxAmountRaw }: BareBench, amountRaw: bigint) {
  if (amountRaw <= leastRaw || amountRaw >= unexecutableRaw) return
  if (!may.execute)
    throw new NotSeen(
      `a wallet can pay ${amountRaw} raw units: such a proposal is signed with --allow-execution only`,
    )
  if (maxAmountRaw === undefined || amountRaw <= maxAmountRaw) return
  throw new NotSeen(`${amountRaw} raw units are more than --max-amount ${maxAmountRaw}`)
}

/** What holds a question for a wallet: open authorizations, and offers that may be signed yet. */
function heldBy(bench: BareBench, view: JournalView, { wallet, context }: Pair) {
  const nowMs = bench.ports.clock.nowMs()
  const questionId = context.question_id
  const wanted = { questionId, proposer: wallet.address, chainId: bench.trust.chain_id }
  const open = openFor(view.byQuestion(questionId), wanted, nowMs)
  return { open, offers: openFor(view.offers, wanted, nowMs) }
}

/** Wallets and questions that no open authorization holds (R8); NotSeen where there are fewer. */
async function freePairs(
  bench: BareBench,
  count: number,
  fits: Fits,
  isLast: boolean,
): Promise<readonly [Pair, ...Pair[]]> {
  const { wallets, journal } = bench
  if (wallets.length === 0) throw new NotSeen('no key of an eligible wallet was given')
  const view = await journal.load()
  const contexts = (await bench.open()).filter(fits)
  const all = wallets.flatMap((wallet) => contexts.map((context) => ({ wallet, context })))
  const free = all.filter((pair) => {
    const { open, offers } = heldBy(bench, view, pair)
    return open.length === 0 && offers.length === 0
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
  const { witness, ref: round } = hashedRound(trust, context)
  const price = terms.price ?? priceOf[outcomeFor(context)]
  const amountRaw = terms.amountRaw ?? unexecutableRaw
  checkRisk(bench, amountRaw)
  const deadlineSeconds = terms.deadlineSeconds ?? bench.nowSeconds() + lifeSeconds
  return journal.exclusive(async (view) => {
    const rival = heldBy(bench, view, pair).open.find(({ id }) => id !== terms.supersede)
    if (rival !== undefined) throw new NotSeen(`${rival.id} now holds the question`)
    const nonce = journal.nextNonce()
    const [amount, deadline] = [String(amountRaw), String(deadlineSeconds)]
    const digest = toHex(witness.digest({ price, amount, nonce: String(nonce), deadline }))
    const prepared = {
      ...{ context, price, amountRaw, nonce, deadlineSeconds, digest },
      ...{ round, unchecked: chainChecks },
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
