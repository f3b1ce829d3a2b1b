/** trust.json, by which all that is signed is checked (R9, contract §7). */
import * as z from 'zod/mini'
import en from 'zod/v4/locales/en.js'
import { outcomesOf } from '#chain/ancillary'
import { yesOrNoQuery } from '#chain/constants'
import { changedImplementations, changedText, implementationsOf } from '#chain/implementations'
import { builtInProfile } from '#chain/profiles'
import {
  type Contracts,
  keccakHex,
  type RequesterKind,
  requesterKinds,
  roundRef,
} from '#chain/round'
import type { Rules } from '#chain/rules'
import { onChain } from '#chain/unavailable'
import type { Chain, Hex } from '#ports'
import { givenAddress, lowercaseAddresses } from '#protocol/address'
import { instant, type RoundRef } from '#protocol/candidate'
import { UsageError } from '#protocol/errors'
import { Address, BatchSigningData, Bytes32, KeyId, receiptJwk, Uint256 } from '#protocol/fields'
import { objectOf } from '#protocol/json'
import { answersText, answerText, labelIn, labelsOf, outcomesNamed } from '#protocol/outcome-words'
import { pick } from '#protocol/pick'
import type { Outcome, OutcomeKey } from '#protocol/schema'
import { primaryType, type WitnessRequest, wireTypes } from '#protocol/witness'
import { isQuestionId, zeroAddress } from '#protocol/words'

const addresses = z.array(Address).check(z.minLength(1))

const { nbf, exp, ...jwk } = receiptJwk
/** Strict: a private half is refused. */
const PinnedJwk = z.strictObject({
  ...jwk,
  kid: z.optional(z.string()),
  use: z.optional(z.literal('sig')),
  alg: z.optional(z.enum(['EdDSA', 'Ed25519'])),
  nbf,
  exp,
})

export const receiptKeysOf = ({ receipt_keys = {} }: Trust) =>
  Object.entries(receipt_keys).map(([kid, { x, nbf, exp }]) => ({ kid, x, nbf, exp }))

export const Trust = z
  .strictObject({
    chain_id: z.int().check(z.minimum(1)),
    permit2: Address,
    signed_proposer: Address,
    oracles: addresses,
    requesters: z
      .array(z.strictObject({ address: Address, kind: z.enum(requesterKinds) }))
      .check(z.minLength(1)),
    tokens: addresses,
    slugs: z._default(z.record(z.string(), Bytes32), {}),
    token_info: z.optional(
      z.record(
        Address,
        z.strictObject({
          symbol: z.string().check(z.regex(/^[\x21-\x7e]{1,32}$/)),
          decimals: z.int().check(z.minimum(0), z.maximum(255)),
        }),
      ),
    ),
    implementations: z.optional(
      z.record(Address, z.strictObject({ implementation: Address, code_hash: Bytes32 })),
    ),
    receipt_keys: z.optional(z.record(KeyId, PinnedJwk)),
  })
  .register(z.globalRegistry, { id: 'Trust' })
export type Trust = z.infer<typeof Trust>

export function parseTrust(json: unknown, where: string): Trust {
  const lower = lowercaseAddresses(json, (path, address) => {
    givenAddress(address, `${where}: ${path}:`, 'invalid_trust')
  })
  const parsed = Trust.safeParse(lower, { error: en().localeError })
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const field = issue?.path.map(String).join('.') || 'the whole'
  throw new UsageError(
    'invalid_trust',
    `${where}: ${field}: ${issue?.message ?? 'malformed'}`,
    'create one with `proposer trust init`',
  )
}

/** The later word holds; pins of another chain replace all. */
export function mergePins(current: Trust, more: Trust) {
  const isOther = current.chain_id !== more.chain_id
  const changed = isOther ? [`chain_id: ${current.chain_id} becomes ${more.chain_id}`] : []
  const added: string[] = []
  const both = (field: 'oracles' | 'tokens') => [...new Set([...current[field], ...more[field]])]
  const requesters = [...current.requesters, ...more.requesters]
  const merged: Trust = {
    ...current,
    ...more,
    oracles: both('oracles'),
    tokens: both('tokens'),
    requesters: [...new Map(requesters.map((one) => [one.address, one])).values()],
  }
  for (const field of ['slugs', 'token_info', 'receipt_keys', 'implementations'] as const)
    if (merged[field]) Object.assign(merged, { [field]: { ...current[field], ...more[field] } })
  const trust = isOther ? more : merged
  const [before, after] = [new Map(pinWords(current)), new Map(pinWords(trust))]
  for (const [name, says] of after) {
    const was = before.get(name)
    if (was === undefined) added.push(name)
    // A key that ends is a narrower pin, no change.
    else if (says.startsWith(`${was} until `))
      added.push(`end of ${name}: ${says.slice(`${was} until `.length)}`)
    else if (was !== says) changed.push(`${name}: ${was} becomes ${says}`)
  }
  for (const name of before.keys()) if (!after.has(name)) changed.push(`${name} is dropped`)
  return { trust, changed, added }
}

export function pinWords(trust: ProfilePins): readonly (readonly [name: string, says: string])[] {
  const { token_info = {}, implementations = {}, receipt_keys = {} } = trust
  const each = <T>(label: string, ones: Readonly<Record<string, T>>, says: (one: T) => string) =>
    Object.entries(ones).map(([subject, one]) => [`${label} ${subject}`, says(one)] as const)
  return [
    ['permit2', trust.permit2],
    ['signed_proposer', trust.signed_proposer ?? 'missing: no public source lists it'],
    ...trust.oracles.map((address) => [`oracle ${address}`, ''] as const),
    ...trust.requesters.map(({ address, kind }) => [`requester ${address}`, kind] as const),
    ...trust.tokens.map((address) => [`token ${address}`, ''] as const),
    ...each('token_info', token_info, (one) => `${one.symbol} with ${one.decimals} decimals`),
    ...each(
      'implementation of',
      implementations,
      (one) => `${one.implementation} with code hash ${one.code_hash}`,
    ),
    ...each('receipt key', receipt_keys, ({ x, exp }) =>
      exp === undefined ? x : `${x} until ${instant(exp * 1_000)}`,
    ),
    ...each('slug', trust.slugs, (id) => id),
  ]
}

export type ProfilePins = Omit<Trust, 'signed_proposer'> & {
  readonly signed_proposer: Address | null
}

export function profilePins(name: string) {
  const profile = builtInProfile(name)
  if (!profile) return undefined
  return {
    chain_id: profile.chainId,
    permit2: profile.permit2,
    signed_proposer: profile.signedProposer ?? null,
    oracles: [...profile.oracles],
    requesters: [...profile.requesters],
    tokens: [...profile.tokens],
    slugs: {},
  }
}

export function wholePins(name: string, pins: ProfilePins, signedProposer?: Address) {
  if (signedProposer === zeroAddress)
    throw new UsageError(
      'bad_address',
      '--signed-proposer is not a contract address',
      'give it as 0x and 40 hex digits, not all zero',
    )
  const known = pins.signed_proposer
  const signed_proposer = signedProposer ?? known
  if (known !== null && signed_proposer !== known)
    throw new UsageError(
      'untrusted_signed_proposer',
      `--signed-proposer is ${signedProposer}, the profile ${name} has ${known}`,
      'leave it out, or pin other contracts under another profile name with `proposer trust init --from <file>`',
    )
  if (signed_proposer === null)
    throw new UsageError(
      'signed_proposer_needed',
      `the profile ${name} pins every contract but signed_proposer, which no public source names`,
      `ask the operator for it, compare it with an independent source, then run \`proposer trust init --profile ${name} --signed-proposer 0x…\``,
    )
  return { ...pins, signed_proposer }
}

export interface QuestionContext extends BatchSigningData {
  readonly source: 'gateway' | 'chain' | 'file'
  readonly slug?: string
  readonly outcomes?: readonly Outcome[]
  readonly reward?: string
  readonly reopened?: boolean
  readonly rules?: Rules
  /** Those that the maker of a file had read. */
  readonly rules_told?: Hex
  readonly token?: { readonly address: string; readonly symbol: string; readonly decimals: number }
  /** Of a file: compared, never signed (R9). */
  readonly typed_data?: unknown
}

export const contractsOf = (trust: Trust): Contracts => ({
  ...pick(trust, 'permit2', 'oracles', 'requesters', 'tokens'),
  chainId: trust.chain_id,
  signedProposer: trust.signed_proposer,
})

export function pinnedQuestionId(trust: Trust, identifier: string) {
  if (isQuestionId(identifier)) return identifier
  return Object.hasOwn(trust.slugs, identifier) ? trust.slugs[identifier] : undefined
}

const fieldOf = (path: string) => path.split('.').findLast((part) => part !== 'raw') ?? path

const distrust =
  'nothing was signed; if the pins are out of date, correct the trust file; otherwise do not use this gateway'

export const untrusted = (field: string, detail: string, hint = distrust) =>
  new UsageError(`untrusted_${field}`, detail, hint)

export function requireThat(isSo: boolean, ...fault: Parameters<typeof untrusted>) {
  if (!isSo) throw untrusted(...fault)
}

/** By path; a list is of pins. */
export function requireFacts(
  context: object,
  expected: Readonly<Record<string, string | number | readonly string[]>>,
  says: string,
) {
  for (const [path, own] of Object.entries(expected)) {
    const reported = valueAt(context, path)
    const isSo = [own].flat().some((one) => one === reported)
    const wanted = Array.isArray(own) ? 'which the trust file does not list' : `${says} ${own}`
    requireThat(isSo, fieldOf(path), `${path} is ${reported}, ${wanted}`)
  }
}

export const requirePinnedChain = (chainId: number, trust: Pick<Trust, 'chain_id'>) =>
  requireThat(
    chainId === trust.chain_id,
    'chain_id',
    `the RPC is on chain ${chainId}, the trust file pins ${trust.chain_id}`,
    'give the --rpc-url of the pinned chain',
  )

/** What somebody says a slug means is not signed for (R9). */
export const unpinnedSlug = (slug: string, questionId?: Hex) =>
  untrusted(
    'slug',
    `the slug ${slug} is not pinned in the trust file${questionId ? `; the gateway says it means ${questionId}` : ''}`,
    `compare its spelling with \`proposer questions list\`, and what \`proposer context ${questionId ?? slug}\` shows without a node (--rpc-url) with an independent source; then give the question id itself, or add "${slug}": "${questionId ?? '0x…'}" to \`slugs\` of the trust file (\`proposer trust init\` makes one), as \`proposer trust pin ${slug}\` does`,
  )

const clockSlackSeconds = 900

/** Gives notes on what it cannot check (robustness §6, domain §9). */
export function checkContext(
  trust: Trust,
  context: QuestionContext,
  nowSeconds: number,
  identifier?: string,
) {
  const { request, signing, question_id } = context
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
  requireFacts(context, pins, 'the trust file pins')
  checkTypes(signing.types)
  requireFacts(context, { 'request.question_id': question_id }, 'but question_id is')
  const { raw } = context.identifier
  requireFacts(context, { 'request.identifier.raw': raw }, 'but identifier.raw is')
  const notes = identifier === undefined ? [] : checkAsked(trust, context, identifier)
  const kind = kindOf(trust, request.requester)
  if (isNamedByText(kind)) {
    requireFacts(context, { 'identifier.raw': yesOrNoQuery }, "an adapter's questions have")
    const hashed = keccakHex(request.ancillary_data)
    requireThat(
      hashed === question_id,
      'ancillary_data',
      `request.ancillary_data hashes to ${hashed}, which is not question_id ${question_id}`,
    )
  }
  // A signature made before its round could be kept for it.
  requireThat(
    Number(request.timestamp) <= nowSeconds + clockSlackSeconds,
    'timestamp',
    `request.timestamp ${request.timestamp} lies in the future (now is ${Math.floor(nowSeconds)})`,
    'check the clock of this machine; on a chain whose time was moved, give --rpc-url',
  )
  if (kind === 'oo-reporter')
    notes.push(
      'the question id of a reporter request is not a hash: only the chain (--rpc-url) can confirm it',
    )
  return notes
}

export const requestOf = ({ request }: Pick<QuestionContext, 'request'>): WitnessRequest => ({
  ...pick(request, 'oracle', 'requester', 'timestamp'),
  identifier: request.identifier.raw,
  ancillaryData: request.ancillary_data,
})

export const kindOf = (trust: Trust, requester: string) =>
  trust.requesters.find(({ address }) => address === requester)?.kind

/** Two adapters may ask the same text. */
export function onlyRequester(trust: Trust, requester: string) {
  const narrowed = atRequester(trust, requester)
  requireThat(
    narrowed.requesters.length > 0,
    'requester',
    `--requester is ${requester}, which the trust file does not list`,
    'give one that `proposer trust show` lists',
  )
  return narrowed
}

export const atRequester = (trust: Trust, requester: string) => ({
  ...trust,
  requesters: trust.requesters.filter(({ address }) => address === requester),
})

type JournaledRound = { readonly questionId: Hex } & {
  readonly [Key in 'timestamp' | 'round' | 'requester']?: string | undefined
}

/** Records of 0.1 name no requester; where the id is a hash, the round's key tells it. */
export function roundPins(trust: Trust, record: JournaledRound) {
  const { questionId, timestamp, round, requester } = record
  if (requester !== undefined) return atRequester(trust, requester)
  if (round === undefined || timestamp === undefined) return trust
  const hasKey = (requester: Address) =>
    trust.oracles.some((oracle) => {
      const request = { oracle, requester, identifier: yesOrNoQuery, timestamp }
      return roundRef(contractsOf(trust), questionId, request, questionId).key === round
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

export const isNamedByText = (kind: RequesterKind | undefined) =>
  kind === 'uma-ctf-adapter' || kind === 'uma-ctf-adapter-negrisk'

/** A reporter's request may serve ten ids, and a registry name one twice (domain §10). */
export const sharedRound = (
  trust: Trust,
  { request }: Pick<QuestionContext, 'request'>,
  ref: RoundRef,
) => (isNamedByText(kindOf(trust, request.requester)) ? undefined : ref.key)

export function checkOutcome(trust: Trust, context: QuestionContext, outcome: OutcomeKey) {
  const outcomes = outcomesFor(trust, context)
  const allowed = outcomes.filter(({ price }) => context.price.allowed_values.includes(price))
  const read = allowed.find((one) => one.outcome === outcome)
  if (read === undefined)
    throw new UsageError(
      'outcome_not_allowed',
      `${answerText(outcome, labelIn(outcomes, outcome))} is not allowed; price.allowed_values has only ${answersText(allowed)}`,
      'give one of these answers; `proposer context` shows the rules',
    )
  requireThat(
    read.allowed,
    'price',
    `price.allowed_values lists ${read.price} (${outcome}), but the request's text or its requester does not allow it`,
  )
  return read
}

export function outcomeMeant(trust: Trust, context: QuestionContext, word: string) {
  const outcomes = outcomesFor(trust, context)
  const named = outcomesNamed(word, labelsOf(outcomes))
  const [found] = named
  if (found && named.length === 1) return found
  const said = `the outcome ${JSON.stringify(word.slice(0, longestWordShown))}`
  const isShown = ({ outcome, allowed }: Outcome) => (found ? named.includes(outcome) : allowed)
  const shown = answersText(outcomes.filter(isShown))
  const hint = 'give the answer as it is shown, or its key'
  const many = `${said} matches ${named.length} answers: ${shown}`
  if (found) throw new UsageError('ambiguous_outcome', many, hint)
  const why = /^\s*(yes|no)\s*$/i.test(word)
    ? 'is taken only where the answers are Yes and No'
    : 'is not an answer to this question'
  throw new UsageError('bad_outcome', `${said} ${why}; the answers are ${shown || 'none'}`, hint)
}

const longestWordShown = 80

/** Allowed by text and context alike; of kind `direct` by the context alone. */
export function outcomesFor(trust: Trust, context: QuestionContext) {
  if (context.outcomes) return context.outcomes
  const { request, price, identifier } = context
  const kind = kindOf(trust, request.requester)
  const settlesHalf = kind !== 'uma-ctf-adapter-negrisk'
  const binary = identifier.raw === yesOrNoQuery
  return outcomesOf(request.ancillary_data, { settlesHalf, binary }).map((one) => ({
    ...one,
    allowed: price.allowed_values.includes(one.price) && (one.allowed || kind === 'direct'),
  }))
}

export function checkAsked(
  trust: Trust,
  context: QuestionContext,
  identifier: string,
  mustBePinned = false,
) {
  const { question_id: questionId } = context
  const pinned = pinnedQuestionId(trust, identifier)
  if (pinned === undefined) {
    if (mustBePinned) throw unpinnedSlug(identifier, questionId)
    return [`the slug ${identifier} is not pinned: check that it means question ${questionId}`]
  }
  requireFacts(context, { question_id: pinned }, `but ${identifier} means`)
  return []
}

/** A missing one is no fault (contract §9). */
function checkTypes(reported: BatchSigningData['signing']['types']) {
  const own = wireTypes(true)
  const encoded = (members: (typeof own)[string] = []) =>
    JSON.stringify(members.map(({ name, type }) => [name, type]))
  for (const [name, members] of Object.entries(reported))
    requireThat(
      Object.hasOwn(own, name) && encoded(members) === encoded(own[name]),
      'types',
      `signing.types.${/^\w{1,64}$/.test(name) ? name : 'one'} is not the type that Permit2 and SignedProposer hash`,
    )
}

export const nothingPinned =
  'the trust file does not pin the code of oracles and tokens, so an upgrade of theirs is not noticed: `proposer trust verify --repin` pins it'

export const howToRepin =
  'sign nothing before you know what the new code does; then `proposer trust verify --repin` shows old and new, and pins the new'

export function implementationsNow(chain: Chain, trust: Trust) {
  const { oracles, tokens, implementations = {} } = trust
  const addresses = [...oracles, ...tokens, ...(Object.keys(implementations) as Address[])]
  return onChain(() => implementationsOf(chain, addresses, 'latest'))
}

export async function requireImplementations(chain: Chain, { implementations }: Trust) {
  if (implementations === undefined) return
  const changed = await onChain(() => changedImplementations(chain, implementations, 'latest'))
  if (changed.length > 0)
    throw new UsageError('implementation_changed', changed.map(changedText).join('; '), howToRepin)
}

export class FactError extends UsageError {
  constructor(path: string) {
    super(`untrusted_${fieldOf(path)}`, `${path} is missing or malformed`, distrust)
  }
}

/** §2.7 names no field for it. */
const oracleIdentifier = [
  'request.identifier.raw',
  'request.identifier',
  'request.oracle_identifier.raw',
  'request.oracle_identifier',
]

const Facts = z.extend(BatchSigningData, {
  signing: z.extend(BatchSigningData.shape.signing, {
    chain_id: z.pipe(Uint256, z.pipe(z.transform(Number), z.int().check(z.minimum(1)))),
    max_payment: z.string(),
    primary_type: z.string(),
  }),
})

/** From the first place that has each (contract §9); `checkContext` compares what stands twice. */
export function signingDataOf(json: unknown): BatchSigningData {
  const at = (...places: readonly string[]) =>
    places.map((place) => textAt(json, place)).find((one) => one != null && !objectOf(one))
  const read = Facts.safeParse({
    question_id: at('question_id', 'request.question_id'),
    request: {
      ...objectOf(valueAt(json, 'request')),
      question_id: at('request.question_id', 'question_id'),
      identifier: { raw: at(...oracleIdentifier, 'identifier.raw') },
      timestamp: at('request.timestamp'),
      ancillary_data: at('request.ancillary_data', 'request.ancillary_bytes', 'request.ancillary'),
    },
    identifier: { raw: at('identifier.raw', ...oracleIdentifier) },
    price: { allowed_values: valueAt(json, 'price.allowed_values') ?? availablePrices(json) },
    bond: {
      token: at('bond.token', 'token.address'),
      required_bond: at('bond.required_bond', 'economics.total_bond'),
    },
    contracts: { ...objectOf(valueAt(json, 'contracts')) },
    signing: {
      chain_id: at('signing.chain_id', 'typed_data.domain.chainId'),
      max_payment: textAt(json, 'signing.max_payment') ?? '0',
      primary_type: textAt(json, 'signing.primary_type') ?? primaryType,
      types: valueAt(json, 'signing.types') ?? wireTypes(false),
    },
  })
  if (read.success) return read.data as BatchSigningData
  const [issue] = read.error.issues
  throw new FactError(issue?.path.slice(0, 2).join('.') ?? '')
}

const valueAt = (data: unknown, path: string) =>
  path.split('.').reduce<unknown>((at, name) => {
    const holder = objectOf(at)
    return holder !== undefined && Object.hasOwn(holder, name) ? holder[name] : undefined
  }, data)

/** Text or a JSON number (contract §9). */
function textAt(data: unknown, path: string) {
  const value = valueAt(data, path)
  return Number.isSafeInteger(value) ? String(value) : value
}

/** §2.7 lists prices, §2.4 outcomes. */
function availablePrices(data: unknown) {
  const outcomes = valueAt(data, 'outcomes')
  return Array.isArray(outcomes)
    ? outcomes.filter((one) => objectOf(one)?.allowed === true).map(({ price }) => price)
    : undefined
}
