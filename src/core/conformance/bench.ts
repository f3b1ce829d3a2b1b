/**
 * What the checks of one run share, and what they sign, journaled like any other authorization (R4,
 * R6, R8). But for an execution that is wanted, each is for an amount that no wallet holds:
 * SignedProposer pulls the whole permit.amount (domain §2). Those that name too little name one raw
 * unit. No such amount comes from an answer: a gateway that lies about the bond would choose it.
 */
import { type JournaledAuthorization, openFor } from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import { chainChecks, type Form } from '#client/journal/records'
import type { SubmitParts } from '#client/propose/outcome'
import { attempt } from '#client/propose/send'
import { draftOf, signDrafts } from '#client/propose/sign'
import { checkTerms, hashedRound } from '#client/propose/terms'
import { confirmByChain, nowOf } from '#client/trust/context'
import {
  checkContext,
  checkOutcome,
  FactError,
  type QuestionContext,
  signingDataOf,
  type Trust,
} from '#client/trust/trust'
import type { Chain, Ed25519, Hex, Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { priceOf, type Terms, toBatchItem, toSingle } from '#protocol/proposal'
import type { Address, OutcomeKey, SignedProposal } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import { at, Fault, is, isUnseen, NotSeen, notSeen, type Seen } from './answer.js'
import { type Probe, routes } from './probe.js'

export type Tier = 'read' | 'admit' | 'execute' | 'overrun'

export interface Bet {
  readonly context: QuestionContext
  readonly proposer: Address
  readonly outcome: OutcomeKey
  /** Outside text (R20). */
  readonly label: string
  readonly amountRaw: bigint
  readonly bondIsConfirmed: boolean
}

/** `gateway` sends by `probe.fetch`. */
export interface BenchParts extends SubmitParts {
  readonly ed25519: Pick<Ed25519, 'verify'>
  readonly probe: Probe
  readonly trust: Trust
  /** Eligible; none where nothing may be signed. */
  readonly wallets: readonly Signer[]
  readonly questions: readonly { readonly questionId: Hex; readonly slug?: string | undefined }[]
  readonly may: Readonly<Record<Exclude<Tier, 'read'>, boolean>>
  readonly maxAmountRaw?: bigint | undefined
  /** Asked before what executes is signed; a UsageError leaves those checks out. */
  readonly confirmBet?: (bet: Bet) => Promise<void>
  readonly strangerWallet?: Signer | undefined
  readonly chain?: Chain | undefined
  readonly isLocal?: boolean | undefined
  readonly signal?: AbortSignal | undefined
  readonly onNote?: (text: string) => void
}

type Reading = BenchParts & ReturnType<typeof readingOf>
type Signing = Reading & ReturnType<typeof signingOf>
export type Bench = Signing & ReturnType<typeof admissionsOf>

export function createBench(parts: BenchParts): Bench {
  const reading = { ...parts, ...readingOf(parts) }
  const signing = { ...reading, ...signingOf(reading) }
  return { ...signing, ...admissionsOf(signing) }
}

/** More than any token has, and the sum of a few is still a uint256. */
export const unexecutableRaw = 2n ** 128n
export const leastRaw = 1n

function readingOf({ ports, journal, trust, wallets, questions, probe }: BenchParts) {
  const { send } = probe
  const stranger = toHex(ports.random.bytes(20))
  const unknownQuestion = () => toHex(ports.random.bytes(32))
  const nowSeconds = () => Math.floor(ports.clock.nowMs() / 1_000)

  let told: Seen | undefined
  let why = 'no question was given: add --question <id|slug>'
  const usable: QuestionContext[] = []
  const contexts = () => told ?? notSeen(why)
  const open = (): readonly QuestionContext[] => contexts() && usable
  const context = () => usable[0] ?? notSeen(why)

  const termsOf = (context: QuestionContext, wanted: ProbeTerms) => ({
    price: wanted.price ?? priceOf[outcomeFor(context)],
    amount: String(wanted.amountRaw ?? unexecutableRaw),
    nonce: String(journal.nextNonce()),
    // No question should be held for long.
    deadline: String(nowSeconds() + (wanted.lifeSeconds ?? 900)),
  })
  const unsigned = (): Terms & { signature: Hex } => ({
    ...termsOf(context(), { amountRaw: BigInt(context().bond.required_bond) }),
    proposer: wallets[0]?.address ?? stranger,
    signature: `${toHex(ports.random.bytes(64))}1b`,
  })
  const single =
    (route: 'prepare' | 'submit', signature?: { readonly signature: undefined }) =>
    (change: BodyChange = {}, wrong?: string, identifier: string = context().question_id) =>
      routes[route](identifier, changed({ ...toSingle(unsigned()), ...signature }, change), wrong)
  const prepare = single('prepare', { signature: undefined })
  const unsignedItem = (clientRef?: string) =>
    toBatchItem(context().question_id, unsigned(), clientRef)

  return {
    ...{ stranger, unknownQuestion, nowSeconds, send, contexts, context, open, usable },
    ...{ termsOf, unsignedItem, prepare },
    unusable: () => (questions.length > 0 && usable.length === 0 ? why : undefined),
    opened: once(async () => {
      if (questions.length === 0) return
      const identifiers = questions.map(({ questionId }) => questionId)
      const seen = await send(routes.batch('contexts', identifiers)).catch((error: unknown) => {
        if (!isUnseen(error)) throw error
        why = error.message
      })
      if (!seen) return
      told = seen
      why = `none of the questions is open and as pinned (the call for their contexts was answered ${seen.came})`
      const all = seen.results.map((one) => at(one, 'signing_data'))
      for (const { questionId, slug } of questions)
        try {
          const own = read(all.find((one) => at(one, 'question_id') === questionId))
          checkContext(trust, own, nowSeconds())
          usable.push({ ...own, ...(slug && { slug }) })
        } catch (error) {
          if (!(error instanceof UsageError)) throw error
        }
    }),
    submit: single('submit'),
    submitItem: (change: BodyChange, wrong?: string) =>
      routes.batch('proposals', [changed(unsignedItem(), change)], wrong),
    /** More than the bond, so that a gateway which puts its own figure there is seen to. */
    prepared: once(async () => {
      const call = prepare({ permit: { amount: (raw: string) => String(BigInt(raw) + 1n) } })
      return { seen: await send(call), own: context(), body: call.body as SignedProposal }
    }),
  }
}

export type BodyChange =
  | { readonly [field: string]: unknown }
  | ((body: Record<string, unknown> & { permit: Record<string, unknown> }) => unknown)

export function changed(value: unknown, change: unknown): unknown {
  if (typeof change === 'function') return change(is.structure(value) ? value : String(value))
  if (!is.structure(change)) return change
  const members = Object.entries(change).map(([name, one]) => [name, changed(at(value, name), one)])
  return { ...Object(value), ...Object.fromEntries(members) }
}

export const allows = ({ price }: QuestionContext, outcome: OutcomeKey) =>
  price.allowed_values.includes(priceOf[outcome])
export const slugOf = ({ slug }: QuestionContext) =>
  slug ?? notSeen('no slug is pinned for the question')
export const outcomeFor = (context: QuestionContext) =>
  allows(context, 'p1') && !allows(context, 'p2') ? 'p1' : 'p2'

/** With our own types to sign by, or FactError. §2.8 names `identifier.raw` of the request. */
export const read = (data: unknown): QuestionContext => ({
  ...signingDataOf({
    ...Object(data),
    request: { ...Object(at(data, 'request')), identifier: undefined },
    identifier: { raw: at(data, 'identifier.raw') ?? at(data, 'request.identifier.raw') },
    signing: { chain_id: at(data, 'signing.chain_id') },
  }),
  source: 'gateway',
})

/** Fault where the client proper would not sign. `byClock`: our clock alone says so of a round. */
export async function trusting<T>(check: () => T | Promise<T>, byClock = true): Promise<T> {
  try {
    return await check()
  } catch (error) {
    if (error instanceof FactError) throw new Fault(`got a context in which ${error.message}`)
    if (!(error instanceof ProposerError)) throw error
    const isDoubt =
      error.code === 'untrusted_timestamp' ? byClock : !error.code.startsWith('untrusted_')
    throw new (isDoubt ? NotSeen : Fault)(error.detail)
  }
}

export const chainRound = async ({ chain, trust }: Reading, context: QuestionContext) =>
  chain && trusting(() => confirmByChain(chain, trust, context), false)

interface Pair {
  readonly wallet: Signer
  readonly context: QuestionContext
}

export interface ProbeTerms {
  readonly price?: string
  readonly amountRaw?: bigint
  readonly lifeSeconds?: number
  readonly form?: Form
  readonly clientRef?: string
  readonly supersede?: string
}

function signingOf(bench: Reading) {
  const { ports, journal, trust, may, maxAmountRaw, wallets } = bench
  /** Questions on which a proposal executes. */
  const closed = new Set<string>()

  function checkRisk(amountRaw: bigint) {
    if (amountRaw <= leastRaw || amountRaw >= unexecutableRaw) return
    const amount = `${amountRaw} raw units`
    if (!may.execute)
      notSeen(`a wallet can pay ${amount}: that is signed with --allow-execution only`)
    if (maxAmountRaw !== undefined && amountRaw > maxAmountRaw)
      notSeen(`${amount} are more than --max-amount ${maxAmountRaw}`)
  }

  const heldBy = (view: JournalView, { wallet, context: { question_id: questionId } }: Pair) =>
    openFor(
      [...view.byQuestion(questionId), ...view.offers],
      { questionId, proposer: wallet.address, chainId: trust.chain_id },
      ports.clock.nowMs(),
    )

  return {
    closed,
    /** Those that no open authorization holds (R8). */
    async pairs(fits = (_: QuestionContext) => true): Promise<readonly Pair[]> {
      if (wallets.length === 0) notSeen('no key of an eligible wallet was given')
      const view = await journal.load()
      const contexts = bench.open().filter((one) => !closed.has(one.question_id) && fits(one))
      return wallets
        .flatMap((wallet) => contexts.map((context) => ({ wallet, context })))
        .filter((pair) => heldBy(view, pair).length === 0)
    },
    async sign(pair: Pair, terms: ProbeTerms = {}) {
      const { wallet, context } = pair
      const { witness, ref: round } = hashedRound(trust, context)
      return journal.exclusive(async (view) => {
        const rival = heldBy(view, pair).find(({ id }) => id !== terms.supersede)
        if (rival !== undefined) notSeen(`${rival.id} now holds the question`)
        const signed = bench.termsOf(context, terms)
        const { price } = signed
        checkRisk(BigInt(signed.amount))
        const digest = toHex(witness.digest(signed))
        const prepared = { context, price, terms: signed, digest, round, unchecked: chainChecks }
        const intent = { identifier: context.question_id, proposer: wallet.address, ...terms }
        const { draft, entries } = draftOf({ journal, trust }, intent, prepared, view)
        await journal.append(entries)
        const [made] = await signDrafts({ ports, journal }, [draft], wallet, terms.form ?? 'single')
        if (made?.kind !== 'send') throw made?.error
        return made.authorization
      })
    },
    /** By the client proper. A lost answer ends the run (exit 6 or 75). `junk`: one more item. */
    async propose(authorizations: readonly JournaledAuthorization[], junk?: object) {
      const { gateway, probe, signal } = bench
      const end = junk === undefined ? ']}' : `,${JSON.stringify(junk)}]}`
      const withJunk: typeof gateway = {
        ...gateway,
        submitBatch: (body, call) => gateway.submitBatch(body.replace(/\]\}$/, end), call),
      }
      const seen = await probe.sendBy(async () => {
        const parts = { ports, journal, gateway: withJunk }
        return (await attempt(parts, authorizations, { signal })).answers
      })
      // A gateway may look at balance and allowance before it admits; the spec leaves that open.
      const isUnfunded = (json: unknown) =>
        /balance|allowance|fund/.test(String(at(json, 'error.code') ?? ''))
      if ((seen.results.length > 0 ? seen.results : [seen.json]).every(isUnfunded))
        notSeen(`the gateway admits funded proposals only (${seen.came}), and no wallet holds this`)
      return seen
    },
  }
}

/** In our own words, or by what only an end has (§2.6). */
export const hasEnded = (status: Seen) =>
  ['executed', 'failed'].includes(String(status.at('status'))) ||
  is.structure(status.at('failure')) ||
  is.given(status.at('submission.proposal_event_index'))

const longestWaitMs = 90_000

export function candidateIn(acknowledgement: Seen) {
  const id = acknowledgement.at('candidate_id')
  return is.uuid(id) ? id : notSeen(`${acknowledgement.sent} gave no candidate`)
}

export const rivalTo = ({ id, signed }: JournaledAuthorization, supersede = id): ProbeTerms => ({
  price: signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1,
  supersede,
})

const noPair = () =>
  notSeen('another question that fits, without an open authorization, is required: add --question')

function admissionsOf(bench: Signing) {
  const { ports, signal, chain, trust, maxAmountRaw, closed, pairs, sign, propose } = bench

  async function submitted(pair: Pair, authorization: JournaledAuthorization) {
    const seen = await propose([authorization])
    if (seen.at('error.code') === 'proposer_not_eligible')
      notSeen(`${pair.wallet.address} is not eligible here`)
    const questionId = pair.context.question_id
    const ended = once(() => untilEnded(questionId, candidateIn(seen)))
    return { authorization, pair, seen, ack: seen, questionId, ended }
  }

  async function untilEnded(questionId: string, candidateId: string) {
    const untilMs = ports.clock.monotonicMs() + longestWaitMs
    for (;;) {
      const seen = (await bench.send(routes.status(questionId, candidateId))).given(200)
      if (hasEnded(seen)) return seen
      if (!is.word(seen.at('status'))) notSeen(`${seen.sent} gave no status`)
      if (ports.clock.monotonicMs() > untilMs)
        notSeen(`the candidate did not end in ${longestWaitMs / 1_000} s`)
      await ports.clock.sleep(2_000, signal)
    }
  }

  return {
    /** To be refused, the item or the whole call, which frees the question again. */
    async sendWrong(terms: ProbeTerms, wrong: string, fits?: (one: QuestionContext) => boolean) {
      const [pair = noPair()] = await pairs(fits)
      const authorization = await sign(pair, terms)
      const whole = (await propose([authorization])).with(wrong)
      const [status] = whole.codes
      const seen =
        typeof status === 'number' ? whole.as({ status, json: whole.at('results.0') }) : whole
      if (terms.amountRaw !== undefined && seen.status < 300)
        throw seen.fault(
          `: it was admitted and may execute; revoke it with \`proposer revoke ${authorization.id}\``,
        )
      return seen
    },
    /**
     * Its nonce was prepared before, with another outcome too: a preparation must not reserve the
     * nonce, or its wallet's place (§4.1 rule 2).
     */
    firstAdmitted: once(async () => {
      const [pair = noPair()] = await pairs()
      const authorization = await sign(pair)
      for (const outcome of ['p1', 'p2']) {
        const change = { signature: undefined, outcome }
        const body = changed(JSON.parse(authorization.signed.body), change)
        await bench.send(routes.prepare(pair.context.question_id, body))
      }
      return submitted(pair, authorization)
    }),
    /**
     * Three items under one client_ref: two that can be admitted, and between them one in conflict
     * with the first. Before it `malformed`, to be refused as a whole (§4.2 rule 2).
     */
    batchAdmitted: once(async () => {
      const [one = noPair(), two = noPair()] = await pairs()
      const terms = { form: 'batch', clientRef: 'conformance' } as const
      const [first, other] = [await sign(one, terms), await sign(two, terms)]
      const junk = { ...bench.unsignedItem(), proposer: 'nobody' }
      const malformed = await propose([first, other], junk)
      const authorizations = [first, await sign(one, { ...terms, ...rivalTo(first) }), other]
      const seen = await propose(authorizations)
      return { authorizations, questionId: one.context.question_id, seen, malformed }
    }),
    executable: once(async () => {
      const pair = (await pairs()).at(-1) ?? noPair()
      const { wallet, context } = pair
      const bondIsConfirmed = chain !== undefined
      if (chain) await confirmByChain(chain, trust, context)
      const cap = maxAmountRaw === undefined ? {} : { maxAmountRaw }
      const read = { ...context, source: chain ? 'chain' : 'gateway' } as const
      const { amountRaw } = checkTerms(cap, read, await nowOf(bench))
      const outcome = outcomeFor(context)
      const { label } = checkOutcome(trust, context, outcome)
      const proposer = wallet.address
      await bench.confirmBet?.({ context, proposer, outcome, label, amountRaw, bondIsConfirmed })
      closed.add(context.question_id)
      return submitted(pair, await sign(pair, { amountRaw }))
    }),
  }
}
