/**
 * What the checks of one run share, and what they sign, by which wallet and for which question. All
 * of it is journaled like any other authorization (R4, R6, R8). But for the checks that want an
 * execution, each is for an amount that no wallet holds. SignedProposer pulls the whole
 * permit.amount (domain §2), so that it is admitted, fails in validation, and never executes,
 * whoever gets hold of it. Those that name too little name one raw unit. No such amount comes from
 * an answer: the bond is the gateway's word, and one that lies about it would choose what is signed.
 */
import type { GatewayClient } from '#client/gateway/gateway-client'
import { type JournaledAuthorization, openFor } from '#client/journal/authorizations'
import type { Journal, JournalPorts, JournalView } from '#client/journal/journal'
import { chainChecks, type Form } from '#client/journal/records'
import { attempt } from '#client/propose/attempt'
import { draftOf, signDrafts } from '#client/propose/sign'
import { checkTerms, hashedRound } from '#client/propose/terms'
import { confirmByChain, nowOf } from '#client/trust/context'
import {
  checkContext,
  checkOutcome,
  contractsOf,
  FactError,
  type QuestionContext,
  signingDataOf,
  type Trust,
} from '#client/trust/trust'
import type { Chain, Ed25519, Hex, Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { priceOf, type Terms, toBatchItem, toSingle } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import { at, integer, is, isUnseen, listAt, NotSeen, notSeen, type Seen } from './answer.js'
import { type Probe, routes } from './probe.js'

/**
 * What a check may do. `read`: nothing that could be admitted. `admit`: signs, but only what cannot
 * execute. `execute`: a proposal that goes on chain. `overrun`: spends more than the budget, and
 * waits it out.
 */
export type Tier = 'read' | 'admit' | 'execute' | 'overrun'

export interface Bet {
  readonly context: QuestionContext
  readonly proposer: Address
  readonly outcome: OutcomeKey
  /** What the question calls this outcome: outside text, to be escaped before it is shown (R20). */
  readonly label: string
  readonly amountRaw: bigint
  /** A chain of ours names this bond, not the gateway alone. */
  readonly bondIsConfirmed: boolean
}

export interface BenchParts {
  readonly ports: JournalPorts
  readonly ed25519: Pick<Ed25519, 'verify'>
  readonly journal: Journal
  readonly probe: Probe
  /** Its calls are charged, and go by `probe.fetch`. */
  readonly gateway: GatewayClient
  readonly trust: Trust
  /** Eligible wallets, by keys that sign digests; none where nothing may be signed. */
  readonly wallets: readonly Signer[]
  readonly questions: readonly { readonly questionId: Hex; readonly slug?: string | undefined }[]
  readonly may: Readonly<Record<Exclude<Tier, 'read'>, boolean>>
  /** Cap on what an authorization that a wallet could pay may name, raw token units. */
  readonly maxAmountRaw?: bigint | undefined
  /** Asked about what executes before it is signed; a UsageError of it leaves those checks out. */
  readonly confirmBet?: (bet: Bet) => Promise<void>
  readonly strangerWallet?: Signer | undefined
  /** A chain of ours: what the gateway tells of the chain is held against it. */
  readonly chain?: Chain | undefined
  /** In process nothing is charged (contract §6). */
  readonly isLocal?: boolean | undefined
  readonly signal?: AbortSignal | undefined
  readonly onNote?: (text: string) => void
}

type BareBench = ReturnType<typeof bareBench>

/**
 * How long the permits of a run live: the gateway wants five minutes beyond admission (§2.1), and
 * they should not hold questions for long.
 */
const lifeSeconds = 900n

function bareBench(parts: BenchParts) {
  const { ports, journal, trust, wallets, questions } = parts
  const { send } = parts.probe
  const randomHex = (bytes: number) => toHex(ports.random.bytes(bytes))
  const stranger = randomHex(20)
  const proposer = wallets[0]?.address ?? stranger
  const nowSeconds = () => BigInt(Math.floor(ports.clock.nowMs() / 1_000))

  /** Why it is not what the pins say. */
  const distrust = (own: QuestionContext) =>
    errorOf(UsageError, () => void checkContext(trust, own, { nowSeconds: Number(nowSeconds()) }))

  let told: Seen | Error = new NotSeen('no question was given: add --question <id|slug>')
  const usable: QuestionContext[] = []
  const contexts = () => {
    if (told instanceof Error) throw told
    return told
  }
  const open = (): readonly QuestionContext[] => contexts() && usable
  const context = () =>
    open()[0] ??
    notSeen(
      `none of the questions is open and as pinned (the call for their contexts was answered ${contexts().came})`,
    )

  /** Of the first wallet and question; the signature authorizes nothing. */
  const terms = (): Terms & { signature: Hex } => ({
    proposer,
    price: priceOf[outcomeFor(context())],
    amount: context().bond.required_bond,
    nonce: String(journal.nextNonce()),
    deadline: String(nowSeconds() + lifeSeconds),
    signature: `${randomHex(64)}1b`,
  })
  const proposal = () => {
    const { signature: _signature, ...body } = toSingle(terms())
    return body
  }
  const unsignedItem = (clientRef?: string) =>
    toBatchItem(context().question_id, terms(), clientRef)

  return {
    ...parts,
    stranger,
    nowSeconds,
    send,
    /** Asks for the contexts of the questions, before all checks; what comes of it is theirs. */
    opened: once(async () => {
      if (questions.length === 0) return
      const identifiers = questions.map(({ questionId }) => questionId)
      told = await send(routes.batch('contexts', identifiers)).catch((error: unknown) => {
        if (isUnseen(error)) return error
        throw error
      })
      if (told instanceof Error) return
      const actual = told.results.map((one) => at(one, 'signing_data'))
      for (const { questionId, slug } of questions) {
        const own = read(actual.find((one) => at(one, 'question_id') === questionId))
        if (!(own instanceof FactError) && distrust(own) === undefined)
          usable.push({ ...own, ...(slug && { slug }) })
      }
    }),
    contexts,
    read,
    distrust,
    open,
    context,
    hasContext: () => usable.length > 0,
    /** Why there is no context, where questions were given. */
    unusable: () =>
      questions.length === 0 ? undefined : errorOf(NotSeen, () => void context())?.message,
    proposal,
    /** Calls whose body is changed, and what is wrong with it. */
    prepare: (change: BodyChange = {}, wrong?: string) =>
      routes.prepare(context().question_id, changed(proposal(), change), wrong),
    submit: (change: BodyChange = {}, wrong?: string) =>
      routes.submit(context().question_id, changed(toSingle(terms()), change), wrong),
    submitItem: (change: BodyChange, wrong?: string) =>
      routes.batch('proposals', [changed(unsignedItem(), change)], wrong),
    unsignedItem,
    /** More than the bond, so that a gateway which puts its own figure there is seen to. */
    prepared: once(async () => {
      const own = context()
      const { permit, ...rest } = proposal()
      const body = { ...rest, permit: { ...permit, amount: String(BigInt(permit.amount) + 1n) } }
      return { seen: await send(routes.prepare(own.question_id, body)), own, body }
    }),
  }
}

/** Members of a body: another value, `undefined` for none, or what is made of the text there was. */
export type BodyChange =
  | { readonly [field: string]: unknown }
  | ((body: Record<string, unknown> & { permit: Record<string, unknown> }) => unknown)

export function changed(value: unknown, change: unknown): unknown {
  if (typeof change === 'function') return change(is.structure(value) ? value : String(value))
  if (!is.structure(change)) return change
  const members = Object.entries(change).map(([name, one]) => [name, changed(at(value, name), one)])
  return { ...(is.structure(value) && value), ...Object.fromEntries(members) }
}

export const outcomeFor = ({ price }: QuestionContext): OutcomeKey =>
  price.allowed_values.includes(priceOf.p2) || !price.allowed_values.includes(priceOf.p1)
    ? 'p2'
    : 'p1'

export const lacksHalf = ({ price }: QuestionContext) => !price.allowed_values.includes(priceOf.p3)

export async function chainRound({ chain, trust }: BareBench, questionId: Hex) {
  if (chain === undefined) return undefined
  const { createRoundReader } = await import('#chain/questions')
  return createRoundReader(chain, contractsOf(trust)).read(questionId)
}

/** `identifier.raw`: §2.7 names it beside the request, §2.8 of the request. */
export const rawIdentifier = (data: unknown): unknown =>
  at(data, 'identifier.raw') ?? at(data, 'request.identifier.raw')

/** What the request of a context or of signing data says, in one form. */
export function requestFacts(request: unknown) {
  const identifier = at(request, 'identifier')
  return {
    oracle: at(request, 'oracle'),
    requester: at(request, 'requester'),
    identifier: is.text(identifier)
      ? identifier
      : (at(identifier, 'raw') ?? at(request, '~identifier')),
    timestamp: integer(at(request, '~timestamp')),
    ancillary_data: at(request, '~ancillary'),
  }
}

/**
 * A context, with our own types to sign by; or what is missing. Each fact must stand in its own
 * place, unlike what the client proper takes.
 */
function read(data: unknown): QuestionContext | FactError {
  const prices = listAt(data, 'price.allowed_values')
  const facts = {
    question_id: at(data, 'question_id'),
    request: { ...requestFacts(at(data, 'request')), identifier: undefined },
    identifier: { raw: rawIdentifier(data) },
    price: { allowed_values: prices.flatMap((price) => integer(price) ?? []) },
    bond: at(data, 'bond'),
    contracts: at(data, 'contracts'),
    signing: { chain_id: at(data, 'signing.chain_id') },
  }
  return errorOf(FactError, () => ({ ...signingDataOf(facts), source: 'gateway' }))
}

/** What is done, or the error of this kind that it ended with. */
function errorOf<T, E extends Error>(kind: new (...given: never[]) => E, act: () => T): T | E {
  try {
    return act()
  } catch (error) {
    if (error instanceof kind) return error
    throw error
  }
}

interface Pair {
  readonly wallet: Signer
  readonly context: QuestionContext
}
type Fits = (context: QuestionContext) => boolean

export interface ProbeTerms {
  readonly price?: string
  readonly amountRaw?: bigint
  readonly lifeSeconds?: bigint
  readonly form?: Form
  readonly clientRef?: string
  readonly supersede?: string
}

export type Bench = BareBench & ReturnType<typeof admissionsOf>

export function createBench(parts: BenchParts): Bench {
  const bench = bareBench(parts)
  return { ...bench, ...admissionsOf(bench) }
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

/** The candidate id in an acknowledgement, or NotSeen: another check tells that it is missing. */
export function candidateIn({ sent, json }: Pick<Seen, 'sent' | 'json'>): string {
  const id = at(json, 'candidate_id')
  return is.uuid(id) ? id : notSeen(`${sent} gave no candidate`)
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
  const seen = await probe.sendBy(async () => {
    const parts = { ...bench, gateway: withJunk }
    const { answers } = await attempt(parts, authorizations, { ...(signal && { signal }) })
    return answers[0]
  })
  const isUnfunded = (json: unknown) =>
    /balance|allowance|fund/.test(String(at(json, 'error.code') ?? ''))
  const { results } = seen
  if (!isUnfunded(seen.json) && !(results.length > 0 && results.every(isUnfunded))) return seen
  notSeen(
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

function admissionsOf(bench: BareBench) {
  const { ports, signal } = bench
  let closed: string | undefined

  const { pairs, sign } = signingOf(bench)
  const isFree: Fits = ({ question_id }) => question_id !== closed
  const propose = (...authorizations: readonly JournaledAuthorization[]) =>
    sendAll(bench, authorizations)
  const status = (questionId: string, candidateId: string) =>
    bench.send(routes.status(questionId, candidateId))

  async function submitted(pair: Pair, authorization: JournaledAuthorization) {
    const seen = await propose(authorization)
    if (seen.at('error.code') === 'proposer_not_eligible')
      notSeen(`${pair.wallet.address} is not eligible here`)
    const questionId = pair.context.question_id
    const ended = once(() => untilEnded(questionId, candidateIn(seen)))
    return { authorization, pair, seen, questionId, ended }
  }

  async function untilEnded(questionId: string, candidateId: string): Promise<Seen> {
    const untilMs = ports.clock.monotonicMs() + longestWaitMs
    for (;;) {
      const seen = (await status(questionId, candidateId)).given(200)
      if (hasEnded(seen)) return seen
      // What tells no status at all tells no end either.
      if (!is.word(seen.at('status'))) notSeen(`${seen.sent} gave no status`)
      if (ports.clock.monotonicMs() > untilMs)
        notSeen(`the candidate did not end in ${longestWaitMs / 1_000} s`)
      await ports.clock.sleep(pauseMs, signal)
    }
  }

  return {
    sign,
    propose,
    status,
    /**
     * Signs with something wrong in it; a refusal, which is an item's own or the whole call's, frees
     * the question again.
     */
    async sendWrong(terms: ProbeTerms, wrong: string, fits: Fits) {
      if (!bench.open().some(fits)) notSeen(`no given question makes this wrong: ${wrong}`)
      const [pair] = await pairs(1, (one) => isFree(one) && fits(one))
      const authorization = await sign(pair, terms)
      const seen = (await propose(authorization)).with(wrong)
      const [status] = seen.codes
      const own = typeof status === 'number' ? { status, json: seen.at('results.0') } : {}
      return { seen: seen.as(own), journalId: authorization.id }
    },
    /** By a wallet that is on no list, for an amount that nobody holds. */
    async sendStrange() {
      const wallet =
        bench.strangerWallet ?? notSeen('no key of a wallet outside the allowlist was given')
      const context = bench.open()[0] ?? notSeen('no question is open')
      return propose(await sign({ wallet, context }))
    },
    /**
     * Its nonce was prepared before, with another outcome too: a preparation must not reserve the
     * nonce, or its wallet's place (§4.1 rule 2).
     */
    firstAdmitted: once(async () => {
      const [pair] = await pairs(1, isFree)
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
    batchAdmitted: once(async () => {
      const [one, two = notSeen('two questions are required')] = await pairs(2, isFree)
      const terms = { form: 'batch', clientRef: 'conformance' } as const
      const [first, other] = [await sign(one, terms), await sign(two, terms)]
      const junk = [{ ...bench.unsignedItem(), proposer: 'nobody' }]
      /** To be refused as a whole (§4.2 rule 2). */
      const malformed = await sendAll(bench, [first, other], junk)
      const authorizations = [first, await sign(one, { ...terms, ...rivalTo(first) }), other]
      const seen = await propose(...authorizations)
      return { authorizations, questionId: one.context.question_id, seen, malformed }
    }),
    executable: once(async () => {
      const [pair] = await pairs(1, isFree, true)
      try {
        const amountRaw = await confirmedAmount(bench, pair)
        closed = pair.context.question_id
        return await submitted(pair, await sign(pair, { amountRaw }))
      } catch (error) {
        if (error instanceof UsageError) notSeen(error.detail)
        throw error
      }
    }),
  }
}

/** Which wallets and questions are free, and signing for them. */
function signingOf(bench: BareBench) {
  const { ports, journal, trust, may, maxAmountRaw, wallets } = bench

  function checkRisk(amountRaw: bigint) {
    if (amountRaw <= leastRaw || amountRaw >= unexecutableRaw) return
    if (!may.execute)
      notSeen(
        `a wallet can pay ${amountRaw} raw units: such a proposal is signed with --allow-execution only`,
      )
    if (maxAmountRaw !== undefined && amountRaw > maxAmountRaw)
      notSeen(`${amountRaw} raw units are more than --max-amount ${maxAmountRaw}`)
  }

  /** What holds a question for a wallet: open authorizations, and offers that may be signed yet. */
  function heldBy(view: JournalView, { wallet, context }: Pair) {
    const questionId = context.question_id
    const wanted = { questionId, proposer: wallet.address, chainId: trust.chain_id }
    const nowMs = ports.clock.nowMs()
    const open = openFor(view.byQuestion(questionId), wanted, nowMs)
    return { open, offers: openFor(view.offers, wanted, nowMs) }
  }

  return {
    /** Those that no open authorization holds (R8); NotSeen where there are fewer. */
    async pairs(count: number, fits: Fits, isLast = false): Promise<readonly [Pair, ...Pair[]]> {
      if (wallets.length === 0) notSeen('no key of an eligible wallet was given')
      const view = await journal.load()
      const contexts = bench.open().filter(fits)
      const free = wallets
        .flatMap((wallet) => contexts.map((context) => ({ wallet, context })))
        .filter((pair) => Object.values(heldBy(view, pair)).every(({ length }) => length === 0))
      const [first, ...others] = isLast ? free.slice(-count) : free.slice(0, count)
      if (first !== undefined && others.length === count - 1) return [first, ...others]
      notSeen(
        `${count} more of questions and wallets without an open authorization are required: add --question`,
      )
    },
    /** Reserves a nonce and signs, journaled; NotSeen where the question is held meanwhile. */
    async sign(pair: Pair, terms: ProbeTerms = {}): Promise<JournaledAuthorization> {
      const { wallet, context } = pair
      const { witness, ref: round } = hashedRound(trust, context)
      const price = terms.price ?? priceOf[outcomeFor(context)]
      const amountRaw = terms.amountRaw ?? unexecutableRaw
      checkRisk(amountRaw)
      const deadlineSeconds = bench.nowSeconds() + (terms.lifeSeconds ?? lifeSeconds)
      return journal.exclusive(async (view) => {
        const rival = heldBy(view, pair).open.find(({ id }) => id !== terms.supersede)
        if (rival !== undefined) notSeen(`${rival.id} now holds the question`)
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
    },
  }
}
