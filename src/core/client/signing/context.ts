/** A question's context: what a proposal for it must name (spec §2.7, contract §4 signing_data), from the gateway or from a chain. */
import { z } from 'zod'
import type { RoundReader } from '../../chain/questions.js'
import type { Round } from '../../chain/round.js'
import { type Chain, ChainError, type Clock, type Hex } from '../../ports.js'
import { ConflictError, ProposerError, RejectedError, UnavailableError, UsageError } from '../../protocol/errors.js'
import { BatchSigningData, type Outcome } from '../../protocol/schema-signing.js'
import { isIdentifier, limits } from '../../protocol/schema-words.js'
import { primaryType, wireTypes } from '../../protocol/witness.js'
import { acceptedValue, answerError, plainCode, plainDetail } from '../sending/answer.js'
import type { CallOptions, GatewayClient } from '../sending/gateway-client.js'
import { checkContext, contractsOf, kindOf, outcomesByText, pinnedQuestionId, type Trust, unpinnedSlug, untrusted } from './trust.js'

/** `signing_data` of contract §4 plus what we know beside it. `slug` is the one that was asked for. */
export interface QuestionContext extends BatchSigningData {
  /** `file`: given by the user. What it says of where it came from proves nothing. */
  readonly source: 'gateway' | 'chain' | 'file'
  readonly slug?: string
  /** p1, p2, p3 with labels and permission by the request's text. */
  readonly outcomes?: readonly Outcome[]
  /** Known where a chain was read. */
  readonly token?: { readonly address: string; readonly symbol: string; readonly decimals: number }
  /** Only in a file that carries a server's `typed_data`: compared, never signed (R9). */
  readonly typed_data?: unknown
}

/** One identifier's answer; `context` is checked against trust, `error` is ready to throw. */
export type ContextResult =
  | { readonly identifier: string; readonly context: QuestionContext; readonly notes: readonly string[]; readonly error?: undefined }
  | { readonly identifier: string; readonly error: ProposerError; readonly context?: undefined }

export interface ContextSource {
  /** In input order; checked against trust. Rejects only where the whole call failed. */
  contexts(identifiers: readonly string[], options?: CallOptions): Promise<readonly ContextResult[]>
}

/** From the gateway's batch route: costs one budget item an identifier; more than 100 are split. */
export function gatewayContexts(gateway: GatewayClient, trust: Trust, clock: Pick<Clock, 'nowMs'>): ContextSource {
  return {
    async contexts(identifiers, options = {}) {
      const results: ContextResult[] = []
      for (let at = 0; at < identifiers.length; at += limits.batchItems) {
        const asked = identifiers.slice(at, at + limits.batchItems)
        const { results: items } = acceptedValue(await gateway.contexts(asked, options), asked.length === 1 ? asked[0] : undefined)
        for (const [index, identifier] of asked.entries()) {
          // Of a list of another length nobody knows which result is whose.
          results.push(items.length === asked.length ? fromItem(items[index], identifier) : { identifier, error: miscounted(items, asked) })
        }
      }
      return results
    },
  }

  function fromItem(
    item:
      | { identifier: string; status_code: number; signing_data?: unknown; error?: { code: string; detail: string } | undefined }
      | undefined,
    identifier: string,
  ): ContextResult {
    if (item === undefined || item.identifier !== identifier) {
      return { identifier, error: gatewayFault('the gateway did not answer the identifiers in the order they were asked in') }
    }
    if (item.status_code !== 200 || item.signing_data === undefined) {
      if (item.error === undefined) return { identifier, error: gatewayFault(`the gateway answered ${item.status_code} without an error`) }
      return { identifier, error: itemError(identifier, item.status_code, item.error) }
    }
    return settle(identifier, () => {
      const parsed = BatchSigningData.safeParse(item.signing_data)
      if (!parsed.success) throw badField(parsed.error)
      const bare: QuestionContext = { ...parsed.data, source: 'gateway', ...slugOf(identifier) }
      const notes = checkContext(trust, bare, { identifier, nowSeconds: clock.nowMs() / 1_000 })
      return { context: { ...bare, outcomes: allowedOutcomes(trust, bare) }, notes }
    })
  }
}

/** Straight from the chain, without budget. Slugs come from trust.json only; questions of kind `direct` cannot be found this way. */
export function chainContexts(chain: Chain, trust: Trust, clock: Pick<Clock, 'nowMs'>): ContextSource {
  let reading: Promise<RoundReader> | undefined
  return {
    async contexts(identifiers) {
      reading ??= roundReader(chain, trust)
      const reader = await reading
      const nowSeconds = await chainNow(chain, trust, clock)
      return Promise.all(
        identifiers.map(async (identifier): Promise<ContextResult> => {
          const questionId = pinnedQuestionId(trust, identifier)
          if (questionId === undefined) return { identifier, error: unpinnedSlug(identifier) }
          try {
            const round = await reader.read(questionId)
            if (round === undefined) return { identifier, error: notFound(identifier) }
            if (round.state !== 'requested' || round.paused) return { identifier, error: notOpen(round) }
            return settle(identifier, () => {
              const context: QuestionContext = { ...fromRound(trust, round), ...slugOf(identifier) }
              return { context, notes: checkContext(trust, context, { identifier, nowSeconds }) }
            })
          } catch (error) {
            if (error instanceof ChainError) return { identifier, error: chainUnavailable(error) }
            throw error
          }
        }),
      )
    },
  }
}

/** Loaded only where there is a chain to read. */
async function roundReader(chain: Chain, trust: Trust): Promise<RoundReader> {
  const { createRoundReader } = await import('../../chain/questions.js')
  return createRoundReader(chain, contractsOf(trust))
}

/** The signing data of a round that a chain showed. */
export function fromRound(trust: Trust, round: Round): QuestionContext {
  return {
    question_id: round.questionId,
    request: {
      question_id: round.questionId,
      oracle: round.oracle,
      requester: round.requester,
      identifier: { raw: round.identifier },
      timestamp: round.timestamp,
      ancillary_data: round.ancillaryData,
    },
    identifier: { raw: round.identifier },
    price: { allowed_values: round.outcomes.filter(({ allowed }) => allowed).map(({ price }) => price) },
    bond: { token: round.token.address, required_bond: String(round.totalBondRaw) },
    contracts: { permit2: trust.permit2, signed_proposer: trust.signed_proposer },
    signing: { chain_id: trust.chain_id, max_payment: '0', primary_type: primaryType, types: wireTypes(false) },
    source: 'chain',
    outcomes: round.outcomes,
    token: round.token,
  }
}

/**
 * Compares a context with the chain's own word (robustness §6): UsageError `untrusted_<field>` for a difference, ConflictError
 * `request_not_open`, UnavailableError where the chain does not answer or is another one. A question that the chain side cannot find
 * (kind `direct`) is left to the caller's pins: `undefined`.
 */
export async function confirmByChain(chain: Chain, trust: Trust, context: QuestionContext): Promise<Round | undefined> {
  const round = await onChain(async () => (await roundReader(chain, trust)).read(context.question_id as Hex))
  if (round === undefined) {
    if (kindOf(trust, context.request.requester) === 'direct') return undefined
    throw notFound(context.question_id)
  }
  const fields = [
    ['oracle', 'request.oracle', context.request.oracle, round.oracle],
    ['requester', 'request.requester', context.request.requester, round.requester],
    ['identifier', 'request.identifier.raw', context.request.identifier.raw, round.identifier],
    ['timestamp', 'request.timestamp', context.request.timestamp, round.timestamp],
    ['ancillary_data', 'request.ancillary_data', context.request.ancillary_data, round.ancillaryData],
    ['token', 'bond.token', context.bond.token, round.token.address],
    ['required_bond', 'bond.required_bond', context.bond.required_bond, String(round.totalBondRaw)],
  ] as const
  for (const [field, path, told, own] of fields) {
    if (told === own) continue
    // Ancillary data is long; where it differs is not worth a page.
    throw untrusted(field, field === 'ancillary_data' ? `${path} is not what the chain holds` : `${path} is ${told}, the chain says ${own}`)
  }
  if (round.state !== 'requested' || round.paused) throw notOpen(round)
  return round
}

/** The later of wall clock and head time in Unix seconds; refuses a chain with another id than the pinned one (R16). */
export async function chainNow(chain: Chain, trust: Trust, clock: Pick<Clock, 'nowMs'>): Promise<number> {
  const [chainId, head] = await onChain(() => Promise.all([chain.chainId(), chain.block('latest')]))
  if (chainId !== trust.chain_id) {
    throw untrusted(
      'chain_id',
      `the RPC is on chain ${chainId}, the trust file pins ${trust.chain_id}`,
      'give the --rpc-url of the pinned chain',
    )
  }
  return Math.max(clock.nowMs() / 1_000, Number(head?.timestamp ?? 0n))
}

/** Runs reads of a chain; ChainError becomes UnavailableError `chain_unavailable`. */
export async function onChain<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof ChainError) throw chainUnavailable(error)
    throw error
  }
}

const FileContext = BatchSigningData.extend({
  slug: z.string().optional(),
  token: z.object({ address: z.string(), symbol: z.string(), decimals: z.int() }).optional(),
  typed_data: z.unknown().optional(),
})

/**
 * The context in what `context --json` printed (the one for `identifier`, or the only one), or one `signing_data` object of contract §4.
 * Not yet checked against trust. UsageError `invalid_context`, or `untrusted_<field>` where a field has a value that none may have.
 */
export function parseContext(json: unknown, identifier: string): QuestionContext {
  const picked = pick(json, identifier)
  const parsed = FileContext.safeParse(picked)
  if (!parsed.success) throw badField(parsed.error)
  const { slug, token, typed_data, ...data } = parsed.data
  return {
    ...data,
    source: 'file',
    ...(slug === undefined ? {} : { slug }),
    ...(token === undefined ? {} : { token }),
    ...(typed_data === undefined ? {} : { typed_data }),
  }
}

function pick(json: unknown, identifier: string): unknown {
  if (typeof json !== 'object' || json === null) throw invalidContext('it is not a JSON object')
  if (!('questions' in json)) return json
  if (!Array.isArray(json.questions)) throw invalidContext('questions is not a list')
  const named = json.questions.filter(
    (each: unknown) =>
      typeof each === 'object' &&
      each !== null &&
      (('question_id' in each && each.question_id === identifier) || ('slug' in each && each.slug === identifier)),
  )
  const found: unknown = named[0] ?? (json.questions.length === 1 ? json.questions[0] : undefined)
  if (found === undefined) throw invalidContext(`none of its questions is ${identifier}`)
  if (typeof found === 'object' && found !== null && 'error' in found) throw invalidContext('it holds an error instead of this question')
  return found
}

/** What the text allows and the context too. */
function allowedOutcomes(trust: Trust, context: QuestionContext): readonly Outcome[] {
  return outcomesByText(trust, context).map((outcome) => ({
    ...outcome,
    allowed:
      context.price.allowed_values.includes(outcome.price) && (outcome.allowed || kindOf(trust, context.request.requester) === 'direct'),
  }))
}

function settle(identifier: string, make: () => { context: QuestionContext; notes: readonly string[] }): ContextResult {
  try {
    return { identifier, ...make() }
  } catch (error) {
    if (error instanceof ProposerError) return { identifier, error }
    throw error
  }
}

const slugOf = (identifier: string) => (identifier.startsWith('0x') || !isIdentifier(identifier) ? {} : { slug: identifier })

/** A field of another form than any gateway may send: named, exit 2. */
function badField(error: z.ZodError): UsageError {
  const path = (error.issues[0]?.path ?? []).map(String)
  const field = path.findLast((part) => !/^\d+$/.test(part) && part !== 'raw') ?? 'context'
  return untrusted(/^[a-z0-9_]{1,40}$/.test(field) ? field : 'context', `${path.join('.') || 'the context'} is missing or malformed`)
}

/** An item's error by its status, as the same status of a whole call would mean. */
function itemError(identifier: string, statusCode: number, error: { code: string; detail: string }): ProposerError {
  const code = plainCode(error.code)
  const detail = plainDetail(error.detail)
  if (statusCode === 409) return answerError({ kind: 'reconcile', httpStatus: 409, code, detail }, 'read', identifier)
  if ([400, 403, 404, 405, 413, 422].includes(statusCode))
    return answerError({ kind: 'refused', httpStatus: statusCode, code, detail }, 'read')
  return answerError({ kind: 'deferred', httpStatus: statusCode, code, detail }, 'read')
}

const miscounted = (items: readonly unknown[], asked: readonly unknown[]) =>
  gatewayFault(`the gateway gave ${items.length} results where it was asked for ${asked.length}`)

const gatewayFault = (detail: string) =>
  new UnavailableError('gateway_body', detail, { hint: 'nothing was admitted by this call; try again later' })

const invalidContext = (why: string) =>
  new UsageError('invalid_context', `the context file cannot be used: ${why}`, {
    hint: 'make it with `proposer context <identifier> --json`',
  })

const notFound = (identifier: string) =>
  new RejectedError('question_not_found', `no pinned requester on the chain knows ${identifier}`, {
    hint: 'check the question ID, the requesters in the trust file and the --rpc-url',
  })

function notOpen(round: Round): ConflictError {
  const state = round.paused ? 'paused' : round.state
  return new ConflictError('request_not_open', `the request of ${round.questionId} cannot be proposed on: it is ${state}`, {
    hint: `wait for a new round; \`proposer reconcile ${round.questionId}\` shows what happened`,
  })
}

const chainUnavailable = (error: ChainError) =>
  new UnavailableError('chain_unavailable', `the chain could not be read (${error.kind})`, {
    hint: 'check --rpc-url, then run the same command again',
  })
