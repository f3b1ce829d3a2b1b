/** Questions that a source names, such as logs of rounds (domain §4, §5; contract §9). */
import * as z from 'zod/mini'
import { titleOf } from '#chain/ancillary'
import { oracleAbi, topics } from '#chain/contracts'
import { knownToken } from '#chain/profiles'
import { firstBlockFrom } from '#chain/propose'
import type { RegistryEntry } from '#chain/questions'
import { loggedEvent } from '#chain/reading'
import { type Contracts, keccakHex, type Round } from '#chain/round'
import { stakeEventNames } from '#chain/stakes'
import type { ChainLog, Hash, Hex } from '#ports'
import { inGroups } from '#protocol/capped'
import { pick } from '#protocol/pick'
import { Address, Bytes32, type Outcome, Uint256 } from '#protocol/schema'
import { lowercase } from '#protocol/words'
import { type KeptParts, type KeptSource, readKept } from '../logs/kept-logs.js'
import type { QuestionContext } from '../trust/trust.js'

export type QuestionSource = 'registry' | 'chain' | 'gamma'

export interface QuestionSeen {
  readonly questionId: Hex
  readonly slug?: string | undefined
  readonly title?: string | undefined
  readonly endsAt?: string | undefined
  readonly reopened?: boolean
  readonly entry?: RegistryEntry | undefined
}

export type ListedQuestion = Readonly<ReturnType<typeof unconfirmed>>

const none = null as string | null

/** Null: the source cannot know it. Titles and labels are outside text (R20). */
export const unconfirmed = (seen: QuestionSeen, source: QuestionSource) => ({
  question_id: seen.questionId,
  slug: seen.slug ?? null,
  title: seen.title ?? null,
  outcomes: [] as readonly Pick<Outcome, 'outcome' | 'label'>[],
  bond: none,
  reward: none,
  state: none,
  proposed_by: null as Address | null,
  ends_at: seen.endsAt ?? null,
  round_timestamp: none,
  source,
  reopened: null as boolean | null,
  requester: none,
  token: null as Round['token'] | null,
  confirmed_by: null as 'chain' | 'gateway' | null,
})

export const byChain = (
  seen: QuestionSeen,
  round: Round,
  source: QuestionSource,
): ListedQuestion => ({
  ...unconfirmed(seen, source),
  ...pick(round, 'requester', 'token'),
  title: titleOf(round.ancillaryData) ?? seen.title ?? null,
  outcomes: labelled(round.outcomes),
  bond: String(round.totalBondRaw),
  reward: String(round.rewardRaw),
  state: round.paused && round.state === 'requested' ? 'paused' : round.state,
  proposed_by: round.proposer ?? null,
  round_timestamp: round.timestamp,
  reopened: round.isReopened || seen.reopened === true,
  confirmed_by: 'chain',
})

export const byGateway = (candidate: QuestionSeen, context: QuestionContext): ListedQuestion => ({
  ...unconfirmed(candidate, 'registry'),
  title: titleOf(context.request.ancillary_data) ?? null,
  outcomes: labelled(context.outcomes ?? []),
  bond: context.bond.required_bond,
  state: 'requested',
  round_timestamp: context.request.timestamp,
  requester: context.request.requester,
  token: tokenOf(context),
  confirmed_by: 'gateway',
})

function tokenOf({ token, signing, bond }: QuestionContext) {
  const units = knownToken(signing.chain_id, bond.token) ?? token
  return units ? { ...units, address: bond.token } : null
}

const labelled = (outcomes: Round['outcomes']) =>
  outcomes.filter(({ allowed }) => allowed).map(({ outcome, label }) => ({ outcome, label }))

/** They are soonest answered by another. */
export const reopenedFirst = <T extends { readonly reopened?: boolean | null }>(
  all: readonly T[],
) => all.toSorted((a, b) => Number(b.reopened === true) - Number(a.reopened === true))

const askedAtOnce = 50

interface Wanted {
  readonly limit: number
  isWanted(question: ListedQuestion): boolean
  readonly asksAll: boolean
}

/** `unseen`: how many there are beyond `limit`, asked about or not. */
export async function takeWanted(
  candidates: readonly QuestionSeen[],
  ask: (some: readonly QuestionSeen[]) => Promise<readonly ListedQuestion[]>,
  { limit, isWanted, asksAll }: Wanted,
) {
  const found: ListedQuestion[] = []
  let unasked = 0
  for (const some of inGroups(reopenedFirst(candidates), askedAtOnce))
    if (found.length < limit || asksAll) found.push(...(await ask(some)).filter(isWanted))
    else unasked += some.length
  const questions = reopenedFirst(found).slice(0, limit)
  return { questions, unseen: unasked + found.length - questions.length }
}

const oracleKinds = { [topics.requestPrice]: 'RequestPrice', ...stakeEventNames } as const

const place = { block: z.int(), index: z.int() }
/** `text`: the hash of the ancillary data. */
const RoundFact = z.object({
  ...place,
  kind: z.enum(Object.values(oracleKinds)),
  oracle: Address,
  requester: Address,
  identifier: Bytes32,
  text: Bytes32,
  timestamp: Uint256,
  proposer: z.optional(Address),
})
type RoundFact = z.infer<typeof RoundFact>
/** By a requester; `timestamp`: of the round that it means. */
const NameFact = z.object({
  ...place,
  kind: z.enum(['reset', 'named']),
  requester: Address,
  questionId: Bytes32,
  timestamp: z.optional(Uint256),
})
const Fact = z.union([RoundFact, NameFact])
export type Fact = z.infer<typeof Fact>

function factOf(log: ChainLog, { oracles, requesters }: Contracts): Fact | undefined {
  const [topic = '0x', questionId, second] = log.topics
  const at = { block: Number(log.blockNumber), index: log.logIndex }
  const isPinned = (requester: string) => requesters.some(({ address }) => address === requester)
  if (oracles.includes(log.address)) {
    const kind = oracleKinds[topic as keyof typeof oracleKinds]
    const args = kind && loggedEvent(oracleAbi, kind, log)?.args
    if (!args || !isPinned(lowercase(args.requester))) return undefined
    return {
      ...{ ...at, kind, oracle: log.address, identifier: args.identifier },
      requester: lowercase(args.requester),
      text: keccakHex(args.ancillaryData),
      timestamp: String(args.timestamp),
      ...('proposer' in args && { proposer: lowercase(args.proposer) }),
    }
  }
  if (!isPinned(log.address) || !questionId) return undefined
  const named = { ...at, requester: log.address, questionId }
  if (topic === topics.questionReset) return { ...named, kind: 'reset' }
  if (!second) return undefined
  const kind = topic === topics.requestRerequested ? 'reset' : 'named'
  return { ...named, kind, timestamp: String(BigInt(second)) }
}

/** By the logs; the chain has to be asked what holds now. */
type SeenRound = Omit<ReturnType<typeof newestOf>, 'text'> & { readonly questionId: Hex }

const ends = {
  RequestPrice: 'requested',
  ProposePrice: 'proposed',
  DisputePrice: 'disputed',
  Settle: 'settled',
} as const

/** Facts may come in any order, and twice. `unnamed`: open, without a question id in any log. */
export function roundFactsOf(facts: readonly Fact[], { requesters }: Contracts) {
  const groups = new Map<string, RoundFact[]>()
  const names = new Map<string, Set<Hex>>()
  const resets = new Set<string>()
  for (const fact of [...facts].sort((a, b) => a.block - b.block || a.index - b.index)) {
    const { requester, timestamp } = fact
    if ('text' in fact) {
      const key = [fact.oracle, requester, fact.identifier, fact.text].join(' ')
      groups.set(key, [...(groups.get(key) ?? []), fact])
      continue
    }
    if (fact.kind === 'reset') resets.add(`${requester} ${fact.questionId}`)
    const key = `${requester} ${timestamp}`
    if (timestamp) names.set(key, (names.get(key) ?? new Set()).add(fact.questionId))
  }
  const found = new Map<string, SeenRound>()
  let unnamed = 0
  for (const group of groups.values()) {
    const { text, ...newest } = newestOf(group)
    const { requester, timestamp, state } = newest
    const kind = requesters.find(({ address }) => address === requester)?.kind
    const named = names.get(`${requester} ${timestamp}`) ?? []
    const ids = kind === 'oo-reporter' ? [...named] : kind === 'direct' ? [] : [text]
    if (ids.length === 0 && state === 'requested') unnamed++
    for (const questionId of ids) {
      const key = `${requester} ${questionId}`
      const seen = { ...newest, questionId, isReopened: newest.isReopened || resets.has(key) }
      const other = found.get(key)
      // Reporter rounds of one second share their names; an open one is worth a look at the chain.
      if (!other || isNewer(seen, other)) found.set(key, seen)
    }
  }
  const rounds = [...found.values()].sort((a, b) => (a.openedAt ?? 0) - (b.openedAt ?? 0))
  return { rounds, unnamed }
}

const isNewer = (one: SeenRound, other: SeenRound) =>
  BigInt(one.timestamp) > BigInt(other.timestamp) ||
  (one.timestamp === other.timestamp && one.state === 'requested')

function newestOf(group: readonly RoundFact[]) {
  const newest = group.reduce((a, b) => (BigInt(b.timestamp) > BigInt(a.timestamp) ? b : a))
  const own = group.filter(({ timestamp }) => timestamp === newest.timestamp)
  const end = own.findLast(({ kind }) => kind !== 'RequestPrice')
  return {
    ...pick(newest, 'requester', 'text', 'timestamp'),
    state: ends[end?.kind ?? 'RequestPrice'],
    proposer: end?.proposer,
    isReopened: own.length < group.length,
    openedAt: own.find(({ kind }) => kind === 'RequestPrice')?.block,
  }
}

export async function scanFacts(
  parts: KeptParts & { readonly contracts: Contracts; readonly hash: Hash },
  since: bigint,
) {
  const { chain, contracts, hash } = parts
  const { chainId, oracles, requesters } = contracts
  const pins = hash.sha256(JSON.stringify([oracles, requesters])).slice(0, 16)
  const { questionReset, requestInitialized, requestRerequested } = topics
  const ofOracles = Object.keys(oracleKinds) as Hex[]
  const source: KeptSource<Fact> = {
    shape: Fact,
    fileOf: (key) => ['questions', `${chainId}-${key}.json`],
    filter: {
      addresses: [...new Set([...oracles, ...requesters.map(({ address }) => address)])],
      topics: [[...ofOracles, questionReset, requestInitialized, requestRerequested]],
    },
    factOf: (log) => factOf(log, contracts),
    keyOf: () => pins,
    startOf: async (_key, _kept, head) =>
      (await firstBlockFrom(chain, since, head)) ?? head.number + 1n,
  }
  const { head, facts, starts } = await readKept(parts, source, [pins])
  return { facts, from: starts[0] ?? head.number + 1n }
}
