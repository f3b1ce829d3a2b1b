/** What the checks of one run share. */
import type { GatewayClient } from '#client/gateway/gateway-client'
import type { Journal, JournalPorts } from '#client/journal/journal'
import { checkContext, contractsOf, type QuestionContext, type Trust } from '#client/trust/trust'
import type { Chain, Ed25519, Hex, Signer } from '#ports'
import { UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { priceOf } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import { version } from '#protocol/words'
import { createAdmissions } from './admissions.js'
import { type Probe, routes } from './probe.js'
import { readContext } from './readers.js'
import { at, came, is, NotSeen, resultsIn, type Tier } from './rule.js'

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

export type BareBench = BenchParts & ReturnType<typeof bareBench>
export type Bench = BareBench & { readonly admissions: ReturnType<typeof createAdmissions> }

export type Body = Record<string, unknown> & { permit: Record<string, unknown> }

/**
 * How long the permits of a run live: the gateway wants five minutes beyond admission (§2.1), and
 * they should not hold questions for long.
 */
export const lifeSeconds = 900n

/** Puts the parts together; nothing is sent yet. */
export function createBench(parts: BenchParts): Bench {
  const bench = { ...parts, ...bareBench(parts) }
  return { ...bench, admissions: createAdmissions(bench) }
}

function bareBench({ ports, journal, probe, trust, wallets, questions }: BenchParts) {
  const randomHex = (bytes: number): Hex => toHex(ports.random.bytes(bytes))
  const signature = () => `${randomHex(64)}1b`
  const stranger: Address = randomHex(20)
  const proposer = wallets[0]?.address ?? stranger
  const nowSeconds = () => BigInt(Math.floor(ports.clock.nowMs() / 1_000))

  const contexts = once(async () => {
    if (questions.length === 0) throw new NotSeen('no question was given: add --question <id|slug>')
    const identifiers = questions.map(({ questionId }) => questionId)
    return probe.send(routes.batch('contexts', identifiers))
  })

  const open = once(async () => {
    const actual = resultsIn((await contexts()).json).map((one) => at(one, 'signing_data'))
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
    const answered = came(await contexts())
    throw new NotSeen(
      `none of the questions is open and as pinned (the call for their contexts was answered ${answered})`,
    )
  }

  async function unusable(): Promise<string | undefined> {
    if (questions.length === 0) return undefined
    try {
      await context()
      return undefined
    } catch (error) {
      if (error instanceof NotSeen) return error.message
      throw error
    }
  }

  const proposal = async (): Promise<Body> => {
    const first = await context()
    const permit = {
      amount: first.bond.required_bond,
      nonce: String(journal.nextNonce()),
      deadline: String(nowSeconds() + lifeSeconds),
    }
    const outcome = outcomeFor(first)
    return { version: { ...version }, proposer, outcome, max_payment: '0', permit }
  }

  /** More than the bond, so that a gateway which puts its own figure there is seen to. */
  const signingBody = once(async (): Promise<Body> => {
    const body = await proposal()
    const amount = String(BigInt(String(body.permit.amount)) + 1n)
    return { ...body, permit: { ...body.permit, amount } }
  })

  return {
    stranger,
    proposer,
    nowSeconds,
    contexts,
    open,
    context,
    /** Why there is no context, where questions were given. */
    unusable,
    hasContext: async () => questions.length > 0 && (await unusable()) === undefined,
    proposal,
    signingBody,
    unsigned: async (): Promise<Body> => ({ ...(await proposal()), signature: signature() }),
    async unsignedItem(clientRef?: string): Promise<Body> {
      const { question_id: identifier } = await context()
      const { permit, outcome } = await proposal()
      return {
        identifier,
        ...(clientRef !== undefined && { client_ref: clientRef }),
        proposer,
        proposed_price: priceOf[outcome as OutcomeKey],
        max_payment: '0',
        permit: { ...permit, deadline: Number(permit.deadline) },
        signature: signature(),
      }
    },
    signingData: once(async () => {
      const { question_id } = await context()
      return probe.send(routes.prepare(question_id, await signingBody()))
    }),
  }
}

/** The outcome that is proposed on a question: p2, or p1 where p2 is not allowed. */
export const outcomeFor = ({ price }: QuestionContext): OutcomeKey =>
  price.allowed_values.includes(priceOf.p2) || !price.allowed_values.includes(priceOf.p1)
    ? 'p2'
    : 'p1'

/** The round of a question on our chain, where there is one. */
export async function chainRound({ chain, trust }: BenchParts, questionId: Hex) {
  if (chain === undefined) return undefined
  const { createRoundReader } = await import('#chain/questions')
  return createRoundReader(chain, contractsOf(trust)).read(questionId)
}

/** Why a context is not what the pins say, or `undefined` where it is. */
export function distrust(
  trust: Trust,
  context: QuestionContext,
  nowSeconds: number,
): UsageError | undefined {
  try {
    checkContext(trust, context, { nowSeconds })
    return undefined
  } catch (error) {
    if (error instanceof UsageError) return error
    throw error
  }
}
