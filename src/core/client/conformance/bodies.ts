/**
 * Rules of §2.1, §4.1 rule 3, §5 and §9 about bodies that must be refused. Each is well-formed but for one field, and carries a signature
 * of random bytes, which authorizes nothing: no gateway, right or wrong, can get anything on chain by them.
 */
import { limits } from '../../protocol/schema.js'
import type { Bench, Body } from './bench.js'
import { came, expectStatus, expectThat, Fault, listAt, malformed, type Rule, rule, type Seen } from './rule.js'

/** Sends a v1 body with a change to it. */
async function single(bench: Bench, wrong: string, change: (body: Body) => unknown): Promise<Seen> {
  const { question_id } = await bench.context()
  const body = await bench.unsigned()
  return bench.probe.send({ method: 'POST', path: `/v1/proposals/${question_id}`, body: change(body) ?? body, wrong })
}

/** Sends a batch of one item with a change to it. */
async function batch(bench: Bench, wrong: string, change: (item: Body) => unknown): Promise<Seen> {
  const item = await bench.unsignedItem()
  return bench.probe.send({ method: 'POST', path: '/propose/batch', body: { proposals: [change(item) ?? item] }, wrong })
}

type Case = readonly [
  id: string,
  section: string,
  says: string,
  wrong: string,
  change: (body: Body) => unknown,
  statuses?: readonly number[],
]

const set =
  (changes: Record<string, unknown>) =>
  (body: Body): Body => ({ ...body, ...changes })
const permit =
  (changes: Record<string, unknown>) =>
  (body: Body): Body => ({ ...body, permit: { ...body.permit, ...changes } })
const without =
  (field: string) =>
  (body: Body): object =>
    Object.fromEntries(Object.entries(body).filter(([key]) => key !== field))
const capitals = (hex: unknown) => `0x${String(hex).slice(2).toUpperCase()}`
const v1 = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }

const singleCases: readonly Case[] = [
  ['2.1-version-exact', '§2.1', 'version.api is exactly "v1"', 'version.api v2', set({ version: { ...v1, api: 'v2' } })],
  ['2.1-version-only', '§2.1', 'version has exactly three members', 'a fourth member in version', set({ version: { ...v1, minor: '1' } })],
  ['9-version-required', '§9', 'the proposer must send the version object', 'no version', without('version')],
  [
    '2.1-proposer-lowercase',
    '§2.1',
    'proposer is lowercase',
    'proposer in capitals',
    (body) => ({ ...body, proposer: capitals(body.proposer) }),
  ],
  ['2.1-proposer-nonzero', '§2.1', 'proposer is not zero', 'the zero address as proposer', set({ proposer: `0x${'0'.repeat(40)}` })],
  ['2.1-outcome-known', '§2.1', 'outcome is p1, p2 or p3', 'outcome p4', set({ outcome: 'p4' })],
  ['2.1-max-payment', '§2.1', 'max_payment must be "0"', 'max_payment 1', set({ max_payment: '1' })],
  [
    '2.1-amount-text',
    '§2.1',
    'permit.amount is a decimal string',
    'permit.amount as a JSON number',
    (body) => permit({ amount: Number(body.permit.amount) })(body),
  ],
  ['2.1-amount-decimal', '§2.1', 'permit.amount is decimal raw units', 'permit.amount 0x10', permit({ amount: '0x10' })],
  ['2.1-nonce-uint256', '§2.1', 'permit.nonce is a uint256', 'permit.nonce 2^256', permit({ nonce: String(2n ** 256n) })],
  [
    '2.1-deadline-text',
    '§2.1',
    'permit.deadline is a decimal string',
    'permit.deadline as a JSON number',
    (body) => permit({ deadline: Number(body.permit.deadline) })(body),
  ],
  ['2.1-signature-required', '§2.1', 'a submission has a signature', 'no signature', without('signature')],
  [
    '2.1-signature-lowercase',
    '§2.1',
    'signature is lowercase',
    'a signature in capitals',
    (body) => ({ ...body, signature: capitals(body.signature) }),
  ],
  [
    '2.1-signature-even',
    '§2.1',
    'signature has even length',
    'a signature cut by one digit',
    (body) => ({ ...body, signature: String(body.signature).slice(0, -1) }),
  ],
  [
    '2.1-signature-longest',
    '§2.1',
    'signature has up to 8,192 bytes',
    '8,193 bytes of signature',
    set({ signature: `0x${'ab'.repeat(limits.signatureBytes + 1)}` }),
    [400, 413, 422],
  ],
  [
    '2.1-extra-field',
    '§2.1',
    'extra fields are rejected on submission',
    'a field that is not documented',
    set({ conformance_note: 'extra' }),
  ],
  [
    '9-batch-item-in-v1',
    '§9',
    'batch payloads are not interchangeable with v1',
    'a batch item',
    ({ proposer, permit: terms, signature }) => ({
      proposer,
      proposed_price: '0',
      max_payment: '0',
      permit: { ...terms, deadline: Number(terms.deadline) },
      signature,
    }),
  ],
  [
    '4.1.3-ancillary-data',
    '§4.1 rule 3',
    'ancillary data in admission is answered 413',
    'ancillary_data',
    set({ ancillary_data: '0x' }),
    [413],
  ],
]

const batchCases: readonly Case[] = [
  ['2.7-price-numerical', '§2.7', 'proposed_price is numerical, not an outcome key', 'proposed_price p2', set({ proposed_price: 'p2' })],
  ['2.7-max-payment', '§2.7', 'max_payment is "0"', 'max_payment 1', set({ max_payment: '1' })],
  [
    '2.7-proposer-lowercase',
    '§2.7',
    'proposer is lowercase',
    'proposer in capitals',
    (body) => ({ ...body, proposer: capitals(body.proposer) }),
  ],
  [
    '2.7-amount-text',
    '§2.7',
    'permit.amount is a decimal string',
    'permit.amount as a JSON number',
    (body) => permit({ amount: Number(body.permit.amount) })(body),
  ],
  [
    '2.7-deadline-integer',
    '§2.7',
    'permit.deadline is a JSON integer',
    'permit.deadline as text',
    (body) => permit({ deadline: String(body.permit.deadline) })(body),
  ],
  [
    '9-v1-body-in-batch',
    '§9',
    'v1 payloads are not interchangeable with batch items',
    'a v1 body as item',
    ({ proposer, permit: terms, signature, identifier }) => ({
      version: v1,
      identifier,
      proposer,
      outcome: 'p2',
      max_payment: '0',
      permit: { ...terms, deadline: String(terms.deadline) },
      signature,
    }),
  ],
  ['7-batch-ancillary-data', '§7', '413: ancillary data in admission', 'ancillary_data in an item', set({ ancillary_data: '0x' }), [413]],
]

/** A body with something wrong in it must be refused as §7 says; a batch as a whole, without results (§4.2 rule 4). */
export const bodyRules: readonly Rule[] = [
  ...singleCases.map(([id, section, says, wrong, change, statuses = malformed]) =>
    rule(id, section, 'read', says, async (bench) => expectStatus(await single(bench, wrong, change), ...statuses)),
  ),
  ...batchCases.map(([id, section, says, wrong, change, statuses = malformed]) =>
    rule(id, section, 'read', says, async (bench) => expectStatus(await batch(bench, wrong, change), ...statuses)),
  ),
  rule('2.1-signature-8192', '§2.1', 'read', 'signature has up to 8,192 bytes, that many included', async (bench) => {
    const signature = `0x${'ab'.repeat(limits.signatureBytes)}`
    return expectStatus(await single(bench, '8,192 bytes of signature', set({ signature })), 403)
  }),
  rule('4.1.3-signature-checked', '§4.1 rule 3', 'read', 'a signature that does not authorize gives 403', async (bench) =>
    expectStatus(await single(bench, 'a random signature', (body) => body), 403),
  ),
  rule('5-not-eligible', '§5', 'read', 'an ineligible wallet gives 403', async (bench) =>
    expectStatus(await single(bench, 'a random wallet as proposer', set({ proposer: bench.stranger })), 403),
  ),
  rule('7-errors-sanitized', '§7', 'read', 'errors is optional and sanitized on schema failures', async (bench) => {
    const canary = `canary${bench.stranger.slice(2, 18)}`
    const seen = await single(bench, 'a value that must not come back', set({ outcome: canary }))
    if (seen.status < 400) throw new Fault(`sent ${seen.sent}; came ${came(seen)}`)
    expectThat(!seen.text.includes(canary), seen, 'the answer repeats the value that was sent')
    return `${listAt(seen.json, 'errors').length} errors, no value repeated`
  }),
]
