/** What the checks of one run share. */
import type { GatewayClient } from '#client/gateway/gateway-client'
import type { Journal, JournalPorts } from '#client/journal/journal'
import { FactError, signingDataOf } from '#client/trust/signing-data'
import { checkContext, contractsOf, type QuestionContext, type Trust } from '#client/trust/trust'
import type { Chain, Ed25519, Hex, Signer } from '#ports'
import { UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { priceOf, type Terms, toBatchItem, toSingle } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import { at, integer, is, listAt, memberOf, NotSeen } from './answer.js'
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
  /** Its calls go by `probe.fetch`. */
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

export type BareBench = ReturnType<typeof bareBench>

/**
 * How long the permits of a run live: the gateway wants five minutes beyond admission (§2.1), and
 * they should not hold questions for long.
 */
export const lifeSeconds = 900n

/** Puts the parts together; nothing is sent yet. */
export function bareBench(parts: BenchParts) {
  const { ports, journal, trust, wallets, questions } = parts
  const { send } = parts.probe
  const randomHex = (bytes: number) => toHex(ports.random.bytes(bytes))
  const stranger = randomHex(20)
  const proposer = wallets[0]?.address ?? stranger
  const nowSeconds = () => BigInt(Math.floor(ports.clock.nowMs() / 1_000))

  const contexts = once(async () => {
    if (questions.length === 0) throw new NotSeen('no question was given: add --question <id|slug>')
    const identifiers = questions.map(({ questionId }) => questionId)
    return send(routes.batch('contexts', identifiers))
  })
  /** Why it is not what the pins say. */
  const distrust = (own: QuestionContext) =>
    errorOf(UsageError, () => {
      checkContext(trust, own, { nowSeconds: Number(nowSeconds()) })
      return undefined
    })

  const open = once(async () => {
    const actual = (await contexts()).results.map((one) => at(one, 'signing_data'))
    return questions.flatMap(({ questionId, slug }) => {
      const own = read(actual.find((one) => at(one, 'question_id') === questionId))
      if (own instanceof FactError || distrust(own) !== undefined) return []
      return [{ ...own, ...(slug && { slug }) }]
    })
  })

  const context = async () => {
    const [first] = await open()
    if (first !== undefined) return first
    throw new NotSeen(
      `none of the questions is open and as pinned (the call for their contexts was answered ${(await contexts()).came})`,
    )
  }

  const unusable = async () => {
    const why = (error: unknown) => {
      if (error instanceof NotSeen) return error.message
      throw error
    }
    return questions.length === 0 ? undefined : context().then(() => undefined, why)
  }

  /** Of the first wallet and question; the signature authorizes nothing. */
  const terms = async (): Promise<Terms & { signature: Hex }> => {
    const first = await context()
    return {
      proposer,
      price: priceOf[outcomeFor(first)],
      amount: first.bond.required_bond,
      nonce: String(journal.nextNonce()),
      deadline: String(nowSeconds() + lifeSeconds),
      signature: `${randomHex(64)}1b`,
    }
  }
  const proposal = async () => {
    const { signature: _signature, ...body } = toSingle(await terms())
    return body
  }
  const prepare = async (change: BodyChange = {}, wrong?: string) =>
    routes.prepare((await context()).question_id, changed(await proposal(), change), wrong)
  const unsignedItem = async (clientRef?: string) =>
    toBatchItem((await context()).question_id, await terms(), clientRef)

  return {
    ...parts,
    stranger,
    nowSeconds,
    send,
    contexts,
    read,
    distrust,
    open,
    context,
    /** Why there is no context, where questions were given. */
    unusable,
    hasContext: async () => questions.length > 0 && (await unusable()) === undefined,
    proposal,
    /** Calls whose body is changed, and what is wrong with it. */
    prepare,
    submit: async (change: BodyChange = {}, wrong?: string) =>
      routes.submit((await context()).question_id, changed(toSingle(await terms()), change), wrong),
    submitItem: async (change: BodyChange, wrong?: string) =>
      routes.batch('proposals', [changed(await unsignedItem(), change)], wrong),
    unsignedItem,
    /** More than the bond, so that a gateway which puts its own figure there is seen to. */
    prepared: once(async () => {
      const own = await context()
      const body = await proposal()
      const amount = String(BigInt(body.permit.amount) + 1n)
      const signingBody = { ...body, permit: { ...body.permit, amount } }
      const seen = await send(routes.prepare(own.question_id, signingBody))
      return { seen, own, body: signingBody }
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
      : (at(identifier, 'raw') ?? memberOf(request, /identifier/)),
    timestamp: integer(memberOf(request, /timestamp/)),
    ancillary_data: memberOf(request, /ancillary/),
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
