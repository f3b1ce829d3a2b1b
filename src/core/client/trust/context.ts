/** What a proposal for a question must name (spec §2.7, contract §4 signing_data), by source. */
import * as z from 'zod/mini'
import { batchSigningDataOf, type Round } from '#chain/round'
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
import { once } from '#protocol/once'
import type { Address } from '#protocol/schema'
import { isQuestionId, isSlug, limits } from '#protocol/words'
import { acceptedValue, answerError, classifyRefusal } from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import type { ContextRead } from '../gateway/reading.js'
import {
  checkContext,
  contractsOf,
  kindOf,
  outcomesFor,
  pinnedQuestionId,
  type QuestionContext,
  requestOf,
  requireFacts,
  requirePinnedChain,
  requireThat,
  signingDataOf,
  type Trust,
  unpinnedSlug,
} from './trust.js'

export type ContextResult =
  | {
      readonly identifier: string
      readonly context: QuestionContext
      readonly notes: readonly string[]
      readonly error?: undefined
    }
  | { readonly identifier: string; readonly error: ProposerError; readonly context?: undefined }

type Found = Pick<Extract<ContextResult, { error?: undefined }>, 'context' | 'notes'>

export interface ContextSource {
  contexts(identifiers: readonly string[], options?: CallOptions): Promise<readonly ContextResult[]>
}

/** Free of charge (§8). Slugs come from pins; kind `direct` cannot be found. */
export function chainContexts(
  chain: Chain,
  trust: Trust,
  clock: Pick<Clock, 'nowMs'>,
): ContextSource {
  const readerOnce = once(() => roundReader(chain, trust))
  return {
    async contexts(identifiers) {
      const reader = await readerOnce()
      const nowSeconds = await chainNow(chain, trust, clock)
      return eachContext(identifiers, async (identifier) => {
        const questionId = pinnedQuestionId(trust, identifier)
        if (questionId === undefined) throw unpinnedSlug(identifier)
        const [round, ...others] = await onChain(() => reader.readAll(questionId))
        if (round === undefined) throw notFound(identifier, trust)
        requireOpen(round)
        const context = { ...fromRound(trust, round), ...slugOf(identifier) }
        const notes = checkContext(trust, context, nowSeconds, identifier)
        if (others.length > 0)
          notes.unshift(
            `this question id is known to ${others.length + 1} requesters: ${round.requester} is taken; name another with --requester: ${others.map(({ requester }) => requester).join(', ')}`,
          )
        return withRules(chain, round, { context, notes })
      })
    },
  }
}

/** A request of kind `direct` stands in the gateway's registry alone; the chain confirms it. */
const withDirect = (
  chain: Chain,
  trust: Trust,
  own: ContextSource,
  gateway: () => Promise<ContextSource>,
): ContextSource => ({
  async contexts(identifiers, options) {
    const results = await own.contexts(identifiers, options)
    const isMissing = ({ error }: ContextResult) => error?.code === 'question_not_found'
    const missing = results.filter(isMissing).map(({ identifier }) => identifier)
    const atGateway = once(async () => (await gateway()).contexts(missing, options))
    return Promise.all(
      results.map((one) => {
        if (!isMissing(one)) return one
        // A gateway that is down keeps back nothing that the chain has answered.
        return contextResult(one.identifier, async () => {
          const found = (await atGateway()).find(({ identifier }) => identifier === one.identifier)
          const requester = found?.context?.request.requester ?? ''
          if (!found?.context || kindOf(trust, requester) !== 'direct') throw one.error
          return confirmed(chain, trust, found)
        })
      }),
    )
  },
})

const isDirectPinned = (trust: Trust) => trust.requesters.some(({ kind }) => kind === 'direct')

async function confirmed(chain: Chain, trust: Trust, { context, notes: all }: Found) {
  const round = await confirmByChain(chain, trust, context)
  const notes = all.filter((one) => one !== noNodeForRules)
  const held = { ...context, ...reopenedIn(round), source: 'chain' } as const
  return withRules(chain, round, { context: held, notes })
}

const noNodeForRules = 'rules unknown: clarifications are read from a node (--rpc-url)'

async function withRules(chain: Chain, round: Round, { context, notes }: Found) {
  const rules = await rulesOfRound(chain, round)
  if (rules !== undefined) return { context: { ...context, rules }, notes }
  const unknown = 'rules unknown: requester or oracle does not report its clarifications'
  return { context, notes: [...notes, unknown] }
}

export async function rulesOfRound(chain: Chain, round: Round) {
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
  ...reopenedIn(round),
})

const reopenedIn = ({ kind, isReopened }: Round) =>
  kind === 'direct' ? {} : { reopened: isReopened }

/** That a question id of kind `direct` means its request, no chain can tell. */
export async function confirmByChain(chain: Chain, trust: Trust, context: QuestionContext) {
  const { question_id: questionId, request } = context
  const isDirect = kindOf(trust, request.requester) === 'direct'
  const named = isDirect ? { request: requestOf(context) } : { requester: request.requester }
  const reader = await roundReader(chain, trust)
  const round = await onChain(() => reader.read(questionId, { questionId, ...named }))
  if (round === undefined) throw notFound(questionId, trust)
  // Too long to be shown.
  requireThat(
    request.ancillary_data === round.ancillaryData,
    'ancillary_data',
    'request.ancillary_data is not what the chain holds',
  )
  const held = {
    'request.oracle': round.oracle,
    'request.requester': round.requester,
    'request.identifier.raw': round.identifier,
    'request.timestamp': round.timestamp,
    'bond.token': round.token.address,
    'bond.required_bond': String(round.totalBondRaw),
  }
  requireFacts(context, held, 'the chain says')
  requireOpen(round)
  return round
}

/** The later of wall clock and head time in Unix seconds (R16). */
export async function chainNow(chain: Chain, trust: Trust, clock: Pick<Clock, 'nowMs'>) {
  const [chainId, head] = await onChain(() => Promise.all([chain.chainId(), chain.block('latest')]))
  requirePinnedChain(chainId, trust)
  return Math.max(clock.nowMs() / 1_000, Number(head?.timestamp ?? 0n))
}

interface NowParts {
  readonly chain?: Chain | undefined
  readonly trust: Trust
  readonly ports: { readonly clock: Pick<Clock, 'nowMs'> }
}

export const nowOf = async ({ chain, trust, ports: { clock } }: NowParts) =>
  chain === undefined ? clock.nowMs() / 1_000 : chainNow(chain, trust, clock)

/** Not yet checked against trust. */
export function parseContext(json: unknown, identifier: string): QuestionContext {
  const picked = pick(json, identifier)
  const { slug, token: told, typed_data, rules } = picked
  const token = tokenOf(told)
  const hash = objectOf(rules)?.hash
  return {
    ...signingDataOf(picked),
    source: 'file',
    ...(typeof slug === 'string' && { slug }),
    ...(token && { token }),
    ...(typeof hash === 'string' && isQuestionId(hash) && { rules_told: hash }),
    ...(typed_data !== undefined && { typed_data }),
  }
}

export const tokenIn = (json: unknown, token: Address) =>
  questionsIn(json)
    .map((one) => tokenOf(objectOf(one)?.token))
    .find((one) => one?.address === token)

const Token = z.object({
  address: z.string(),
  symbol: z.string(),
  decimals: z.int().check(z.minimum(0), z.maximum(255)),
})

const tokenOf = (token: unknown): QuestionContext['token'] => Token.safeParse(token).data

function questionsIn(json: unknown): readonly unknown[] {
  const { questions = [json] } = objectOf(json) ?? {}
  return Array.isArray(questions) ? questions : []
}

function pick(json: unknown, identifier: string) {
  const all = questionsIn(json)
  const named = all.find((one) => {
    const { question_id, slug } = objectOf(one) ?? {}
    return [question_id, slug].includes(identifier)
  })
  const found = objectOf(named ?? (all.length === 1 ? all[0] : undefined))
  if (found === undefined)
    throw invalidContext(
      all.length < 2 ? 'it holds no question' : `none of its questions is ${identifier}`,
    )
  // A bare question says what it likes beside its facts.
  if (found !== json && 'error' in found)
    throw invalidContext('it holds an error instead of this question')
  return found
}

const eachContext = (
  identifiers: readonly string[],
  make: (identifier: string, at: number) => Promise<Found>,
) => Promise.all(identifiers.map((one, at) => contextResult(one, () => make(one, at))))

async function contextResult(
  identifier: string,
  make: () => Promise<Found>,
): Promise<ContextResult> {
  try {
    return { identifier, ...(await make()) }
  } catch (error) {
    const isOurs = error instanceof InterruptedError || error instanceof StorageError
    if (isOurs || !(error instanceof ProposerError)) throw error
    return { identifier, error }
  }
}

const slugOf = (identifier: string) => (isSlug(identifier) ? { slug: identifier } : {})

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

export async function contextsFrom({
  trust,
  clock,
  chain,
  gateway,
}: SourceParts): Promise<ContextSource> {
  const fromGateway = gateway && (async () => gatewayContexts(await gateway(), trust, clock))
  if (chain !== undefined) {
    const own = chainContexts(chain, trust, clock)
    return fromGateway && isDirectPinned(trust) ? withDirect(chain, trust, own, fromGateway) : own
  }
  if (fromGateway === undefined) throw new Error('contexts come from a node or a gateway')
  return fromGateway()
}

/** The chain confirms them, where there is one (R9). */
export function givenContexts(
  { trust, clock, chain }: Omit<SourceParts, 'gateway'>,
  read: (identifier: string) => QuestionContext | Promise<QuestionContext>,
): ContextSource {
  return {
    async contexts(identifiers) {
      return eachContext(identifiers, async (identifier) => {
        // What a file says of its source confirms nothing.
        const context: QuestionContext = { ...(await read(identifier)), source: 'gateway' }
        const nowSeconds = await nowOf({ chain, trust, ports: { clock } })
        const notes = checkContext(trust, context, nowSeconds, identifier)
        notes.push(noNodeForRules)
        return chain ? confirmed(chain, trust, { context, notes }) : { context, notes }
      })
    },
  }
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
        // Of a list of another length nobody knows which result is whose.
        const own = items.length === asked.length ? items : []
        results.push(
          ...(await eachContext(asked, async (identifier, at) => fromItem(own[at], identifier))),
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
    if (status !== 200 || signing_data === undefined) {
      if (error === undefined)
        throw gatewayFault(`the gateway answered ${status ?? 'one item'} without an error`)
      const told = { kind: 'uncertain' as const, ...error }
      const refusal = status ? classifyRefusal(status, error) : told
      // Nothing was submitted.
      const isUnclear = refusal.kind === 'uncertain'
      throw answerError(isUnclear ? { ...refusal, kind: 'deferred' } : refusal, 'read', identifier)
    }
    const data = { ...signingDataOf(signing_data), source: 'gateway' as const }
    const bare: QuestionContext = { ...data, ...slugOf(identifier) }
    const notes = checkContext(trust, bare, clock.nowMs() / 1_000, identifier)
    notes.push(noNodeForRules)
    return { context: { ...bare, outcomes: outcomesFor(trust, bare) }, notes }
  }
}

const gatewayFault = (detail: string) =>
  new UnavailableError('gateway_body', detail, 'nothing was admitted by this call; retry later')
