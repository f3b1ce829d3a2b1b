/**
 * Every route × status × code that /openapi.json documents is drawn here from a gateway, and
 * nothing else is documented. That each answer has the documented shape is held for this file as
 * for all others (`answers-setup.ts`).
 */
import { BodyError, type BodyLimits, type Call as GatewayCall } from '#protocol/call'
import { StorageError } from '#protocol/errors'
import { openApiDocument } from '#protocol/openapi'
import { receiptDirectory } from '#protocol/receipt'
import { refuse } from '#protocol/refusal'
import { version } from '#protocol/words'
import type { ResponseObject } from '#support/answers'
import { advanced, makeQuestion, signedBody, signedItem, termsOf } from '#support/fake-view'
import { type FrontOptions, openFront, rawCall, type TestFront } from '#support/front'

const first = makeQuestion('first', { slug: 'first-question' })
const uuid = '00000000-0000-4000-8000-000000000000'
const submitPath = `/v1/proposals/${first.questionId}`

interface Call {
  readonly target: string
  readonly body?: unknown
}
type Change = Readonly<Record<string, unknown>>

async function termsBody(
  front: TestFront,
  changes: Change = {},
  permit: Change = {},
): Promise<object> {
  const { amount, nonce, deadline } = termsOf(front.wallets[0])
  const body = {
    version,
    proposer: front.wallets[0].address,
    outcome: 'p2',
    max_payment: '0',
    permit: { amount, nonce, deadline, ...permit },
  }
  return { ...body, ...changes }
}
async function payload(
  front: TestFront,
  changes: Change = {},
  permit: Change = {},
): Promise<object> {
  const body = await signedBody(front.wallets[0], first)
  return { ...body, ...changes, permit: { ...body.permit, ...permit } }
}
const admitted = async (front: TestFront): Promise<string> => {
  const { candidate_id } = (await (await front.post(submitPath, await payload(front))).json()) as {
    candidate_id: string
  }
  return candidate_id
}

const sound: Record<string, (front: TestFront) => Promise<Call>> = {
  eligibility: async (front) => ({
    target: front.eligibility,
  }),
  signingData: async (front) => ({
    target: `${submitPath}/signing-data`,
    body: await termsBody(front),
  }),
  submit: async (front) => ({ target: submitPath, body: await payload(front) }),
  status: async (front) => ({ target: `${submitPath}/status/${await admitted(front)}` }),
  batchSigningData: async () => ({
    target: '/propose/batch/signing-data',
    body: { identifiers: ['first-question', 'unknown'] },
  }),
  batchSubmit: async (front) => ({
    target: '/propose/batch',
    body: { proposals: [await signedItem(front.wallets[0], first)] },
  }),
  receiptKeys: async () => ({ target: receiptDirectory }),
  batchStatus: async (front) => ({
    target: '/propose/batch/status',
    body: { candidate_ids: [await admitted(front), uuid] },
  }),
  health: async () => ({ target: '/healthz' }),
  readiness: async () => ({ target: '/readyz' }),
  openapi: async () => ({ target: '/openapi.json' }),
}

interface Draw {
  readonly options?: FrontOptions
  readonly before?: (front: TestFront) => Promise<unknown> | unknown
  readonly call?: (front: TestFront, sound: Call) => Call | Promise<Call>
  readonly headers?: Record<string, string>
  readonly listener?: Partial<Pick<GatewayCall, 'refused' | 'readBody'>>
}
const withBody = (body: unknown): Draw => ({ call: (_, { target }) => ({ target, body }) })
const withTarget = (target: string): Draw => ({ call: (_, { body }) => ({ target, body }) })
const late = async () => Promise.reject(new BodyError('lost'))

const framing: Record<string, Draw> = {
  bad_request: { listener: { refused: refuse('bad_request', 'two Host headers') } },
  headers_too_large: { listener: { refused: refuse('headers_too_large', 'too many') } },
}
const failing = (error: Error): Draw => ({
  before(front) {
    const { monotonicMs } = front.clock
    let looks = 0
    front.clock.monotonicMs = () => {
      if (++looks === 2) throw error
      return monotonicMs()
    }
  },
})
const charged: Record<string, Draw> = {
  ...framing,
  expectation_failed: { headers: { expect: 'a miracle' } },
  rate_limited: {
    options: { config: { budget: { per_ip_items: 1, global_items: 10 } } },
    before: (front) => front.get(front.eligibility),
  },
  server_busy: { before: (front) => void front.gateway.drain() },
  internal_error: failing(new TypeError('a bug')),
  store_unavailable: failing(new StorageError('store_unavailable', 'away')),
}
const bodied: Record<string, Draw> = {
  ...charged,
  bad_digest: { headers: { 'content-digest': 'sha-256=:AAAA:' } },
  invalid_json: withBody('{'),
  unsupported_media_type: { headers: { 'content-type': 'text/plain' } },
  unsupported_encoding: { headers: { 'content-encoding': 'gzip' } },
  payload_too_large: withBody(' '.repeat(2 * 1024 * 1024 + 1)),
  schema_violation: withBody({}),
  request_timeout: { listener: { readBody: late } },
}
const badIdentifier = (rest: string) => withTarget(`/v1/proposals/Not_A_Slug${rest}`)
const withTerms = (make: typeof payload): Record<string, Draw> => ({
  unsupported_version: {
    call: async (front, { target }) => ({
      target,
      body: await make(front, { version: { ...version, api: 'v2' } }),
    }),
  },
  invalid_amount: {
    call: async (front, { target }) => ({ target, body: await make(front, { max_payment: '1' }) }),
  },
  outcome_not_allowed: {
    call: async (front, { target }) => ({ target, body: await make(front, { outcome: 'p3' }) }),
  },
  permit_amount_below_required_bond: {
    call: async (front, { target }) => ({ target, body: await make(front, {}, { amount: '1' }) }),
  },
  permit_deadline_too_soon: {
    call: async (front, { target }) => ({ target, body: await make(front, {}, { deadline: '1' }) }),
  },
})
const closeRound = (front: TestFront) =>
  front.view.put(makeQuestion('first', { slug: 'first-question', state: 'proposed' }))
const unknownState = {
  before: (front: TestFront) => void front.view.faultList.push('the head is old'),
}
const unreadable = (target: string): Draw => ({
  ...withTarget(target),
  before: (front) => void Object.assign(front.view, { offline: true }),
})

const draws: Record<string, Record<string, Draw>> = {
  eligibility: {
    ...charged,
    200: {},
    invalid_identifier: withTarget('/v1/proposals/eligibility/0x12'),
    route_not_found: withTarget(`/v1/proposals/eligibility/0x${'1'.repeat(512)}`),
  },
  signingData: {
    ...bodied,
    ...withTerms(termsBody),
    200: {},
    invalid_identifier: badIdentifier('/signing-data'),
    question_not_found: withTarget('/v1/proposals/unknown/signing-data'),
    request_not_open: { before: closeRound },
    state_unavailable: unknownState,
  },
  submit: {
    ...bodied,
    ...withTerms(payload),
    202: {},
    200: {
      async call(front, { target, body }) {
        await front.post(target, body)
        return { target, body }
      },
    },
    invalid_identifier: badIdentifier(''),
    invalid_signature_format: {
      call: async (front, { target }) => ({
        target,
        body: await payload(front, { signature: '0xABC' }),
      }),
    },
    proposer_not_eligible: {
      call: async (front, { target }) => ({
        target,
        body: await payload(front, { proposer: `0x${'7'.repeat(40)}` }),
      }),
    },
    signature_not_authorized: {
      call: async (front, { target }) => ({
        target,
        body: await payload(front, {}, { nonce: '987654321' }),
      }),
    },
    question_not_found: withTarget('/v1/proposals/unknown'),
    candidate_conflict: { before: admitted },
    request_not_open: { before: closeRound },
    round_advanced: {
      async call(front, { target, body }) {
        await front.post(target, body)
        front.view.put(advanced(first, '1799999999'))
        return { target, body }
      },
    },
    permit_nonce_used: {
      call(front, call) {
        const { nonce } = (call.body as { permit: { nonce: string } }).permit
        front.view.usedNonces.add(`${front.wallets[0].address}|${nonce}`)
        return call
      },
    },
    ancillary_data_not_allowed: {
      call: async (front, { target }) => ({
        target,
        body: await payload(front, { ancillary_data: '0x' }),
      }),
    },
    admission_disabled: { options: { config: { admission: { enabled: false } } } },
    state_unavailable: unknownState,
    store_unavailable: {
      options: {
        log: (log) => ({
          ...log,
          append: (what, onDurable) =>
            log.append((group) => {
              const records = typeof what === 'function' ? what(group) : what
              if (records.some(({ kind }) => kind === 'candidate.received'))
                throw new StorageError('store_unavailable', 'the disk is full')
              return records
            }, onDurable),
        }),
      },
    },
  },
  status: {
    ...charged,
    200: {},
    invalid_identifier: badIdentifier(`/status/${uuid}`),
    question_not_found: withTarget(`/v1/proposals/unknown/status/${uuid}`),
    candidate_not_found: withTarget(`${submitPath}/status/${uuid}`),
    state_unavailable: unreadable(`/v1/proposals/unknown/status/${uuid}`),
  },
  batchSigningData: { ...bodied, 200: {} },
  batchSubmit: {
    ...bodied,
    200: {},
    ancillary_data_not_allowed: withBody({ proposals: [{ ancillary: 1 }] }),
  },
  batchStatus: { ...bodied, 200: {} },
  health: { ...framing, 200: {} },
  readiness: { ...framing, 200: {}, 503: unknownState },
  receiptKeys: {
    ...framing,
    200: {
      async before({ ledger }) {
        const key = { kid: 'one', x: 'x', nbf: 1 }
        await ledger.commit([{ kind: 'receipt.key', key, reason: 'test' }])
      },
    },
    route_not_found: {},
  },
  openapi: { ...framing, 200: {} },
}

const documented = Object.values(openApiDocument().paths).flatMap((methods) =>
  Object.entries(methods).map(([method, operation]) => {
    const { operationId, responses } = operation as {
      operationId: string
      responses: Readonly<Record<string, ResponseObject>>
    }
    return { method, operationId, responses }
  }),
)
const cases = documented.flatMap(({ method, operationId, responses }) =>
  Object.entries(responses).flatMap(([status, { content }]) => {
    const media = content?.['application/json']
    const codes = media?.schema.$ref?.endsWith('/ErrorBody')
      ? Object.keys(media.examples)
      : [status]
    return codes.map((code) => ({ method, operationId, status: Number(status), code }))
  }),
)

test.each(cases)(
  'contract §2: $operationId answers $status $code',
  async ({ method, operationId, status, code }) => {
    const draw = draws[operationId]?.[code]
    if (!draw) throw new Error(`nothing here draws ${code} from ${operationId}`)
    const front = await openFront(draw.options)
    const base = (await sound[operationId]?.(front)) ?? { target: '/' }
    await draw.before?.(front)
    const { target, body } = (await draw.call?.(front, base)) ?? base
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
    const headers: Record<string, string> = {
      ...(text === undefined ? {} : { 'content-type': 'application/json' }),
      ...draw.headers,
    }
    const readBody = async ({ limitBytes }: BodyLimits) => {
      const bytes = new TextEncoder().encode(text)
      if (bytes.length > limitBytes) throw new BodyError('too_large')
      return bytes
    }
    const answer = await front.gateway.answer(
      rawCall({ method: method.toUpperCase(), target, readBody, ...draw.listener }, headers),
    )
    const told = JSON.parse(answer.body) as { error?: { code: string } }
    expect([answer.status, told.error?.code]).toEqual([
      status,
      code === String(status) ? undefined : code,
    ])
  },
)

test('contract §2: and the document has all of what is drawn here', () => {
  const known = new Set(cases.map(({ operationId, code }) => `${operationId} ${code}`))
  const drawn = Object.entries(draws).flatMap(([operationId, codes]) =>
    Object.keys(codes).map((code) => `${operationId} ${code}`),
  )
  expect(drawn.filter((one) => !known.has(one))).toEqual([])
  expect(drawn).toHaveLength(cases.length)
})
