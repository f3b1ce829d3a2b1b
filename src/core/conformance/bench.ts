/** What the checks of one run share. */
import type { GatewayClient } from '#client/gateway/gateway-client'
import type { Journal, JournalPorts } from '#client/journal/journal'
import { checkContext, contractsOf, type QuestionContext, type Trust } from '#client/trust/trust'
import type { Chain, Ed25519, Hex, Signer } from '#ports'
import { UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { priceOf, type Terms, toBatchItem, toSingle } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import { at, is, NotSeen } from './answer.js'
import { type Batch, type Probe, routes } from './probe.js'
import { readContext } from './readers.js'

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

export type Body = Record<string, unknown> & { permit: Record<string, unknown> }

/**
 * How long the permits of a run live: the gateway wants five minutes beyond admission (§2.1), and
 * they should not hold questions for long.
 */
export const lifeSeconds = 900n

/** Puts the parts together; nothing is sent yet. */
export function bareBench(parts: BenchParts) {
  const { ports, journal, probe, trust, wallets, questions } = parts
  const { send } = probe
  const randomHex = (bytes: number) => toHex(ports.random.bytes(bytes))
  const stranger = randomHex(20)
  const proposer = wallets[0]?.address ?? stranger
  const nowSeconds = () => BigInt(Math.floor(ports.clock.nowMs() / 1_000))

  const batch = (name: Batch, list: readonly unknown[], wrong?: string) =>
    send(routes.batch(name, list), wrong)
  const contexts = once(async () => {
    if (questions.length === 0) throw new NotSeen('no question was given: add --question <id|slug>')
    const identifiers = questions.map(({ questionId }) => questionId)
    return batch('contexts', identifiers)
  })

  const open = once(async () => {
    const actual = (await contexts()).results.map((one) => at(one, 'signing_data'))
    return questions.flatMap(({ questionId, slug }) => {
      const read = readContext(actual.find((one) => at(one, 'question_id') === questionId))
      if (is.text(read)) return []
      const context: QuestionContext = { ...read, ...(slug && { slug }) }
      return distrust(trust, context, Number(nowSeconds())) === undefined ? [context] : []
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
  const unsigned = async (): Promise<Body> => ({ ...toSingle(await terms()) })
  const proposal = async (): Promise<Body> => {
    const { signature: _signature, ...body } = await unsigned()
    return body
  }

  /** More than the bond, so that a gateway which puts its own figure there is seen to. */
  const signingBody = once(async (): Promise<Body> => {
    const body = await proposal()
    const amount = String(BigInt(String(body.permit.amount)) + 1n)
    return { ...body, permit: { ...body.permit, amount } }
  })
  const ask = (route: 'prepare' | 'submit') => async (body: unknown, wrong?: string) =>
    send(routes[route]((await context()).question_id, body), wrong)

  return {
    ...parts,
    stranger,
    nowSeconds,
    send,
    batch,
    contexts,
    open,
    context,
    /** Why there is no context, where questions were given. */
    unusable,
    hasContext: async () => questions.length > 0 && (await unusable()) === undefined,
    proposal,
    signingBody,
    unsigned,
    unsignedItem: async (clientRef?: string): Promise<Body> => ({
      ...toBatchItem((await context()).question_id, await terms(), clientRef),
    }),
    submit: ask('submit'),
    async prepare(changes: unknown, wrong?: string, headers?: Record<string, string>) {
      const { question_id } = await context()
      const call = routes.prepare(question_id, changed(await proposal(), changes))
      return send({ ...call, ...(headers && { headers }) }, wrong)
    },
    signingData: once(async () => ask('prepare')(await signingBody())),
  }
}

/** Members of a body: another value, `undefined` for none, or what is made of the text there was. */
export type BodyChange = { readonly [field: string]: unknown } | ((body: Body) => unknown)

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

/** Why a context is not what the pins say, or `undefined` where it is. */
export function distrust(trust: Trust, context: QuestionContext, nowSeconds: number) {
  try {
    checkContext(trust, context, { nowSeconds })
    return undefined
  } catch (error) {
    if (error instanceof UsageError) return error
    throw error
  }
}
