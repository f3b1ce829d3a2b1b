/**
 * The rules of the service spec in the order they are examined: ids are stable. What is refused
 * comes before what is admitted, because a refusal leaves its question free. An execution comes
 * before the other admissions, whose amounts its wallet could not hold beside its own.
 */

/**
 * What a check may do. `read`: nothing that could be admitted. `admit`: signs, but only what cannot
 * execute. `execute`: a proposal that goes on chain. `overrun`: spends more than the budget, and
 * waits it out.
 */
export type Tier = 'read' | 'admit' | 'execute' | 'overrun'

/** What `conformance --list` tells of a rule. */
export interface CatalogueEntry {
  /** The section first: stable, what `--only` and reports name. */
  readonly id: string
  /** Where the spec says it. */
  readonly section: string
  readonly tier: Tier
  /** About how many items it is charged (§8 rule 2), where others have not paid for it already. */
  readonly items: number
  /** What the spec says, in one sentence. */
  readonly says: string
}

/** Rules that stand in another section than their id tells. */
const sections: Readonly<Record<string, string>> = {
  '4.2.1-items-101': '§4.2 rule 4',
  '4.2.1-identifiers-101': '§4.2 rule 4',
  '4.2.1-proposals-101': '§4.2 rule 4',
  '7-item-errors': '§7 rule 4',
  '4.1.3-unprepared': '§1',
  '9-acknowledgement-version': '§2.5',
  '4.2.5-conflict': '§4.1 rule 3',
  '8-whole-batch-refused': '§8 rule 5',
  '8-refused-call-charged': '§8 rule 4',
  'receipt-keys': 'receipts',
  'receipt-signature': 'receipts',
  'receipt-digest': 'receipts',
}

/** `2.7-x` is of §2.7, `4.1.3-x` of §4.1 rule 3, `3.2-x` of §3 rule 2. */
function sectionOf(id: string): string {
  const [chapter = '', part, rule] = (id.split('-')[0] ?? '').split('.')
  if (chapter === '3') return `§3 rule ${part}`
  return `§${part === undefined ? chapter : `${chapter}.${part}`}${rule === undefined ? '' : ` rule ${rule}`}`
}

type Row = readonly [id: string, says: string, items?: number]

const entries = (tier: Tier, rows: readonly Row[]): readonly CatalogueEntry[] =>
  rows.map(([id, says, items = 1]) => ({
    id,
    section: sections[id] ?? sectionOf(id),
    tier,
    items,
    says,
  }))

export const catalogue: readonly CatalogueEntry[] = [
  ...entries('read', [
    ['1-trailing-slash', 'paths are exact: no trailing slash', 2],
    ['1-percent-encoding', 'paths are exact: no percent-encoded aliases', 2],
    ['1-path-case', 'paths are exact: a capital is another path', 2],
    ['1-content-type', 'request bodies have Content-Type: application/json', 4],
    ['1-json-body', 'request bodies are JSON'],
    ['1-lowercase-address', 'addresses are canonical lowercase'],
    ['1-lowercase-question-id', 'question ids are canonical lowercase', 4],
    ['1-slug-characters', 'slugs contain only lowercase letters, digits and hyphens', 8],
    ['1-slug-identifies', 'identifier is a question id or a market slug', 2],
    ['1-cors-explicit', 'browser origins need explicit CORS configuration', 2],
    ['2.3-eligibility-fields', 'eligibility has canonical address and boolean eligible'],
    ['9-eligibility-version', 'eligibility carries the version'],
    ['4.1.1-unknown-wallet', 'an unknown wallet is answered 200 with eligible: false'],
    ['4.1.1-eligible-wallet', 'an allowlisted wallet is answered 200 with eligible: true'],
    ['7-unknown-question', '404: unknown question', 2],
    ['7-unknown-route', '404: unknown route'],
    ['7-wrong-method', '405: wrong HTTP method', 2],
    ['receipt-keys', 'a gateway that signs its answers lists its keys as a JWK set', 0],
    ['receipt-signature', 'a signed answer proves itself by a listed key (RFC 9421)'],
    ['receipt-digest', 'where answers are signed, a wrong Content-Digest is 400 (RFC 9530)'],
    ['4.1-signing-data', 'signing-data takes the proposal without signature and answers 200'],
    [
      '2.4-fields',
      'signing-data names question, request, proposal, outcomes, permit, token, economics, contracts and typed_data',
    ],
    ['2.4-request', 'request is the oracle request of the question, its ancillary data included'],
    ['2.4-proposal', 'proposal has the outcome that was asked for, and its price'],
    ['9-signing-data-version', 'signing-data carries the version'],
    ['1-integers-as-text', 'Solidity integers are decimal strings in v1'],
    ['2.4-chain-id-text', 'typed_data.domain.chainId is a decimal string'],
    ['2.4-decimals-number', 'token.decimals is a JSON number'],
    ['2.4-token', 'token is the token of the bond, with its decimals'],
    ['2.4-permit-preserved', "permit holds the caller's terms, preserved"],
    ['2.4-contracts', 'contracts are Permit2 and SignedProposer'],
    ['2.4-total-bond', 'economics has the current total bond, which an amount must reach', 3],
    [
      '2.4-max-authorization',
      'economics has the maximum authorization, which the accepted amount does not exceed',
    ],
    ['2.4-typed-data', 'typed_data is the complete EIP-712 payload of §2.8'],
    ['2.8-no-domain-version', 'the domain has no version'],
    ['2.2-outcome-prices', 'p1 is 0, p2 is 1e18, p3 is 0.5e18'],
    ['2.2-outcome-labels', 'outcomes give labels and availability'],
    [
      '2.2-allowed-outcomes',
      'each outcome listed as allowed can be prepared, with its own price; no other can',
      3,
    ],
    [
      '2.2-p3-permission',
      "p3 needs permission in the request's rules and support in the settlement contract",
    ],
    ['2.1-prepare-outcome', 'signing-data takes the body of a proposal: outcome is p1, p2 or p3'],
    ['2.1-prepare-version', 'signing-data takes the body of a proposal: version is required'],
    [
      '2.1-prepare-max-payment',
      'signing-data takes the body of a proposal: max_payment must be "0"',
    ],
    ['2.1-deadline-enough', 'a permit.deadline of five minutes beyond admission is enough'],
    ['4.1.2-stateless', 'signing-data is stateless: it reserves no nonce', 2],
    ['4.1.3-no-idempotency-key', 'there is no idempotency-key header', 2],
    ['4.2-signing-data', 'the batch of contexts answers 200', 5],
    [
      '2.7-signing-data-fields',
      'a context has question, request, bond, contracts, signing and identifier.raw',
    ],
    [
      '2.7-as-pinned',
      'a context is that of the question: oracle, requester, token and ancillary bytes as pinned',
    ],
    ['2.7-as-on-chain', 'request and bond of a context are those of the chain'],
    ['2.7-allowed-prices', 'price.allowed_values are the numerical prices that the request allows'],
    [
      '2.7-identifier-raw',
      'identifier.raw is the oracle identifier, distinct from the question id',
    ],
    ['2.7-contracts', 'contracts and signing.chain_id are those to sign for'],
    [
      '2.8-witness-types',
      'the witness types are those of Permit2 and SignedProposer, maxPayment is 0',
    ],
    ['2.7-identifier-echoed', 'a context carries the original identifier'],
    [
      '2.1-version-exact',
      'version has exactly api "v1", schema "signed-proposal-v1" and witness "permit2-signed-proposer-v1"',
      3,
    ],
    ['2.1-version-only', 'version has exactly three members'],
    ['9-version-required', 'the proposer must send the version object'],
    ['2.1-proposer-lowercase', 'proposer is lowercase'],
    ['2.1-proposer-nonzero', 'proposer is not zero'],
    ['2.1-proposer-address', 'proposer is a wallet address, and required', 2],
    ['2.1-outcome-known', 'outcome is p1, p2 or p3, and required', 3],
    ['2.1-max-payment', 'max_payment must be "0"', 3],
    ['2.1-amount-text', 'permit.amount is a decimal string', 2],
    ['2.1-amount-decimal', 'permit.amount is decimal raw units', 3],
    ['2.1-nonce-uint256', 'permit.nonce is a uint256 as a decimal string', 3],
    ['2.1-deadline-text', 'permit.deadline is a decimal string', 2],
    ['2.1-signature-required', 'a submission has a signature'],
    ['2.1-signature-lowercase', 'signature is lowercase'],
    ['2.1-signature-even', 'signature has even length'],
    ['2.1-signature-hex', 'signature is hex'],
    ['2.1-signature-longest', 'signature has up to 8,192 bytes'],
    ['2.1-extra-field', 'extra fields are rejected on submission', 2],
    ['9-batch-item-in-v1', 'batch payloads are not interchangeable with v1'],
    ['4.1.3-ancillary-data', 'ancillary data in admission is answered 413'],
    ['2.7-identifier-required', 'an item has an identifier'],
    ['2.7-client-ref-text', 'client_ref is a string'],
    ['2.7-price-numerical', 'proposed_price is a numerical price string, not an outcome key', 2],
    ['2.7-max-payment', 'max_payment is "0"'],
    ['2.7-proposer-lowercase', 'proposer is lowercase', 2],
    ['2.7-amount-text', 'permit.amount is a decimal string'],
    ['2.7-nonce-text', 'permit.nonce is a decimal string', 2],
    ['2.7-deadline-integer', 'permit.deadline is a JSON integer', 2],
    ['2.7-signature', 'an item has a signature of lowercase, even-length hex', 4],
    ['2.7-item-fields', 'the batch format has no version and no outcome, nor other fields', 3],
    ['9-v1-body-in-batch', 'v1 payloads are not interchangeable with batch items'],
    ['7-batch-ancillary-data', '413: ancillary data in admission'],
    ['2.1-signature-8192', 'signature has up to 8,192 bytes, that many included'],
    ['4.1.3-signature-checked', 'a signature that does not authorize gives 403'],
    ['5-not-eligible', 'an ineligible wallet gives 403'],
    ['7-errors-sanitized', 'errors is optional and sanitized on schema failures', 3],
    ['4.2.1-empty-signing-data', 'each request carries 1-100 items'],
    ['4.2.1-empty-submit', 'each request carries 1-100 items'],
    ['4.2.1-empty-status', 'each request carries 1-100 items'],
    ['4.2.1-items-100', 'a batch of statuses holds up to 100 items', 100],
    ['4.2.1-identifiers-100', 'a batch of contexts holds up to 100 items', 100],
    ['4.2.1-proposals-100', 'a batch of proposals holds up to 100 items', 100],
    ['4.2.1-items-101', 'more than 100 items in candidate_ids are refused as a whole', 101],
    ['4.2.1-identifiers-101', 'more than 100 items in identifiers are refused as a whole', 101],
    ['4.2.1-proposals-101', 'more than 100 items in proposals are refused as a whole', 101],
    ['4.2.1-order-signing-data', 'results come back in input order, one for each item', 4],
    [
      '4.2.1-order-submit',
      'results come back in input order, one for each item, with the client_ref of failed items too',
      4,
    ],
    ['4.2.1-order-status', 'results come back in input order, one for each item', 4],
    ['4.2.2-schema-signing-data', 'schema validation applies to the whole request', 2],
    ['4.2.2-schema-submit', 'schema validation applies to the whole request before any item', 2],
    [
      '4.2.2-schema-status',
      'schema validation applies to the whole request; a candidate id is a hyphenated UUID',
      4,
    ],
    ['4.2.3-signing-data-items', 'a completed call answers 200 even if some items failed', 2],
    ['4.2.3-submit-items', 'a completed call answers 200 even if all items failed', 2],
    ['7-item-errors', 'batch item errors carry error.code and error.detail'],
    ['2.7-summary', 'summary counts accepted, replayed and rejected items', 2],
    ['5-batch-not-eligible', 'an item of an ineligible wallet is 403'],
    ['4.2.6-unknown-candidate', 'unknown candidate ids give a per-item 404'],
  ]),
  ...entries('admit', [
    ['2.1-bond-minimum', 'permit.amount is at least the current total bond (single form)'],
    [
      '7-bond-code',
      'the code for an amount below the bond is permit_amount_below_required_bond (single form)',
    ],
    ['2.7-bond-minimum', 'permit.amount is at least the current total bond (batch form)'],
    [
      '7-batch-bond-code',
      'the code for an amount below the bond is permit_amount_below_required_bond (batch form)',
    ],
    ['2.1-deadline-minimum', 'permit.deadline is at least five minutes beyond admission'],
    ['2.7-deadline-minimum', "an item's permit.deadline is at least five minutes beyond admission"],
    ['2.1-outcome-allowed', 'outcome must be allowed for this request'],
    ['2.2-price-allowed', 'an item has a price that the request allows'],
    ['2.2-binary-only', 'winner-index submissions are not supported'],
    ['5-stranger', 'an ineligible wallet gives 403, whatever it signs'],
    ['4.1.3-conflict', '409: a conflicting active payload prevents admission'],
  ]),
  ...entries('execute', [
    ['4.1.3-unprepared', 'no preparation is required before a submission'],
    ['2.6-stages', 'receipt, validation and selection have their times, in this order', 8],
    ['2.6-submission', 'submission has status, transaction_hash and three times'],
    ['6-event-index', 'submission.proposal_event_index is a JSON number'],
    [
      '2.7-batch-executed',
      'a batch status of an executed candidate has its submission, and null for failure',
    ],
    ['3.2-replay-after-execution', 'a replay in the current round returns the existing candidate'],
    ['4.1.3-request-state', '409: a request state prevents admission'],
  ]),
  ...entries('admit', [
    ['4.1.3-new', '202: a new candidate was durably accepted, whatever was prepared before', 3],
    [
      '2.5-acknowledgement',
      'an acknowledgement has candidate_id (UUID), status, received_at and status_url',
    ],
    ['2.5-status-url', 'status_url is relative, and the path of the status'],
    ['9-acknowledgement-version', 'an acknowledgement carries the version'],
    ['4.1.3-replay', '200: an exact replay in the round returns the existing candidate'],
    [
      '4.1.3-witness-rebuilt',
      'the witness is reconstructed from the body, and only the exact payload is a replay',
      4,
    ],
    [
      '2.6-status-fields',
      'status has identity, outcome, price, times, status, submission and failure',
    ],
    ['9-status-version', 'status carries the version'],
    ['2.6-no-signature', 'signatures and executable data are never returned'],
  ]),
  ...entries('read', [['4.1.4-unknown-candidate', 'an unknown candidate is 404']]),
  ...entries('admit', [
    ['4.1.4-mismatched-pair', 'a candidate of another question is 404'],
    ['4.1.4-status-by-slug', 'the identifier of a status may be the slug'],
    ['1-candidate-uuid', 'candidate_id is a hyphenated UUID'],
    ['2.6-failure', 'failure has stage, code, detail, retryable, can_resubmit and next_action', 5],
    ['2.7-batch-status-fields', 'a batch status has status, submission and failure'],
    [
      '2.6-batch-no-signature',
      'signatures and executable data are never returned, in batches either',
    ],
    ['4.2.6-siblings', 'an unknown candidate does not fail other look-ups', 2],
    ['4.2.7-no-next-action', 'batch status omits next_action; failure has only code and detail'],
    [
      '4.2.2-before-items',
      'schema validation refuses the whole request before any item is processed',
      3,
    ],
    [
      '4.2.5-new',
      'item 202: a new candidate was durably accepted, whatever happened to its siblings',
      3,
    ],
    ['4.2.5-conflict', 'an item in conflict with an active payload is 409'],
    ['4.2.3-siblings', 'admitted items are not rolled back when a sibling fails', 2],
    [
      '2.7-candidate-fields',
      'a result has candidate or error; a candidate has candidate_id, status, received_at and status_url',
    ],
    ['2.7-client-ref-echoed', 'client_ref is echoed in the result'],
    ['2.7-client-ref-no-key', 'client_ref is no idempotency key'],
    ['2.7-summary-accepted', 'summary counts accepted items'],
    ['4.2.5-replay', 'item 200: an exact replay returns the existing candidate', 2],
    ['2.7-status-url-unserved', 'the batch status_url points to a route that is not exposed'],
  ]),
  ...entries('read', [
    ['1-no-cookies', 'the service does not use browser cookies'],
    ['2.6-never-returned', 'signatures are never returned, nor shown in errors', 0],
    ['7-error-body', 'application errors have error.code and error.detail'],
  ]),
  ...entries('overrun', [
    ['8-rate-limited', 'a call over the budget is answered 429, without per-item results', 200],
    [
      '8-whole-batch-refused',
      'a batch of more items than the budget has left is refused before admission',
    ],
    ['8-submission-refused', 'a batch submission over the budget returns 429 before admission', 0],
    ['7-retry-told', '429 gives the delay in Retry-After, or else in the detail'],
    ['8-refused-call-charged', 'rate-limited attempts also charge the counters'],
    ['8-window-reopens', 'after that delay, calls are served again'],
  ]),
]

/** Rules that no caller can see, each with the reason, in the order of the spec. */
export const unseenRules = (
  [
    [
      '§1',
      'no guarantee of execution in one chain transaction',
      'left to the service: there is nothing to break',
    ],
    [
      '§2.2',
      'p3 needs support in the settlement contract',
      'the pins give the kind of the requester; the contract itself is on chain',
    ],
    [
      '§3 rule 1',
      'validation happens after the 202',
      'a response does not show what was done before it',
    ],
    [
      '§3 rule 3',
      'after a round has advanced, an old signature is no longer replayed',
      'requires a dispute on chain',
    ],
    [
      '§4.1 rule 1',
      'disabled wallets and disabled admission are answered 200 with eligible: false',
      'only the operator can disable them',
    ],
    ['§4.1 rule 1', 'eligibility reserves no slot', 'slots are not visible'],
    ['§4.1 rule 3', 'a candidate is accepted durably', 'requires a crash of the gateway'],
    ['§4.2 rule 1', 'items are processed with bounded concurrency', 'the bound is not visible'],
    [
      '§5',
      'no API key, bearer token or header is needed',
      'no check sends one, so every check covers it',
    ],
    ['§6', 'no outbound events or webhooks', 'the absence of calls cannot be observed'],
    [
      '§7',
      '502, 504: admission may already have committed',
      'applies to whatever is in front of the gateway',
    ],
    ['§7 rules 1-3', 'what a caller does after an uncertain outcome', 'duties of the caller'],
    [
      '§8 rule 1',
      'the operator can change the defaults',
      'the checks use the budget that the responses report',
    ],
    [
      '§8 rules 2, 3',
      'what each call is charged',
      'measuring it requires a rate limit that nobody else uses',
    ],
    ['§8 rule 6', 'clients behind one proxy share the budget', 'requires a second client address'],
    ['§8 rule 7', 'size limits but for the signature', 'the spec gives none'],
  ] as const
).map(([section, says, why]) => ({ section, says, why }))
