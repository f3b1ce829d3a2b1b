/**
 * A question's context: what a proposal for it must name (spec §2.7, contract §4 signing_data),
 * from the gateway or from a chain.
 */
import type { RoundReader } from '#chain/questions'
import { batchSigningDataOf, type Round } from '#chain/round'
import type { Rules } from '#chain/rules'
import { onChain } from '#chain/unavailable'
import type { Chain, Clock } from '#ports'
import { inGroups } from '#protocol/capped'
import {
  ConflictError,
  InterruptedError,
  ProposerError,
  RejectedError,
  StorageError,
  UnavailableError,
  UsageError,
} from '#protocol/errors'
import { objectOf } from '#protocol/json'
import type { Address } from '#protocol/schema'
import { isQuestionId, isSlug, limits } from '#protocol/words'
import { acceptedValue, answerError, classifyRefusal } from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import type { ContextRead, ToldError } from '../gateway/reading.js'
import {
  checkContext,
  contractsOf,
  FactError,
  fieldOf,
  kindOf,
  outcomesByText,
  pinnedQuestionId,
  type QuestionContext,
  requestOf,
  requirePinnedChain,
  signingDataOf,
  type Trust,
  unpinnedSlug,
  untrusted,
  valueAt,
} from './trust.js'

export type ContextResult =
  | {
      readonly identifier: string
      readonly context: QuestionContext
      readonly notes: readonly string[]
      readonly error?: undefined
    }
  | { readonly identifier: string; readonly error: ProposerError; readonly context?: undefined }

export interface ContextSource {
  contexts(identifiers: readonly string[], options?: CallOptions): Promise<readonly ContextResult[]>
}

/** Free of charge (§8). Slugs come from trust.json; kind `direct` cannot be found. */
export function chainContexts(
  chain: Chain,
  trust: Trust,
  clock: Pick<Clock, 'nowMs'>,
): ContextSource {
  let reading: Promise<RoundReader> | undefined
  return {
    async contexts(identifiers) {
      reading ??= roundReader(chain, trust)
      const reader = await reading
      const nowSeconds = await chainNow(chain, trust, clock)
      const found = async (identifier: string) => {
        const questionId = pinnedQuestionId(trust, identifier)
        if (questionId === undefined) throw unpinnedSlug(identifier)
        const [round, ...others] = await onChain(() => reader.readAll(questionId))
        if (round === undefined) throw notFound(identifier, trust)
        requireOpen(round)
        const context: QuestionContext = { ...fromRound(trust, round), ...slugOf(identifier) }
        const notes = checkContext(trust, context, { identifier, nowSeconds })
        return withRules(chain, context, round, [...ambiguity(round, others), ...notes])
      }
      return Promise.all(identifiers.map((one) => contextResult(one, () => found(one))))
    },
  }
}

/** Of two requesters the first is taken. */
const ambiguity = ({ requester }: Round, others: readonly Round[]) =>
  others.length === 0
    ? []
    : [
        `this question id is known to ${others.length + 1} requesters: ${requester} is taken; name another with --requester: ${others.map((one) => one.requester).join(', ')}`,
      ]

/**
 * A request of kind `direct` stands in the gateway's registry alone; such a context is taken from
 * it once the chain has confirmed the request.
 */
function withDirect(
  chain: Chain,
  trust: Trust,
  own: ContextSource,
  gateway: () => Promise<ContextSource>,
): ContextSource {
  if (!isDirectPinned(trust)) return own
  async function fromGateway(identifiers: readonly string[], options?: CallOptions) {
    try {
      const results = await (await gateway()).contexts(identifiers, options)
      const direct = results.filter(
        ({ context }) => context && kindOf(trust, context.request.requester) === 'direct',
      )
      return await Promise.all(direct.map((one) => confirmed({ chain, trust }, one)))
    } catch (error) {
      const isOurs = error instanceof InterruptedError || error instanceof StorageError
      if (!(error instanceof ProposerError) || isOurs) throw error
      // A gateway that is down keeps back nothing that the chain has answered.
      return identifiers.map((identifier): ContextResult => ({ identifier, error }))
    }
  }
  return {
    async contexts(identifiers, options) {
      const results = await own.contexts(identifiers, options)
      const missing = results.flatMap(({ identifier, error }) =>
        error?.code === 'question_not_found' ? identifier : [],
      )
      const found = missing.length === 0 ? [] : await fromGateway(missing, options)
      return results.map((one) => found.find((it) => it.identifier === one.identifier) ?? one)
    },
  }
}

const isDirectPinned = (trust: Trust) => trust.requesters.some(({ kind }) => kind === 'direct')

/** As the chain has it, with its clarifications. */
async function confirmed(
  { chain, trust }: { readonly chain: Chain; readonly trust: Trust },
  one: ContextResult,
): Promise<ContextResult> {
  if (one.error !== undefined) return one
  return contextResult(one.identifier, async () => {
    const round = await confirmByChain(chain, trust, one.context)
    return withRules(chain, { ...one.context, source: 'chain' }, round, one.notes)
  })
}

const rulesUnknown = (why: string) => `rules unknown: ${why}`

async function withRules(
  chain: Chain,
  context: QuestionContext,
  round: Round,
  notes: readonly string[],
) {
  const rules = await rulesOfRound(chain, round)
  const unknown = rulesUnknown('requester or oracle does not report its clarifications')
  return rules === undefined
    ? { context, notes: [...notes, unknown] }
    : { context: { ...context, rules }, notes }
}

export async function rulesOfRound(chain: Chain, round: Round): Promise<Rules | undefined> {
  const { readRules } = await import('#chain/rules')
  return onChain(() => readRules(chain, round, round.blockNumber))
}

async function roundReader(chain: Chain, trust: Trust) {
  const { createRoundReader } = await import('#chain/questions')
  return createRoundReader(chain, contractsOf(trust))
}

const fromRound = (trust: Trust, round: Round): QuestionContext => ({
  ...batchSigningDataOf(round, contractsOf(trust)),
  source: 'chain',
  outcomes: round.outcomes,
  reward: String(round.rewardRaw),
  token: round.token,
  ...(round.kind === 'direct' ? {} : { reopened: round.isReopened }),
})

const heldFacts = [
  'request.oracle',
  'request.requester',
  'request.identifier.raw',
  'request.timestamp',
  'request.ancillary_data',
  'bond.token',
  'bond.required_bond',
] as const

/**
 * The chain's own word (robustness §6). That a question id of kind `direct` means its request, no
 * chain can tell.
 */
export async function confirmByChain(
  chain: Chain,
  trust: Trust,
  context: QuestionContext,
): Promise<Round> {
  const { question_id: questionId, request } = context
  const isDirect = kindOf(trust, request.requester) === 'direct'
  const named = isDirect ? { request: requestOf(context) } : { requester: request.requester }
  const reader = await roundReader(chain, trust)
  const round = await onChain(() => reader.read(questionId, { questionId, ...named }))
  if (round === undefined) throw notFound(questionId, trust)
  const held = { ...fromRound(trust, round) }
  for (const path of heldFacts) {
    const [reported, own] = [valueAt({ ...context }, path), valueAt(held, path)]
    if (reported === own) continue
    const field = fieldOf(path)
    // Ancillary data is long; where it differs is not worth a page.
    throw untrusted(
      field,
      field === 'ancillary_data'
        ? `${path} is not what the chain holds`
        : `${path} is ${reported}, the chain says ${own}`,
    )
  }
  requireOpen(round)
  return round
}

/** The later of wall clock and head time in Unix seconds (R16). */
export async function chainNow(chain: Chain, trust: Trust, clock: Pick<Clock, 'nowMs'>) {
  const [chainId, head] = await onChain(() => Promise.all([chain.chainId(), chain.block('latest')]))
  requirePinnedChain(chainId, trust)
  return Math.max(clock.nowMs() / 1_000, Number(head?.timestamp ?? 0n))
}

/** In Unix seconds, as the chain has it where there is one. */
export const nowOf = async ({
  chain,
  trust,
  ports: { clock },
}: {
  readonly chain?: Chain | undefined
  readonly trust: Trust
  readonly ports: { readonly clock: Pick<Clock, 'nowMs'> }
}) => (chain === undefined ? clock.nowMs() / 1_000 : chainNow(chain, trust, clock))

/** Not yet checked against trust. */
export function parseContext(json: unknown, identifier: string): QuestionContext {
  const picked = pick(json, identifier)
  const data = orBadField(() => signingDataOf(picked))
  const { slug, token: told, typed_data, rules } = objectOf(picked) ?? {}
  const token = tokenOf(told)
  const { hash } = objectOf(rules) ?? {}
  return {
    ...data,
    source: 'file',
    ...(typeof slug === 'string' ? { slug } : {}),
    ...(token && { token }),
    ...(typeof hash === 'string' && isQuestionId(hash) ? { rules_told: hash } : {}),
    ...(typed_data === undefined ? {} : { typed_data }),
  }
}

export function tokenIn(json: unknown, token: Address): QuestionContext['token'] {
  const { questions = [json] } = objectOf(json) ?? {}
  return (Array.isArray(questions) ? questions : [])
    .map((one) => tokenOf(objectOf(one)?.token))
    .find((one) => one?.address === token)
}

function tokenOf(token: unknown) {
  const { address, symbol, decimals } = objectOf(token) ?? {}
  return typeof address === 'string' &&
    typeof symbol === 'string' &&
    Number.isSafeInteger(decimals) &&
    Number(decimals) >= 0 &&
    Number(decimals) <= 255
    ? { address, symbol, decimals: Number(decimals) }
    : undefined
}

function pick(json: unknown, identifier: string) {
  if (typeof json !== 'object' || json === null) throw invalidContext('it is not a JSON object')
  if (!('questions' in json)) return json
  if (!Array.isArray(json.questions)) throw invalidContext('questions is not a list')
  const { questions } = json
  const named: unknown = questions.find((each: unknown) => {
    const { question_id, slug } = objectOf(each) ?? {}
    return question_id === identifier || slug === identifier
  })
  const found: unknown = named ?? (questions.length === 1 ? questions[0] : undefined)
  if (found === undefined) throw invalidContext(`none of its questions is ${identifier}`)
  if (typeof found === 'object' && found !== null && 'error' in found)
    throw invalidContext('it holds an error instead of this question')
  return found
}

async function contextResult(
  identifier: string,
  make: () => Promise<{ context: QuestionContext; notes: readonly string[] }>,
): Promise<ContextResult> {
  try {
    return { identifier, ...(await make()) }
  } catch (error) {
    if (error instanceof ProposerError) return { identifier, error }
    throw error
  }
}

const slugOf = (identifier: string) => (isSlug(identifier) ? { slug: identifier } : {})

function orBadField<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (error instanceof FactError) throw untrusted(fieldOf(error.path), error.message)
    throw error
  }
}

const invalidContext = (why: string) =>
  new UsageError(
    'invalid_context',
    `the context file cannot be used: ${why}`,
    'make it with `proposer context <identifier> --json`',
  )

function notFound(identifier: string, trust: Trust) {
  const direct = isDirectPinned(trust)
    ? '; of kind direct the gateway alone knows it: give --gateway too, or --context <file>'
    : ''
  return new RejectedError(
    'question_not_found',
    `no pinned requester on the chain knows ${identifier}`,
    `check the question id, the requesters in the trust file and the --rpc-url${direct}`,
  )
}

function requireOpen(round: Round) {
  if (round.state === 'requested' && !round.paused) return
  const state = round.paused ? 'paused' : round.state
  throw new ConflictError(
    'request_not_open',
    `the request of ${round.questionId} is not open for a proposal: its state is ${state}`,
    `${round.paused ? 'wait until the question is unpaused' : 'wait for a new round'}; \`proposer reconcile ${round.questionId}\` shows what happened`,
  )
}

interface SourceParts {
  readonly trust: Trust
  readonly clock: Clock
  readonly chain: Chain | undefined
  readonly gateway?: (() => Promise<GatewayClient>) | undefined
}

/** From a node where there is one, free of the rate limit. */
export async function contextsFrom({
  trust,
  clock,
  chain,
  gateway,
}: SourceParts): Promise<ContextSource> {
  const fromGateway = gateway && (async () => gatewayContexts(await gateway(), trust, clock))
  if (chain !== undefined) {
    const own = chainContexts(chain, trust, clock)
    return fromGateway ? withDirect(chain, trust, own, fromGateway) : own
  }
  if (fromGateway === undefined) throw new Error('contexts come from a node or a gateway')
  const source = await fromGateway()
  return {
    contexts: async (identifiers, options) =>
      (await source.contexts(identifiers, options)).map(withoutNode),
  }
}

const withoutNode = (one: ContextResult): ContextResult =>
  one.error === undefined ? { ...one, notes: [...one.notes, noNodeForRules] } : one

const noNodeForRules = rulesUnknown('clarifications are read from a node (--rpc-url)')

/**
 * Contexts at hand, such as those of a file. Nobody is asked but the chain, where there is one,
 * whether each is still so (R9).
 */
export function givenContexts(
  { trust, clock, chain }: Omit<SourceParts, 'gateway'>,
  read: (identifier: string) => QuestionContext | Promise<QuestionContext>,
): ContextSource {
  const checked = async (identifier: string) => {
    // What a file says of its source confirms nothing.
    const one = await contextResult(identifier, async () => {
      const context: QuestionContext = { ...(await read(identifier)), source: 'gateway' }
      const nowSeconds = await nowOf({ chain, trust, ports: { clock } })
      return { context, notes: checkContext(trust, context, { identifier, nowSeconds }) }
    })
    return chain === undefined ? withoutNode(one) : confirmed({ chain, trust }, one)
  }
  return { contexts: (identifiers) => Promise.all(identifiers.map(checked)) }
}

/** Costs one item an identifier. */
export function gatewayContexts(
  gateway: GatewayClient,
  trust: Trust,
  clock: Pick<Clock, 'nowMs'>,
): ContextSource {
  return {
    async contexts(identifiers, options = {}) {
      const results: ContextResult[] = []
      for (const asked of inGroups(identifiers, limits.batchItems)) {
        const { results: items } = acceptedValue(
          await gateway.contexts(asked, options),
          asked.length === 1 ? asked[0] : undefined,
        )
        for (const [index, identifier] of asked.entries())
          results.push(
            await contextResult(identifier, async () => {
              // Of a list of another length nobody knows which result is whose.
              if (items.length !== asked.length)
                throw gatewayFault(
                  `the gateway gave ${items.length} results where it was asked for ${asked.length}`,
                )
              return fromItem(items[index], identifier)
            }),
          )
      }
      return results
    },
  }

  function fromItem(item: ContextRead | undefined, identifier: string) {
    if (item === undefined || (item.identifier ?? identifier) !== identifier)
      throw gatewayFault(
        'the gateway did not answer the identifiers in the order they were asked in',
      )
    const { status_code: status, signing_data, error } = item
    if (status !== 200 || signing_data === undefined)
      throw error === undefined
        ? gatewayFault(`the gateway answered ${status ?? 'one item'} without an error`)
        : itemError(identifier, status, error)
    const data = orBadField(() => signingDataOf(signing_data))
    const bare: QuestionContext = { ...data, source: 'gateway', ...slugOf(identifier) }
    const notes = checkContext(trust, bare, { identifier, nowSeconds: clock.nowMs() / 1_000 })
    return { context: { ...bare, outcomes: allowedOutcomes(trust, bare) }, notes }
  }
}

function allowedOutcomes(trust: Trust, context: QuestionContext) {
  return outcomesByText(trust, context).map((outcome) => ({
    ...outcome,
    allowed:
      context.price.allowed_values.includes(outcome.price) &&
      (outcome.allowed || kindOf(trust, context.request.requester) === 'direct'),
  }))
}

function itemError(identifier: string, httpStatus: number | undefined, error: ToldError) {
  const refusal = httpStatus === undefined ? undefined : classifyRefusal(httpStatus, error)
  return answerError(
    refusal === undefined || refusal.kind === 'uncertain'
      ? { kind: 'deferred', ...(httpStatus === undefined ? {} : { httpStatus }), ...error }
      : refusal,
    'read',
    identifier,
  )
}

const gatewayFault = (detail: string) =>
  new UnavailableError('gateway_body', detail, 'nothing was admitted by this call; retry later')
