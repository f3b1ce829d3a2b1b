/**
 * What rules share, sign and follow. Authorizations are journaled like any other (R4, R6, R8). But
 * for a wanted execution they are for more than any wallet holds, as SignedProposer pulls the whole
 * permit.amount (domain §2), or for one raw unit: never for what a lying gateway chooses.
 */
import {
  chainChecks,
  type Form,
  type JournaledAuthorization,
  openFor,
} from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import { hashedRound } from '#client/propose/intent'
import { attempt, type SubmitParts } from '#client/propose/send'
import { draftOf, signDrafts } from '#client/propose/sign'
import { confirmByChain } from '#client/trust/context'
import {
  checkContext,
  FactError,
  type QuestionContext,
  signingDataOf,
  type Trust,
} from '#client/trust/trust'
import type { Chain, Ed25519, Hex, Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import { priceOf, toBatchItem, toSingle } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import {
  at,
  batchOf,
  type Demand,
  eligibilityOf,
  Fault,
  is,
  notSeen,
  type Probe,
  type ProbeCall,
  post,
  Seen,
} from './probe.js'

export type Tier = 'read' | 'admit' | 'execute' | 'overrun'

export type Bet = Readonly<{
  context: QuestionContext
  proposer: Address
  outcome: OutcomeKey
  /** Outside text (R20). */
  label: string
  amountRaw: bigint
  bondIsConfirmed: boolean
}>

/** `gateway` sends by `probe.fetch`. */
export type BenchParts = Readonly<{
  ed25519: Pick<Ed25519, 'verify'>
  probe: Probe
  trust: Trust
  /** Eligible; none: nothing is signed. */
  wallets: readonly Signer[]
  questions: readonly Readonly<{ questionId: Hex; slug?: string | undefined }>[]
  may: Readonly<Record<Exclude<Tier, 'read'>, boolean>>
  maxAmountRaw?: bigint | undefined
  /** Before what executes is signed; a UsageError skips it. */
  confirmBet?: (bet: Bet) => Promise<void>
  onNote?: (text: string) => void
  strangerWallet?: Signer | undefined
  chain?: Chain | undefined
  isLocal?: boolean | undefined
  signal?: AbortSignal | undefined
}> &
  SubmitParts

export type Bench = Awaited<ReturnType<typeof createBench>>

export async function createBench(parts: BenchParts) {
  const reading = { ...parts, ...(await readingOf(parts)) }
  return { ...reading, ...signingOf(reading) }
}

/** More than any token has; a few still add up to a uint256. */
export const unexecutableRaw = 2n ** 128n
export const leastRaw = 1n

async function readingOf(parts: BenchParts) {
  const { ports, journal, wallets } = parts
  const nowSeconds = () => Math.floor(ports.clock.nowMs() / 1_000)
  const stranger = toHex(ports.random.bytes(20))
  const { came, usable, why } = await opened(parts, nowSeconds())
  const context = () => usable[0] ?? notSeen(why)

  const termsOf = (context: QuestionContext, wanted: ProbeTerms) => ({
    price: wanted.price ?? priceOf[outcomeFor(context)],
    amount: String(wanted.amountRaw ?? unexecutableRaw),
    nonce: String(journal.nextNonce()),
    // No question should be held for long.
    deadline: String(nowSeconds() + (wanted.lifeSeconds ?? 900)),
  })
  const unsigned = () => ({
    ...termsOf(context(), { amountRaw: BigInt(context().bond.required_bond) }),
    proposer: wallets[0]?.address ?? stranger,
    signature: `${toHex(ports.random.bytes(64))}1b` as const,
  })
  const single =
    (part: string) =>
    (change: BodyChange = {}, wrong?: string, identifier: string = context().question_id) => {
      const body = { ...toSingle(unsigned()), ...(part && { signature: undefined }) }
      return post(`/v1/proposals/${identifier}${part}`, changed(body, change), wrong)
    }
  const unsignedItem = (change: BodyChange = {}) =>
    changed(toBatchItem(context().question_id, unsigned()), change)

  return {
    ...{ stranger, nowSeconds, context, usable, why, termsOf, unsignedItem },
    eligibility: eligibilityOf(stranger),
    send: parts.probe.send,
    newId: () => ports.random.uuid(),
    contexts: () => came ?? notSeen(why),
    open: () => context() && usable,
    prepare: single('/signing-data'),
    submit: single(''),
    submitItem: (change: BodyChange, wrong?: string) =>
      batchOf('proposals', [unsignedItem(change)], wrong),
  }
}

async function opened({ trust, questions, probe }: BenchParts, nowSeconds: number) {
  const usable: QuestionContext[] = []
  if (questions.length === 0)
    return { usable, why: 'no question was given: add --question <id|slug>' }
  const ids = questions.map(({ questionId }) => questionId)
  const came = await probe.send(batchOf('contexts', ids)).catch((error: unknown) => {
    if (error instanceof UsageError) return error
    throw error
  })
  if (came instanceof Error) return { usable, why: came.message }
  const all = came.results.map((one) => one.at('signing_data'))
  for (const { questionId, slug } of questions)
    try {
      const own = read(all.find((one) => at(one, 'question_id') === questionId))
      checkContext(trust, own, nowSeconds)
      usable.push({ ...own, ...(slug && { slug }) })
    } catch (error) {
      if (!(error instanceof UsageError)) throw error
    }
  const why = `no question is open and as pinned (their contexts were answered ${came.came})`
  return { came, usable, why }
}

/** Several checks look at it. Each run has its own probe. */
export function onceARun<T>(make: (bench: Bench) => T) {
  const made = new WeakMap<Probe, T>()
  return (bench: Bench) => {
    const known = made.get(bench.probe) ?? make(bench)
    made.set(bench.probe, known)
    return known
  }
}

export type BodyChange = Record<string, unknown> | ((body: Record<string, unknown>) => unknown)

export function changed(value: unknown, change: unknown): unknown {
  if (typeof change === 'function') return change(is.structure(value) ? value : String(value))
  if (!is.structure(change)) return change
  const members = Object.entries(change).map(([name, one]) => [name, changed(at(value, name), one)])
  return { ...Object(value), ...Object.fromEntries(members) }
}

export const noQuestion = ({ ports }: Bench) => toHex(ports.random.bytes(32))
export const allows = ({ price }: QuestionContext, outcome: OutcomeKey) =>
  price.allowed_values.includes(priceOf[outcome])
export const slugOf = ({ slug }: QuestionContext) =>
  slug ?? notSeen('no slug is pinned for the question')
export const outcomeFor = (context: QuestionContext): OutcomeKey =>
  allows(context, 'p1') && !allows(context, 'p2') ? 'p1' : 'p2'

/** With our own types; or FactError. §2.8 has `identifier.raw` in the request. */
export const read = (data: unknown): QuestionContext => ({
  ...signingDataOf({
    ...Object(data),
    request: { ...Object(at(data, 'request')), identifier: undefined },
    identifier: { raw: at(data, 'identifier.raw') ?? at(data, 'request.identifier.raw') },
    signing: { chain_id: at(data, 'signing.chain_id') },
  }),
  source: 'gateway',
})

/** Fault where the client would not sign. `byClock`: only our clock says so of a round. */
export async function trusting<T>(check: () => T, byClock = true) {
  try {
    return await check()
  } catch (error) {
    if (error instanceof FactError) throw new Fault(`got a context in which ${error.message}`)
    if (!(error instanceof ProposerError)) throw error
    const { code, detail } = error
    if (code === 'untrusted_timestamp' ? byClock : !code.startsWith('untrusted_')) notSeen(detail)
    throw new Fault(detail)
  }
}

export const chainRound = async ({ chain, trust }: BenchParts, context: QuestionContext) =>
  chain && trusting(() => confirmByChain(chain, trust, context), false)

export type Pair = Readonly<{ wallet: Signer; context: QuestionContext }>

export type ProbeTerms = Partial<{
  price: string
  amountRaw: bigint
  lifeSeconds: number
  form: Form
  clientRef: string
  supersede: string
}>

export const rivalTo = ({ id, signed }: JournaledAuthorization, supersede = id): ProbeTerms => ({
  price: signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1,
  supersede,
})

export const noPair = () =>
  notSeen('no question that fits is without an open authorization: add --question')

function signingOf(bench: BenchParts & Awaited<ReturnType<typeof readingOf>>) {
  const { ports, journal, trust, may, maxAmountRaw, wallets, gateway, probe, signal } = bench
  /** Questions on which a proposal executes. */
  const closed = new Set<string>()

  function checkRisk(amountRaw: bigint) {
    if (amountRaw <= leastRaw || amountRaw >= unexecutableRaw) return
    const amount = `${amountRaw} raw units`
    if (!may.execute)
      notSeen(`a wallet can pay ${amount}: they are signed with --allow-execution only`)
    if (amountRaw > (maxAmountRaw ?? amountRaw))
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
    async pairs(fits = (_: QuestionContext) => true) {
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
        const own = bench.termsOf(context, terms)
        checkRisk(BigInt(own.amount))
        const hashed = { digest: toHex(witness.digest(own)), round, unchecked: chainChecks }
        const prepared = { context, price: own.price, terms: own, ...hashed }
        const intent = { identifier: context.question_id, proposer: wallet.address, ...terms }
        const { draft, entries } = draftOf(bench, intent, prepared, view)
        await journal.append(entries)
        const [made] = await signDrafts({ ports, journal }, [draft], wallet, terms.form ?? 'single')
        if (made?.kind !== 'send') throw made?.error
        return made.authorization
      })
    },
    /** By the client. A lost answer ends the run (exit 6 or 75). `end`: of a batch. */
    async propose(authorizations: readonly JournaledAuthorization[], end = ']}') {
      const submitBatch: typeof gateway.submitBatch = (body, call) =>
        gateway.submitBatch(body.replace(/]}$/, end), call)
      const parts = { ports, journal, gateway: { ...gateway, submitBatch } }
      const seen = await probe.sendBy(
        async () => (await attempt(parts, authorizations, { signal })).answers,
      )
      // Whether balance and allowance are looked at before a 202 is left open.
      const all = seen.results.length > 0 ? seen.results : [seen]
      if (all.every((one) => /balance|allowance|fund/.test(String(one.at('error.code')))))
        notSeen(`the gateway admits only what is funded (${seen.came}); no wallet holds this`)
      return seen
    },
  }
}

/** `body`: what was sent for it. */
type Known = Readonly<{ seen: Seen; body?: unknown }>
type Subject = ProbeCall | Seen | Known
type Next = Subject | readonly Subject[] | Demand
export type Step<More = unknown> = (known: Bench & Known & More) => Next | Promise<Next>
export type Part<More = unknown> = Step<More> | Next | number | string

/**
 * By id, section if not of the id, and what it says. Each step is sent, or must hold of the newest
 * answer, or names what of it the others look at. A number: what the check costs, if not 1.
 */
export type Table<More = unknown> = Readonly<Record<string, Row<More>>>
export type Row<More = unknown> = Part<More> | readonly Part<More>[]
const stepsOf = (row: Row) => [row].flat() as readonly Part[]

/** `2.7-x` is §2.7, `4.1.3-x` §4.1 rule 3, `3.2-x` §3 rule 2. */
function sectionOf(id: string) {
  const [, section, rule] = /^(3|\w+(?:\.\d)?)(?:\.(\d))?-/.exec(id) ?? []
  return `§${section}${rule ? ` rule ${rule}` : ''}`
}

export type Rule = ReturnType<typeof rulesOf>[number]

export const rulesOf = (tier: Tier, table: Table) =>
  Object.entries(table).map(([name, row]) => {
    const [, id = '', section = sectionOf(id), says = ''] =
      /^(\S+?)(?: ([^:]+))?: (.+)/.exec(name) ?? []
    const steps = stepsOf(row)
    /** Of §8 rule 2, where no other check has paid. */
    const items = steps.find((one) => typeof one === 'number') ?? 1
    const run = (bench: Bench) => follow(bench as Bench & Known, steps)
    return { id, section, tier, items, says, run }
  })

/** For each of a step's subjects the other steps. */
async function follow(known: Bench & Known, [step, ...rest]: readonly Part[]): Promise<string> {
  if (step === undefined) return known.seen.came
  if (typeof step === 'string') return follow({ ...known, seen: known.seen.in(step) }, rest)
  const next = typeof step === 'function' ? await step(known) : step
  const subjects = [next].flat().filter(isSubject)
  if (subjects.length === 0) {
    known.seen?.must(next as Demand)
    return follow(known, rest)
  }
  const ends = new Set<string>()
  for (const one of subjects) {
    const came = 'method' in one ? { seen: await known.send(one), body: one.body } : one
    ends.add(await follow({ ...known, ...(came instanceof Seen ? { seen: came } : came) }, rest))
  }
  return [...ends].join(', ')
}

const isSubject = (one: unknown): one is Subject =>
  one instanceof Seen || ['method', 'seen'].some((name) => Object.hasOwn(Object(one), name))

/** Rows that begin alike. */
export const about = <More extends Known>(
  steps: readonly [(bench: Bench) => Promise<More | readonly More[]>, ...Part<More>[]],
  rows: Table<More>,
) =>
  Object.fromEntries(
    Object.entries(rows).map(([name, row]) => [name, [...steps, ...stepsOf(row as Row)] as Row]),
  )

export const given: Step = ({ seen }) => void seen.given(200)
