/**
 * OpenAPI 3.1 of the gateway, made from the schemas that validate (contract §2), so that neither
 * can say what the other does not.
 */
import * as z from 'zod/mini'
import { type WireCode, wireFailures } from './errors.js'
import { answerExamples, errorExample, pathExamples, requestExamples } from './openapi-examples.js'
import { receiptDirectory } from './receipt.js'
import * as answer from './responses.js'
import * as schema from './schema.js'
import { version } from './words.js'

interface Operation {
  readonly route: `${'get' | 'post'} ${string}`
  readonly id: string
  readonly summary: string
  readonly description?: string
  readonly tag: keyof typeof tags
  readonly request?: z.ZodMiniType
  /** Schema and what it means, by status. */
  readonly answers: Readonly<Record<number, readonly [z.ZodMiniType, string]>>
  /** Codes of the error body beside those that every route of its kind has. */
  readonly codes?: readonly WireCode[]
}

/** Generators make a class of each: the names are what a reader of such a client sees. */
const tags = {
  Proposals: 'One proposal at a time (v1)',
  Batch: 'Up to 100 items per call; each item has its own status_code',
  Gateway: 'Health, readiness and this document; never rate-limited',
} as const

/** What the connection refuses on any route. */
const framingCodes = ['bad_request', 'headers_too_large'] as const
const chargedCodes = [
  ...framingCodes,
  'expectation_failed',
  'rate_limited',
  'internal_error',
  'server_busy',
] as const
const bodyCodes = [
  'bad_digest',
  'invalid_json',
  'unsupported_media_type',
  'unsupported_encoding',
  'payload_too_large',
  'request_timeout',
  'schema_violation',
] as const
const termsCodes = [
  'unsupported_version',
  'invalid_amount',
  'outcome_not_allowed',
  'permit_amount_below_required_bond',
  'permit_deadline_too_soon',
] as const

const Ready = z.object({ ready: z.boolean(), reasons: z.array(z.string()) })
const Health = z.object({ status: z.literal('ok') })
const ReceiptKeys = z.object({
  keys: z.array(
    z.object({
      kty: z.literal('OKP'),
      crv: z.literal('Ed25519'),
      kid: z.string(),
      x: z.string(),
      use: z.literal('sig'),
      nbf: z.optional(z.int()),
      exp: z.optional(z.int()),
    }),
  ),
})
z.globalRegistry
  .add(Ready, { id: 'Readiness' })
  .add(Health, { id: 'Health' })
  .add(ReceiptKeys, { id: 'ReceiptKeys' })

const operations: readonly Operation[] = [
  {
    route: 'get /v1/proposals/eligibility/{address}',
    id: 'eligibility',
    summary: 'Check whether a wallet may propose now',
    tag: 'Proposals',
    answers: { 200: [answer.Eligibility, 'Eligibility of this wallet'] },
    // Of a path that is too long.
    codes: ['invalid_identifier', 'route_not_found'],
  },
  {
    route: 'post /v1/proposals/{identifier}/signing-data',
    id: 'signingData',
    summary: 'Prepare the typed data of one proposal',
    description:
      'Stateless. Checks the outcome, the amount, the deadline and that the request is open; does not check eligibility. Build or check the typed data yourself before you sign.',
    tag: 'Proposals',
    request: schema.SigningDataRequest,
    answers: { 200: [answer.SigningData, 'Typed data to sign, and the values in it'] },
    codes: [
      'invalid_identifier',
      'question_not_found',
      'request_not_open',
      ...termsCodes,
      'state_unavailable',
    ],
  },
  {
    route: 'post /v1/proposals/{identifier}',
    id: 'submit',
    summary: 'Submit a signed proposal',
    description:
      'After a lost response, a 408 or a 500, send exactly the same bytes again: the same payload is the same candidate. Never sign again because of a timeout.',
    tag: 'Proposals',
    request: schema.SignedProposal,
    answers: {
      202: [
        answer.Acknowledgement,
        'Admitted: durable and queued. Only status `executed` means that it is on chain.',
      ],
      200: [
        answer.Acknowledgement,
        'An exact replay in the current round: returns the existing candidate',
      ],
    },
    codes: [
      'invalid_identifier',
      'proposer_not_eligible',
      'signature_not_authorized',
      'question_not_found',
      'candidate_conflict',
      'request_not_open',
      'round_advanced',
      'permit_nonce_used',
      'ancillary_data_not_allowed',
      'invalid_signature_format',
      ...termsCodes,
      'admission_disabled',
      'state_unavailable',
      'store_unavailable',
    ],
  },
  {
    route: 'get /v1/proposals/{identifier}/status/{candidate_id}',
    id: 'status',
    summary: 'Get the status of a candidate',
    tag: 'Proposals',
    answers: {
      200: [answer.CandidateStatus, 'The candidate; times of stages not yet reached are null'],
    },
    codes: ['invalid_identifier', 'question_not_found', 'candidate_not_found', 'state_unavailable'],
  },
  {
    route: 'post /propose/batch/signing-data',
    id: 'batchSigningData',
    summary: 'Get the signing context of 1 to 100 questions',
    tag: 'Batch',
    request: schema.BatchSigningDataRequest,
    answers: {
      200: [
        answer.BatchSigningDataAnswer,
        'One result per identifier, in the order of the request',
      ],
    },
  },
  {
    route: 'post /propose/batch',
    id: 'batchSubmit',
    summary: 'Submit 1 to 100 signed proposals',
    description:
      'If any item is malformed, the whole call is rejected. Otherwise each item is handled independently: read its status_code.',
    tag: 'Batch',
    request: schema.BatchSubmitRequest,
    answers: {
      200: [answer.BatchSubmitAnswer, 'One result per proposal, in the order of the request'],
    },
    codes: ['ancillary_data_not_allowed'],
  },
  {
    route: 'post /propose/batch/status',
    id: 'batchStatus',
    summary: 'Get the status of 1 to 100 candidates',
    tag: 'Batch',
    request: schema.BatchStatusRequest,
    answers: {
      200: [answer.BatchStatusAnswer, 'One result per candidate id, in the order of the request'],
    },
  },
  {
    route: 'get /healthz',
    id: 'health',
    summary: 'Check that the process is up',
    tag: 'Gateway',
    answers: { 200: [Health, 'The process is up'] },
  },
  {
    route: 'get /readyz',
    id: 'readiness',
    summary: 'Check that store, chain and executor are ready',
    tag: 'Gateway',
    answers: { 200: [Ready, 'Ready'], 503: [Ready, 'Not ready, with the reasons'] },
  },
  {
    route: `get ${receiptDirectory}`,
    id: 'receiptKeys',
    summary: 'Public keys that answers are signed with (RFC 9421), ended ones too',
    tag: 'Gateway',
    answers: { 200: [ReceiptKeys, 'A JWK set (RFC 7517, RFC 8037)'] },
    codes: ['route_not_found'],
  },
  {
    route: 'get /openapi.json',
    id: 'openapi',
    summary: 'Get this OpenAPI document',
    tag: 'Gateway',
    answers: { 200: [z.looseObject({}), 'OpenAPI 3.1'] },
  },
]

const reference = (id: string) => `#/components/schemas/${id}`

/** JSON Schema of one schema, its named parts by reference. */
function jsonSchema(type: z.ZodMiniType): object {
  const id = z.globalRegistry.get(type)?.id
  if (typeof id === 'string') return { $ref: reference(id) }
  const { $schema: _, ...inline } = z.toJSONSchema(type, { io: 'input' })
  return inline
}

/**
 * The schemas with a name that `paths` leads to, as components. The registry is the process's: a
 * program with a gateway in it may have others there.
 */
function components(paths: object): Record<string, object> {
  const { schemas } = z.toJSONSchema(z.globalRegistry, { uri: reference, io: 'input' })
  const found: Record<string, object> = {}
  const collect = (from: object) => {
    for (const [, id = ''] of JSON.stringify(from).matchAll(/#\/components\/schemas\/(\w+)/g)) {
      if (found[id] !== undefined) continue
      const { $schema: _, $id: __, ...rest } = schemas[id] ?? {}
      found[id] = rest
      collect(rest)
    }
  }
  collect(paths)
  return found
}

type Values = Readonly<Record<string, unknown>>
const valued = (values: Values = {}) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]))
const content = (type: z.ZodMiniType, examples: object) => ({
  'application/json': { schema: jsonSchema(type), examples },
})

const parameters: Readonly<Record<string, readonly [z.ZodMiniType, string]>> = {
  address: [schema.Address, 'Wallet address'],
  identifier: [schema.Identifier, 'Question id or slug'],
  candidate_id: [schema.Uuid, 'Candidate id from the acknowledgement'],
}

const integer = { type: 'integer', minimum: 0 }
const budgetHeaders = {
  'RateLimit-Limit': 'Items per window, for the tighter of the two windows',
  'RateLimit-Remaining': 'Items left in that window',
  'RateLimit-Reset': 'Seconds until that window ends',
}
const retryAfter = {
  'Retry-After': {
    description: 'Seconds to wait before a retry',
    required: true,
    schema: { type: 'integer', minimum: 1 },
  },
}
/** Statuses of what the connection refuses before the rate limit is asked. */
const unbudgeted = new Set([400, 408, 431])

function headersOf(isFree: boolean, status: number): object {
  const budget = Object.entries(budgetHeaders).map(([name, description]) => [
    name,
    unbudgeted.has(status)
      ? {
          description: `${description}; absent if the connection itself was rejected`,
          schema: integer,
          required: false,
        }
      : { description, schema: integer },
  ])
  const headers = {
    ...(!isFree && Object.fromEntries(budget)),
    ...((status === 429 || status === 503) && retryAfter),
  }
  return Object.keys(headers).length === 0 ? {} : { headers }
}

const isFree = ({ tag }: Operation) => tag === 'Gateway'
const codesOf = (operation: Operation): readonly WireCode[] => [
  ...(isFree(operation) ? framingCodes : chargedCodes),
  ...(operation.request ? bodyCodes : []),
  ...(operation.codes ?? []),
]

/** By status: those of its own, then one for each status that a code of it has. */
function responses(operation: Operation): Record<string, object> {
  const found: Record<string, object> = {}
  const add = (status: number, description: string, type: z.ZodMiniType, examples: object) => {
    const headers = headersOf(isFree(operation), status)
    found[status] = { description, ...headers, content: content(type, examples) }
  }
  for (const [key, [type, description]] of Object.entries(operation.answers)) {
    const status = Number(key)
    add(status, description, type, valued(answerExamples[operation.id]?.[status]))
  }
  const codes = codesOf(operation)
  for (const status of new Set(codes.map((code) => wireFailures[code].status))) {
    const own = codes.filter((code) => wireFailures[code].status === status)
    const examples = own.map((code) => [code, { $ref: `#/components/examples/${code}` }])
    add(status, own.join(', '), schema.ErrorBody, Object.fromEntries(examples))
  }
  return found
}

function operationObject(operation: Operation): object {
  const { id, summary, description, tag, request, route } = operation
  const names = [...route.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name)
  return {
    operationId: id,
    summary,
    ...(description !== undefined && { description }),
    tags: [tag],
    ...(names.length > 0 && { parameters: names.map(parameterObject) }),
    ...(request && {
      requestBody: { required: true, content: content(request, valued(requestExamples[id])) },
    }),
    responses: responses(operation),
  }
}

function parameterObject(name: string): object {
  const [type, description] = parameters[name] ?? [z.string(), '']
  return {
    name,
    in: 'path',
    required: true,
    description,
    schema: jsonSchema(type),
    examples: valued(pathExamples[name]),
  }
}

/** The document as plain JSON data. */
export function openApiDocument(): {
  openapi: string
  paths: Record<string, Record<string, object>>
  components: { schemas: Record<string, object>; examples: Record<string, object> }
} & Record<string, unknown> {
  const paths: Record<string, Record<string, object>> = {}
  for (const operation of operations) {
    const [method = '', path = ''] = operation.route.split(' ')
    paths[path] = { ...paths[path], [method]: operationObject(operation) }
  }
  const used = new Set(operations.flatMap(codesOf))
  return {
    openapi: '3.1.0',
    info: {
      title: 'Proposer service',
      version: version.api,
      description:
        'Submit signed proposals for oracle questions, one at a time (v1) or in batches. Paths are exact: no trailing slash, no percent-encoding.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/', description: 'The gateway that served this document' }],
    // Nobody logs in: a signature authorizes its own proposal, and the allowlist knows wallets.
    security: [],
    tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: components(paths),
      examples: Object.fromEntries([...used].map((code) => [code, { value: errorExample(code) }])),
    },
  }
}
