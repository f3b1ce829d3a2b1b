import pLimit from 'p-limit'
import { batchSigningDataOf } from '#chain/round'
import type { Hex } from '#ports'
import { instant, wireStatus } from '#protocol/candidate'
import { fromBatchItem } from '#protocol/proposal'
import { type Refusal, refuse, wireError } from '#protocol/refusal'
import {
  type AdmissionParts,
  findQuestion,
  isQuestion,
  itemsAtOnce,
  type Judgment,
  notOpen,
  stateFault,
  submitAll,
  takesProposals,
} from './admission.js'
import { type Exchange, type Handlers, itemRefusal, json } from './answer.js'

export function batchRoutes(
  parts: AdmissionParts,
): Handlers<'batchSigningData' | 'batchSubmit' | 'batchStatus'> {
  return {
    async batchSigningData({ body: { identifiers }, exchange }) {
      parts.view.readAhead(identifiers)
      const results = await eachItem(exchange, identifiers, (identifier) => ({
        head: { identifier },
        work: () => signingData(parts, identifier),
      }))
      return json(200, { results })
    },
    async batchSubmit({ body: { proposals }, exchange }) {
      const items = proposals.map((item) => ({
        identifier: item.identifier,
        proposer: item.proposer,
        authorizationOf: (id: Hex) => fromBatchItem(id, item),
      }))
      const submitted = await submitAll(parts, exchange, 'batch', items)
      const count = (kind: Judgment['kind']) => submitted.filter((one) => one.kind === kind).length
      return json(200, {
        results: submitted.map((one, at) => submitResult(proposals[at]?.client_ref ?? null, one)),
        summary: {
          accepted: count('admitted'),
          replayed: count('replayed'),
          rejected: count('refused'),
        },
      })
    },
    async batchStatus({ body, exchange }) {
      const results = await eachItem(exchange, body.candidate_ids, (candidateId) => ({
        head: { candidate_id: candidateId },
        work: () => status(parts, candidateId),
      }))
      return json(200, { results })
    },
  }
}

/** An item's failure is its own (§4.2 rule 3). */
function eachItem(
  exchange: Exchange,
  items: readonly string[],
  itemOf: (item: string) => {
    readonly head: object
    readonly work: () => Promise<Refusal | { readonly found: object }>
  },
) {
  const limit = pLimit(itemsAtOnce)
  return Promise.all(
    items.map((item) => {
      const { head, work } = itemOf(item)
      return limit(async () => {
        const result = await work().catch((error: unknown) => itemRefusal(exchange, error))
        return 'found' in result
          ? { ...head, status_code: 200, ...result.found }
          : { ...head, ...refusedItem(result) }
      })
    }),
  )
}

const refusedItem = (refusal: Refusal) => ({
  status_code: refusal.status,
  error: wireError(refusal),
})

async function signingData({ view, contracts }: AdmissionParts, identifier: string) {
  const question = await findQuestion(view, identifier)
  if (!isQuestion(question)) return question
  const refusal = stateFault(view) ?? (takesProposals(question) ? undefined : notOpen(question))
  return refusal ?? { found: { signing_data: batchSigningDataOf(question.round, contracts) } }
}

async function status({ ledger }: AdmissionParts, candidate_id: string) {
  const candidate = await ledger.get(candidate_id)
  if (!candidate) return refuse('candidate_not_found', 'candidate not found; check the id')
  const { status, received_at, submission, failure: full } = wireStatus(candidate)
  const failure = full && { code: full.code, detail: full.detail }
  return { found: { candidate: { candidate_id, status, received_at, submission, failure } } }
}

function submitResult(client_ref: string | null, submitted: Judgment) {
  if (submitted.kind === 'refused') return { client_ref, ...refusedItem(submitted.refusal) }
  const { id, progress, receivedAtMs } = submitted.candidate
  return {
    client_ref,
    status_code: submitted.kind === 'admitted' ? 202 : 200,
    candidate: {
      candidate_id: id,
      status: progress.status,
      received_at: instant(receivedAtMs),
      // Points to a route that is not served here (§2.7); clients never follow it.
      status_url: `/propose/status/${id}`,
    },
  }
}
