/** What a proposal must name (spec §2.7, contract §4 signing_data), by source. */
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
        if (!round) throw notFound(identifier, trust)
        requireOpen(round)
        const own: QuestionContext = {
          ...batchSigningDataOf(round, contractsOf(trust)),
          source: 'chain',
          outcomes: round.outcomes,
          reward: String(round.rewardRaw),
          token: round.token,
          ...(isSlug(identifier) && { slug: identifier }),
        }
        const found = await checked({ trust, chain, round }, own, nowSeconds, identifier)
        if (others.length > 0)
          found.notes.unshift(
            `this question id is known to ${others.length + 1} requesters: ${round.requester} is taken; name another with --requester: ${others.map(({ requester }) => requester).join(', ')}`,
          )
        return found
      })
    },
  }
}

const isDirectPinned = (trust: Trust) => trust.requesters.some(({ kind }) => kind === 'direct')

/** By pins, and where there is a chain by it (R9). */
async function checked(
  { trust, chain, round }: { trust: Trust; chain?: Chain | undefined; round?: Round },
  context: QuestionContext,
  nowSeconds: number,
  identifier: string,
) {
  const notes = checkContext(trust, context, nowSeconds, identifier)
  const held = round ?? (chain && (await confirmByChain(chain, trust, context)))
  const rules = chain && held && (await rulesOfRound(chain, held))
  if (rules === undefined)
    notes.push(
      `rules unknown: ${chain ? 'requester or oracle does not report its clarifications' : 'clarifications are read from a node (--rpc-url)'}`,
    )
  const told = {
    ...(held && { source: 'chain' as const }),
    ...(held && held.kind !== 'direct' && { reopened: held.isReopened }),
    ...(rules && { rules }),
  }
  return { context: { ...context, ...told }, notes }
}

export async function rulesOfRound(chain: Chain, round: Round) {
  const { readRules } = await import('#chain/rules')
  return onChain(() => readRules(chain, round, round.blockNumber))
}

async function roundReader(chain: Chain, trust: Trust) {
  const { createRoundReader } = await import('#chain/questions')
  return createRoundReader(chain, contractsOf(trust))
}

/** What an id of kind `direct` means, no chain can tell. */
export async function confirmByChain(chain: Chain, trust: Trust, context: QuestionContext) {
  const { question_id: questionId, request } = context
  const isDirect = kindOf(trust, request.requester) === 'direct'
  const named = isDirect ? { request: requestOf(context) } : { requester: request.requester }
  const reader = await roundReader(chain, trust)
  const round = await onChain(() => reader.read(questionId, { questionId, ...named }))
  if (!round) throw notFound(questionId, trust)
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

export const nowOf = async ({
  chain,
  trust,
  ports: { clock },
}: {
  readonly chain?: Chain | undefined
  readonly trust: Trust
  readonly ports: { readonly clock: Clock }
}) => (chain ? chainNow(chain, trust, clock) : clock.nowMs() / 1_000)

/** Not yet checked against trust. */
export function parseContext(json: unknown, identifier: string): QuestionContext {
  const picked = pick(json, identifier)
  const { slug, typed_data, rules } = picked
  const token = tokenOf(picked)
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
    .map(tokenOf)
    .find((one) => one?.address === token)

const Token = z.object({
  address: z.string(),
  symbol: z.string(),
  decimals: z.int().check(z.minimum(0), z.maximum(255)),
})

const tokenOf = (question: unknown) => Token.safeParse(objectOf(question)?.token).data

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
  // A bare question says what it likes beside its facts.
  const isError = found !== undefined && found !== json && 'error' in found
  if (found && !isError) return found
  throw new UsageError(
    'invalid_context',
    `the context file cannot be used: ${isError ? 'it holds an error instead of' : 'none of its questions is'} ${identifier}`,
    'make it with `proposer context <identifier> --json`',
  )
}

const eachContext = (
  identifiers: readonly string[],
  make: (identifier: string, at: number) => ReturnType<typeof checked>,
) =>
  Promise.all(
    identifiers.map(async (identifier, at): Promise<ContextResult> => {
      try {
        return { identifier, ...(await make(identifier, at)) }
      } catch (error) {
        const isOurs = error instanceof InterruptedError || error instanceof StorageError
        if (isOurs || !(error instanceof ProposerError)) throw error
        return { identifier, error }
      }
    }),
  )

function notFound(identifier: string, trust: Trust) {
  const direct =
    '; of kind direct the gateway alone knows it: give --gateway too, or --context <file>'
  return new RejectedError(
    'question_not_found',
    `no pinned requester on the chain knows ${identifier}`,
    `check the question id, the requesters in the trust file and the --rpc-url${isDirectPinned(trust) ? direct : ''}`,
  )
}

function requireOpen({ questionId, state, paused }: Round) {
  if (state === 'requested' && !paused) return
  throw new ConflictError(
    'request_not_open',
    `the request of ${questionId} is not open for a proposal: its state is ${paused ? 'paused' : state}`,
    `wait ${paused ? 'until the question is unpaused' : 'for a new round'}; \`proposer reconcile ${questionId}\` shows what happened`,
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
  const own = chain ? chainContexts(chain, trust, clock) : await fromGateway?.()
  if (own === undefined) throw new Error('contexts come from a node or a gateway')
  if (!chain || !fromGateway || !isDirectPinned(trust)) return own
  // One of kind `direct` stands in the gateway's registry alone.
  return {
    async contexts(identifiers, options) {
      const results = await own.contexts(identifiers, options)
      const missing = results.flatMap(({ identifier, error }) =>
        error?.code === 'question_not_found' ? identifier : [],
      )
      const atGateway = once(async () => (await fromGateway()).contexts(missing, options))
      // A silent gateway keeps back nothing that the chain has answered.
      const direct = await eachContext(missing, async (identifier, at) => {
        const { context } = (await atGateway())[at] ?? {}
        if (!context || kindOf(trust, context.request.requester) !== 'direct')
          throw notFound(identifier, trust)
        return checked({ trust, chain }, context, clock.nowMs() / 1_000, identifier)
      })
      return results.map((one) => direct[missing.indexOf(one.identifier)] ?? one)
    },
  }
}

/** The chain confirms them, where there is one (R9). */
export function givenContexts(
  { trust, clock, chain }: Omit<SourceParts, 'gateway'>,
  read: (identifier: string) => QuestionContext | Promise<QuestionContext>,
): ContextSource {
  return {
    contexts: (identifiers) =>
      eachContext(identifiers, async (identifier) => {
        // What a file says of its source confirms nothing.
        const context: QuestionContext = { ...(await read(identifier)), source: 'gateway' }
        const nowSeconds = await nowOf({ chain, trust, ports: { clock } })
        return checked({ trust, chain }, context, nowSeconds, identifier)
      }),
  }
}

/** Costs one item an identifier. */
export function gatewayContexts(
  gateway: GatewayClient,
  trust: Trust,
  clock: Pick<Clock, 'nowMs'>,
): ContextSource {
  return {
    async contexts(identifiers, options) {
      const all: ContextResult[] = []
      for (const asked of inGroups(identifiers, limits.batchItems)) {
        const { results } = acceptedValue(await gateway.contexts(asked, options))
        // Of a list of another length nobody knows which result is whose.
        const own = results.length === asked.length ? results : []
        all.push(...(await eachContext(asked, (identifier, at) => fromItem(own[at], identifier))))
      }
      return all
    },
  }

  async function fromItem(item: ContextRead | undefined, identifier: string) {
    if (item === undefined || (item.identifier ?? identifier) !== identifier)
      throw unclear('the gateway did not answer each identifier in its place')
    const { status_code: status, signing_data, error } = item
    if (status !== 200 || signing_data === undefined) {
      if (error === undefined)
        throw unclear(`the gateway answered ${status ?? 'one item'} without an error`)
      if (!status) throw unclear(error.detail, error.code)
      throw answerError(classifyRefusal(status, error), 'read', identifier)
    }
    const bare = {
      ...signingDataOf(signing_data),
      source: 'gateway' as const,
      ...(isSlug(identifier) && { slug: identifier }),
    }
    const { context, notes } = await checked({ trust }, bare, clock.nowMs() / 1_000, identifier)
    return { context: { ...context, outcomes: outcomesFor(trust, context) }, notes }
  }
}

const unclear = (detail: string, code = 'gateway_body') =>
  answerError({ kind: 'uncertain', code, detail }, 'read')
