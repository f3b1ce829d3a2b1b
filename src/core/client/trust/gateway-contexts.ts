import type { Clock } from '../../ports.js'
import { type ProposerError, UnavailableError } from '../../protocol/errors.js'
import type { Outcome } from '../../protocol/schema.js'
import { limits } from '../../protocol/words.js'
import { acceptedValue, answerError, classifyRefusal } from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { ContextRead, ToldError } from '../gateway/reading.js'
import {
  type ContextResult,
  type ContextSource,
  contextResult,
  orBadField,
  slugOf,
} from './context.js'
import { signingDataOf } from './signing-data.js'
import { checkContext, kindOf, outcomesByText, type QuestionContext, type Trust } from './trust.js'

/** Costs one item an identifier. */
export function gatewayContexts(
  gateway: GatewayClient,
  trust: Trust,
  clock: Pick<Clock, 'nowMs'>,
): ContextSource {
  return {
    async contexts(identifiers, options = {}) {
      const results: ContextResult[] = []
      for (let at = 0; at < identifiers.length; at += limits.batchItems) {
        const asked = identifiers.slice(at, at + limits.batchItems)
        const { results: items } = acceptedValue(
          await gateway.contexts(asked, options),
          asked.length === 1 ? asked[0] : undefined,
        )
        for (const [index, identifier] of asked.entries()) {
          // Of a list of another length nobody knows which result is whose.
          results.push(
            items.length === asked.length
              ? await fromItem(items[index], identifier)
              : { identifier, error: miscounted(items, asked) },
          )
        }
      }
      return results
    },
  }

  function fromItem(item: ContextRead | undefined, identifier: string): Promise<ContextResult> {
    return contextResult(identifier, async () => {
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
    })
  }
}

function allowedOutcomes(trust: Trust, context: QuestionContext): readonly Outcome[] {
  return outcomesByText(trust, context).map((outcome) => ({
    ...outcome,
    allowed:
      context.price.allowed_values.includes(outcome.price) &&
      (outcome.allowed || kindOf(trust, context.request.requester) === 'direct'),
  }))
}

function itemError(
  identifier: string,
  httpStatus: number | undefined,
  error: ToldError,
): ProposerError {
  const refusal = httpStatus === undefined ? undefined : classifyRefusal(httpStatus, error)
  return answerError(
    refusal === undefined || refusal.kind === 'uncertain'
      ? { kind: 'deferred', ...(httpStatus === undefined ? {} : { httpStatus }), ...error }
      : refusal,
    'read',
    identifier,
  )
}

const miscounted = (items: readonly unknown[], asked: readonly unknown[]) =>
  gatewayFault(`the gateway gave ${items.length} results where it was asked for ${asked.length}`)

const gatewayFault = (detail: string) =>
  new UnavailableError('gateway_body', detail, 'nothing was admitted by this call; retry later')
