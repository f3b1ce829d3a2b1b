/** What a receipt proves, as a document and for people. */
import { instant } from '../core/protocol/candidate.js'
import { isHolding, type ReceiptProof } from '../core/protocol/kept-receipt.js'
import { digestSha256, type SignedAnswer } from '../core/protocol/receipt.js'
import { counted, fold, timeText } from './terminal/render.js'

/** First keys are fixed; null is what is not known. */
export function proofDocument(answer: SignedAnswer, proof: ReceiptProof) {
  const { verdict, bytes, claims } = proof
  const proven = verdict.result === 'proven' ? verdict : undefined
  const fault = verdict.result === 'proven' ? undefined : verdict
  return {
    holds: isHolding(proof),
    keyid: proven?.keyid ?? null,
    created: proven === undefined ? null : instant(proven.created * 1_000),
    method: answer.method,
    path: answer.path,
    status: answer.status,
    request: {
      covered: proven?.coversRequest ?? false,
      sha256: proven?.coversRequest === true ? digestSha256(answer.requestDigest ?? '') : null,
      bytes,
    },
    results: claims,
    code: fault?.code ?? null,
    detail: fault?.detail ?? null,
  }
}

const bytesText: Readonly<Record<ReceiptProof['bytes'], string>> = {
  same: 'covers the request: exactly the bytes that were sent',
  differ: 'covers a request, but other bytes than were sent',
  not_covered: 'does not cover the request, which had no Content-Digest',
  not_given: 'covers the request by its SHA-256; --request <file> compares the bytes',
}

/** At most so many proposals are listed. */
const shownClaims = 100

export function proofText(answer: SignedAnswer, proof: ReceiptProof, columns: number): string {
  const { verdict, bytes, claims } = proof
  const document = proofDocument(answer, proof)
  const lines =
    verdict.result === 'proven'
      ? [
          `${document.holds ? 'holds' : 'does NOT hold'}: key ${verdict.keyid} signed this answer at ${timeText(document.created ?? '')}`,
          `request ${answer.method} ${answer.path}, answer ${answer.status}`,
          bytesText[bytes],
          ...(document.request.sha256 === null ? [] : [`SHA-256 ${document.request.sha256}`]),
          ...claims.slice(0, shownClaims).map(claimText),
          ...(claims.length > shownClaims
            ? [`and ${counted(claims.length - shownClaims, 'more result')}`]
            : []),
        ]
      : [`does NOT hold: ${verdict.detail} (${verdict.code})`]
  return lines.map((line) => fold(line, columns, '  ')).join('\n')
}

function claimText({
  status_code,
  candidate_id,
  received_at,
  client_ref,
  code,
}: ReceiptProof['claims'][number]) {
  const ref = client_ref === null ? '' : ` (${JSON.stringify(client_ref)})`
  if (candidate_id === null) return `not admitted${ref}: ${status_code} ${code ?? ''}`.trimEnd()
  const how = status_code === 202 ? 'admitted' : 'known already'
  return `${how}${ref}: candidate ${candidate_id}${received_at === null ? '' : `, received ${timeText(received_at)}`}`
}
