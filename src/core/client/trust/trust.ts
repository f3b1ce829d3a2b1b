/**
 * Pinned contracts (contract §7, trust.json): a question's context is checked against them before
 * anything is signed (R9). Its facts are taken wherever the spec lets them stand (contract §9).
 */
import { outcomesOf } from '#chain/ancillary'
import { yesOrNoQuery } from '#chain/constants'
import {
  changedImplementations,
  changedText,
  type Implementations,
  implementationsOf,
} from '#chain/implementations'
import { type Contracts, keccakHex, type RequesterKind, roundRef } from '#chain/round'
import type { Rules } from '#chain/rules'
import { onChain } from '#chain/unavailable'
import type { Chain, Hex } from '#ports'
import type { RoundRef } from '#protocol/candidate'
import { UsageError } from '#protocol/errors'
import { type Json, objectOf } from '#protocol/json'
import { answersText, answerText, labelsOf, outcomesNamed } from '#protocol/outcome-words'
import { priceOf } from '#protocol/proposal'
import type { Address, BatchSigningData, Outcome, OutcomeKey } from '#protocol/schema'
import { domainType, primaryType, type WitnessRequest, witnessTypes } from '#protocol/witness'
import { isAddress, isBytes, isBytes32, isQuestionId, isUint256 } from '#protocol/words'
import type { Trust } from './trust-file.js'

/** `slug`: the one that was asked for. */
export interface QuestionContext extends BatchSigningData {
  readonly source: 'gateway' | 'chain' | 'file'
  readonly slug?: string
  readonly outcomes?: readonly Outcome[]
  readonly reward?: string
  readonly reopened?: boolean
  readonly rules?: Rules
  /** Of a file: the clarifications that its maker had read. */
  readonly rules_told?: Hex
  readonly token?: { readonly address: string; readonly symbol: string; readonly decimals: number }
  /** Only in a file that carries a server's `typed_data`: compared, never signed (R9). */
  readonly typed_data?: unknown
}

export type { Trust } from './trust-file.js'

export function contractsOf(trust: Trust): Contracts {
  return {
    chainId: trust.chain_id,
    permit2: trust.permit2,
    signedProposer: trust.signed_proposer,
    oracles: trust.oracles,
    requesters: trust.requesters as Contracts['requesters'],
    tokens: trust.tokens,
  }
}

export function pinnedQuestionId(trust: Trust, identifier: string): Hex | undefined {
  if (isQuestionId(identifier)) return identifier
  return Object.hasOwn(trust.slugs, identifier) ? trust.slugs[identifier] : undefined
}

export const fieldOf = (path: string) => path.split('.').findLast((part) => part !== 'raw') ?? path

/** Exit 2, nothing is signed or sent (R9). */
export const untrusted = (
  field: string,
  detail: string,
  hint = 'nothing was signed; if the pins are out of date, correct the trust file; otherwise do not use this gateway',
) => new UsageError(`untrusted_${field}`, detail, hint)

function requireThat(isSo: boolean, ...fault: Parameters<typeof untrusted>) {
  if (!isSo) throw untrusted(...fault)
}

/** Another chain than the pinned one is refused (R16). */
export const requirePinnedChain = (chainId: number, trust: Pick<Trust, 'chain_id'>) =>
  requireThat(
    chainId === trust.chain_id,
    'chain_id',
    `the RPC is on chain ${chainId}, the trust file pins ${trust.chain_id}`,
    'give the --rpc-url of the pinned chain',
  )

/** A signature must not follow whatever somebody says a slug means (R9). */
export function unpinnedSlug(slug: string): UsageError {
  return untrusted('slug', `the slug ${slug} is not pinned in the trust file`, howToPin(slug))
}

export function howToPin(slug: string) {
  return `compare its spelling with \`proposer questions list\`; \`proposer context ${slug}\` without a node (--rpc-url) asks the gateway which question it means; compare that with an independent source, then give the question id itself, pin the slug with \`proposer trust pin ${slug}\`, or add "${slug}": "0x…" to \`slugs\` of the trust file (\`proposer trust init\` makes one)`
}

interface Asked {
  readonly identifier?: string | undefined
  readonly nowSeconds: number
  readonly requireSlugPin?: boolean
}

/** A round begins at a block's time; this much of clock difference is taken. */
const clockSlackSeconds = 900

/**
 * Names the first field that differs with both values; returns notes on what could not be checked
 * (robustness §6, domain §9).
 */
export function checkContext(
  trust: Trust,
  context: QuestionContext,
  asked: Asked,
): readonly string[] {
  const { request, signing } = context
  const pins = {
    'signing.chain_id': trust.chain_id,
    'contracts.permit2': trust.permit2,
    'contracts.signed_proposer': trust.signed_proposer,
    'request.oracle': trust.oracles,
    'request.requester': trust.requesters.map(({ address }) => address),
    'bond.token': trust.tokens,
    'signing.max_payment': '0',
    'signing.primary_type': primaryType,
  }
  const facts = { ...context }
  for (const [path, pinned] of Object.entries(pins)) {
    const reported = valueAt(facts, path)
    const isListed = typeof pinned === 'object'
    if (isListed ? pinned.some((one) => one === reported) : pinned === reported) continue
    const named = path.endsWith('signed_proposer') ? `${path} (the permit's spender)` : path
    const pins = isListed ? 'which the trust file does not list' : `the trust file pins ${pinned}`
    throw untrusted(fieldOf(path), `${named} is ${reported}, ${pins}`)
  }
  checkTypes(signing.types)
  requireThat(
    request.question_id === context.question_id,
    'question_id',
    `request.question_id is ${request.question_id}, but question_id is ${context.question_id}`,
  )
  const kind = kindOf(trust, request.requester)
  const notes = checkAsked(trust, context, asked)
  checkRequest(context, kind, asked.nowSeconds)
  if (kind === 'oo-reporter')
    notes.push(
      'the question id of a reporter request is not a hash: only the chain (--rpc-url) can confirm it',
    )
  return notes
}

export const requestOf = ({ request }: Pick<QuestionContext, 'request'>): WitnessRequest => ({
  oracle: request.oracle,
  requester: request.requester,
  identifier: request.identifier.raw,
  timestamp: request.timestamp,
  ancillaryData: request.ancillary_data,
})

export function kindOf(trust: Trust, requester: string): RequesterKind | undefined {
  return trust.requesters.find(({ address }) => address === requester)?.kind
}

/** Where two adapters ask the same text, the requester tells which question is meant. */
export function onlyRequester(trust: Trust, requester: string): Trust {
  const narrowed = atRequester(trust, requester)
  requireThat(
    narrowed.requesters.length > 0,
    'requester',
    `--requester is ${requester}, which the trust file does not list`,
    'give one that `proposer trust show` lists',
  )
  return narrowed
}

export const atRequester = (trust: Trust, requester: string): Trust => ({
  ...trust,
  requesters: trust.requesters.filter(({ address }) => address === requester),
})

interface JournaledRound {
  readonly questionId: Hex
  readonly timestamp?: string | undefined
  readonly round?: string | undefined
  readonly requester?: string | undefined
}

/**
 * The requesters that a record may be for (R3). Records of 0.1 name none: the key of the round
 * tells where the question id is the hash of the text.
 */
export function roundPins(
  trust: Trust,
  { questionId, timestamp, round, requester }: JournaledRound,
): Trust {
  if (requester !== undefined) return atRequester(trust, requester)
  if (round === undefined || timestamp === undefined) return trust
  const hasKey = (requester: Address) =>
    trust.oracles.some((oracle) => {
      const request = { oracle, requester, identifier: yesOrNoQuery, timestamp }
      return roundRef({ chainId: trust.chain_id }, questionId, request, questionId).key === round
    })
  return {
    ...trust,
    requesters: trust.requesters.filter(
      ({ address, kind }) => !isNamedByText(kind) || hasKey(address),
    ),
  }
}

export const mayBeAt = (trust: Trust, record: JournaledRound) =>
  roundPins(trust, record).requesters.length > 0

export function isNamedByText(kind: RequesterKind | undefined) {
  return kind === 'uma-ctf-adapter' || kind === 'uma-ctf-adapter-negrisk'
}

/**
 * A reporter's request may serve ten ids, and a registry name one twice (domain §10).
 * `undefined`: the id is the hash of the text.
 */
export function sharedRound(
  trust: Trust,
  { request }: { readonly request: { readonly requester: Address } },
  ref: RoundRef,
) {
  return isNamedByText(kindOf(trust, request.requester)) ? undefined : ref.key
}

/**
 * Context and text must both allow it; for kind `direct` the context's word is taken (contract
 * §6).
 */
export function checkOutcome(trust: Trust, context: QuestionContext, outcome: OutcomeKey): Outcome {
  const price = priceOf[outcome]
  const outcomes = outcomesFor(trust, context)
  const read = outcomes.find((each) => each.outcome === outcome)
  if (read === undefined) throw new RangeError(`${outcome} is not an outcome`)
  if (!context.price.allowed_values.includes(price)) {
    throw new UsageError(
      'outcome_not_allowed',
      `${answerText(outcome, read.label)} is not allowed; price.allowed_values has only ${answersText(outcomes.filter((one) => context.price.allowed_values.includes(one.price)))}`,
      'give one of these answers; `proposer context` shows the rules of the question',
    )
  }
  requireThat(
    read.allowed || kindOf(trust, context.request.requester) === 'direct',
    'price',
    `price.allowed_values lists ${price} (${outcome}), but the request's text or its requester does not allow it`,
  )
  return read
}

/** Never a guess. */
export function outcomeMeant(trust: Trust, context: QuestionContext, word: string): OutcomeKey {
  const outcomes = outcomesFor(trust, context)
  const [found, ...others] = outcomesNamed(word, labelsOf(outcomes))
  if (found !== undefined && others.length === 0) return found
  const said = JSON.stringify(word.slice(0, longestWordShown))
  const fitting = outcomes.filter(({ outcome }) => [found, ...others].includes(outcome))
  const answers = outcomes.filter(({ allowed }) => allowed)
  const shown = fitting.length > 0 ? fitting : answers
  const example =
    shown[0] && `, such as ${JSON.stringify(answerText(shown[0].outcome, shown[0].label))}`
  const hint = `give the answer as it is shown${example ?? ''}`
  if (fitting.length > 0)
    throw new UsageError(
      'ambiguous_outcome',
      `the outcome ${said} matches ${fitting.length} answers: ${answersText(shown)}`,
      hint,
    )
  const why = /^\s*(yes|no)\s*$/i.test(word)
    ? 'is taken only where the answers are Yes and No'
    : 'is not an answer to this question'
  throw new UsageError(
    'bad_outcome',
    `the outcome ${said} ${why}; the answers are ${answersText(shown) || 'none'}`,
    `${hint}, or its key`,
  )
}

const longestWordShown = 80

/** A source has read the text already, and a context has no outcomes but from it. */
export const outcomesFor = (trust: Trust, context: QuestionContext): readonly Outcome[] =>
  context.outcomes ?? outcomesByText(trust, context)

export function outcomesByText(trust: Trust, context: QuestionContext): readonly Outcome[] {
  return outcomesOf(context.request.ancillary_data, {
    settlesHalf: kindOf(trust, context.request.requester) !== 'uma-ctf-adapter-negrisk',
    binary: context.identifier.raw === yesOrNoQuery,
  })
}

/** What the user named. */
export function checkAsked(
  trust: Trust,
  context: QuestionContext,
  asked: Omit<Asked, 'nowSeconds'>,
): string[] {
  const { identifier } = asked
  const { question_id: questionId } = context
  if (identifier === undefined) return []
  const pinned = pinnedQuestionId(trust, identifier)
  if (pinned === undefined) {
    requireThat(
      asked.requireSlugPin !== true,
      'slug',
      `the slug ${identifier} is not pinned in the trust file; the gateway says it means question_id ${questionId}`,
      `compare it with an independent source (\`proposer context ${questionId}\` shows the request); then give that question id, or add "${identifier}": "${questionId}" to \`slugs\` of the trust file (\`proposer trust init\` makes one)`,
    )
    return [`the slug ${identifier} is not pinned: check that it means question ${questionId}`]
  }
  requireThat(
    questionId === pinned,
    'question_id',
    `question_id is ${questionId}, but ${identifier} means ${pinned}`,
  )
  return []
}

function checkRequest(
  context: QuestionContext,
  kind: RequesterKind | undefined,
  nowSeconds: number,
) {
  const { request } = context
  const { raw } = request.identifier
  requireThat(
    raw === context.identifier.raw,
    'identifier',
    `request.identifier.raw is ${raw}, but identifier.raw is ${context.identifier.raw}`,
  )
  if (isNamedByText(kind)) {
    requireThat(
      raw === yesOrNoQuery,
      'identifier',
      `identifier.raw is ${raw}, an adapter's questions have ${yesOrNoQuery} (YES_OR_NO_QUERY)`,
    )
    const hashed = keccakHex(request.ancillary_data)
    requireThat(
      hashed === context.question_id,
      'ancillary_data',
      `request.ancillary_data hashes to ${hashed}, which is not question_id ${context.question_id}`,
    )
  }
  // A signature for a round that has not begun could be kept for it.
  const latest = Math.floor(nowSeconds + clockSlackSeconds)
  requireThat(
    BigInt(request.timestamp) <= BigInt(latest),
    'timestamp',
    `request.timestamp is ${request.timestamp}, which lies in the future (now is ${Math.floor(nowSeconds)})`,
    'check the clock of this machine; on a chain whose time was moved, give --rpc-url',
  )
}

type Members = readonly { readonly name: string; readonly type: string }[]
const ownTypes: Readonly<Record<string, Members>> = { ...witnessTypes, ...domainType }

/** What is not reported need not be (contract §9). The order of members matters (EIP-712). */
function checkTypes(reported: Record<string, Members>) {
  const same = (members: Members | undefined, own: Members | undefined) =>
    members !== undefined &&
    members.length === own?.length &&
    own.every(({ name, type }, at) => members[at]?.name === name && members[at]?.type === type)
  for (const [name, members] of Object.entries(reported))
    requireThat(
      same(members, Object.hasOwn(ownTypes, name) ? ownTypes[name] : undefined),
      'types',
      `signing.types.${/^\w{1,64}$/.test(name) ? name : 'one'} is not the type that Permit2 and SignedProposer hash`,
    )
}

export const nothingPinned =
  'the trust file does not pin the code of oracles and tokens, so an upgrade of theirs is not noticed: `proposer trust verify --repin` pins it'

export const howToRepin =
  'sign nothing before you know what the new code does; then `proposer trust verify --repin` shows old and new, and pins the new code'

export function implementationsNow(chain: Chain, trust: Trust): Promise<Implementations> {
  const pinned = Object.keys(trust.implementations ?? {}) as Address[]
  const addresses = [...trust.oracles, ...trust.tokens, ...pinned]
  return onChain(() => implementationsOf(chain, addresses, 'latest'))
}

/** Asked before each signature, or each hundred. */
export async function requireImplementations(chain: Chain, { implementations }: Trust) {
  if (implementations === undefined) return
  const changed = await onChain(() => changedImplementations(chain, implementations, 'latest'))
  if (changed.length > 0)
    throw new UsageError('implementation_changed', changed.map(changedText).join('; '), howToRepin)
}

export class FactError extends Error {
  constructor(readonly path: string) {
    super(`${path} is missing or malformed`)
  }
}

/** §2.7 names the oracle identifier and the ancillary bytes of a request, but not their fields. */
const oracleIdentifier = [
  'request.identifier.raw',
  'request.identifier',
  'request.oracle_identifier.raw',
  'request.oracle_identifier',
]
const ancillaryBytes = ['request.ancillary_data', 'request.ancillary_bytes', 'request.ancillary']

/**
 * Of what is written twice both are kept, for `checkContext` to compare. FactError names the
 * place looked at first.
 */
export function signingDataOf(json: unknown): BatchSigningData {
  const data = objectOf(json) ?? {}
  return {
    question_id: textAt(data, ['question_id', 'request.question_id'], isBytes32),
    request: {
      question_id: textAt(data, ['request.question_id', 'question_id'], isBytes32),
      oracle: textAt(data, ['request.oracle'], isAddress),
      requester: textAt(data, ['request.requester'], isAddress),
      identifier: { raw: textAt(data, [...oracleIdentifier, 'identifier.raw'], isBytes32) },
      timestamp: textAt(data, ['request.timestamp'], isUint256),
      ancillary_data: textAt(data, ancillaryBytes, isBytes),
    },
    identifier: { raw: textAt(data, ['identifier.raw', ...oracleIdentifier], isBytes32) },
    price: { allowed_values: allowedValues(data) },
    bond: {
      token: textAt(data, ['bond.token', 'token.address'], isAddress),
      required_bond: textAt(data, ['bond.required_bond', 'economics.total_bond'], isUint256),
    },
    contracts: {
      permit2: textAt(data, ['contracts.permit2'], isAddress),
      signed_proposer: textAt(data, ['contracts.signed_proposer'], isAddress),
    },
    signing: { chain_id: chainId(data), ...witnessOf(data) },
  }
}

export const valueAt = (data: Json, path: string) =>
  path.split('.').reduce<unknown>((at, name) => {
    const holder = objectOf(at)
    return holder !== undefined && Object.hasOwn(holder, name) ? holder[name] : undefined
  }, data)

const isText = (value: unknown): value is string => typeof value === 'string'

/** Text or a JSON number (contract §9). */
const asText = (data: Json, path: string) => {
  const value = valueAt(data, path)
  return Number.isSafeInteger(value) ? String(value) : value
}

/** A malformed value is not made good by the next place. */
function textAt<T extends string>(
  data: Json,
  places: readonly string[],
  isOne: ((text: string) => text is T) | ((text: string) => boolean),
) {
  const value = places
    .map((place) => asText(data, place))
    .find((each) => each != null && objectOf(each) === undefined)
  if (isText(value) && isOne(value)) return value as T
  throw new FactError(places[0] ?? '')
}

function chainId(data: Json) {
  const id = Number(textAt(data, ['signing.chain_id', 'typed_data.domain.chainId'], isUint256))
  if (Number.isSafeInteger(id) && id > 0) return id
  throw new FactError('signing.chain_id')
}

/** §2.7 lists prices; §2.4 lists outcomes, each with its price and its availability. */
function allowedValues(data: Json) {
  const { outcomes } = data
  const available = Array.isArray(outcomes)
    ? outcomes.filter((one) => objectOf(one)?.allowed === true).map(({ price }) => price)
    : undefined
  const values = valueAt(data, 'price.allowed_values') ?? available
  if (Array.isArray(values) && values.every((value) => isText(value) && isUint256(value)))
    return values
  throw new FactError('price.allowed_values')
}

/** What an answer says of the witness is kept to be compared. */
function witnessOf(data: Json) {
  const memberOf = (name: string, isOne: (value: unknown) => boolean) => {
    const value = asText(data, `signing.${name}`) ?? undefined
    if (value !== undefined && !isOne(value)) throw new FactError(`signing.${name}`)
    return value
  }
  const witness = {
    max_payment: memberOf('max_payment', isText) ?? '0',
    primary_type: memberOf('primary_type', isText) ?? primaryType,
    types: memberOf('types', isTypes) ?? witnessTypes,
  }
  // `checkContext` compares them with the literals.
  return witness as Omit<BatchSigningData['signing'], 'chain_id'>
}

const isTypes = (value: unknown) => {
  const types = objectOf(value)
  const isMember = (one: unknown) => isText(objectOf(one)?.name) && isText(objectOf(one)?.type)
  return (
    types !== undefined &&
    Object.values(types).every((members) => Array.isArray(members) && members.every(isMember))
  )
}
