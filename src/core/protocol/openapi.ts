/** OpenAPI 3.1 of the gateway, made from the schemas that validate (contract §2), so that neither can say what the other does not. */
import { z } from 'zod'
import { wireFailures } from './errors.js'
import * as schema from './schema.js'

interface Operation {
  readonly method: 'get' | 'post'
  readonly path: string
  readonly id: string
  readonly summary: string
  readonly tag: 'single' | 'batch' | 'service'
  readonly request?: z.ZodType
  /** Schema by success status. */
  readonly answers: Readonly<Record<number, z.ZodType>>
  /** Statuses of the error body beside those every charged route has. */
  readonly failures: readonly number[]
  readonly free?: true
}

const Ready = z.object({ ready: z.boolean(), reasons: z.array(z.string()) })
const Health = z.object({ status: z.literal('ok') })

const operations: readonly Operation[] = [
  {
    method: 'get',
    path: '/v1/proposals/eligibility/{address}',
    id: 'eligibility',
    summary: 'Whether a wallet may propose now',
    tag: 'single',
    answers: { 200: schema.Eligibility },
    failures: [400],
  },
  {
    method: 'post',
    path: '/v1/proposals/{identifier}/signing-data',
    id: 'signingData',
    summary: 'Complete typed data for one proposal; keeps no state',
    tag: 'single',
    request: schema.SigningDataRequest,
    answers: { 200: schema.SigningData },
    failures: [400, 404, 409, 413, 422],
  },
  {
    method: 'post',
    path: '/v1/proposals/{identifier}',
    id: 'submit',
    summary: 'Submits a signed proposal: 202 admitted, 200 an exact replay in the current round',
    tag: 'single',
    request: schema.SignedProposal,
    answers: { 202: schema.Acknowledgement, 200: schema.Acknowledgement },
    failures: [400, 403, 404, 409, 413, 422],
  },
  {
    method: 'get',
    path: '/v1/proposals/{identifier}/status/{candidate_id}',
    id: 'status',
    summary: 'Where a candidate stands',
    tag: 'single',
    answers: { 200: schema.CandidateStatus },
    failures: [400, 404],
  },
  {
    method: 'post',
    path: '/propose/batch/signing-data',
    id: 'batchSigningData',
    summary: 'Signing context of 1 to 100 questions',
    tag: 'batch',
    request: schema.BatchSigningDataRequest,
    answers: { 200: schema.BatchSigningDataAnswer },
    failures: [400, 413, 422],
  },
  {
    method: 'post',
    path: '/propose/batch',
    id: 'batchSubmit',
    summary: 'Submits 1 to 100 signed proposals, each on its own; read every item’s status_code',
    tag: 'batch',
    request: schema.BatchSubmitRequest,
    answers: { 200: schema.BatchSubmitAnswer },
    failures: [400, 413, 422],
  },
  {
    method: 'post',
    path: '/propose/batch/status',
    id: 'batchStatus',
    summary: 'Where 1 to 100 candidates stand',
    tag: 'batch',
    request: schema.BatchStatusRequest,
    answers: { 200: schema.BatchStatusAnswer },
    failures: [400, 413, 422],
  },
  {
    method: 'get',
    path: '/healthz',
    id: 'health',
    summary: 'Whether the process answers',
    tag: 'service',
    answers: { 200: Health },
    failures: [],
    free: true,
  },
  {
    method: 'get',
    path: '/readyz',
    id: 'readiness',
    summary: 'Whether store, chain and executor are ready, and what is missing',
    tag: 'service',
    answers: { 200: Ready, 503: Ready },
    failures: [],
    free: true,
  },
  {
    method: 'get',
    path: '/openapi.json',
    id: 'openapi',
    summary: 'This document',
    tag: 'service',
    answers: { 200: z.looseObject({}) },
    failures: [],
    free: true,
  },
]

const reference = (id: string) => `#/components/schemas/${id}`

/** JSON Schema of one schema, its named parts by reference. */
function jsonSchema(type: z.ZodType): object {
  const id = z.globalRegistry.get(type)?.id
  if (typeof id === 'string') return { $ref: reference(id) }
  const { $schema: _, ...inline } = z.toJSONSchema(type, { io: 'input' })
  return inline
}

/** All schemas with a name, as components. */
function components(): Record<string, object> {
  const { schemas } = z.toJSONSchema(z.globalRegistry, { uri: reference, io: 'input' })
  return Object.fromEntries(Object.entries(schemas).map(([id, { $schema: _, $id: __, ...rest }]) => [id, rest]))
}

const content = (type: z.ZodType) => ({ 'application/json': { schema: jsonSchema(type) } })

function failureAnswer(status: number): object {
  const codes = Object.entries(wireFailures).flatMap(([code, failure]) => (failure.status === status ? [code] : []))
  return { description: codes.join(', '), content: content(schema.ErrorBody) }
}

const parameterSchemas: Record<string, z.ZodType> = {
  address: schema.Address,
  identifier: schema.Identifier,
  candidate_id: schema.Uuid,
}

const integer = { type: 'integer', minimum: 0 }
const budgetHeaders = {
  'RateLimit-Limit': { description: 'Items per window, of the tighter window', schema: integer },
  'RateLimit-Remaining': { description: 'Items left in it', schema: integer },
  'RateLimit-Reset': { description: 'Seconds until it ends', schema: integer },
}

function operationObject(operation: Operation): object {
  const names = [...operation.path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name)
  const headers = operation.free ? {} : { headers: budgetHeaders }
  const failures = operation.free ? operation.failures : [...operation.failures, 417, 429, 500, 503]
  return {
    operationId: operation.id,
    summary: operation.summary,
    tags: [operation.tag],
    ...(names.length === 0
      ? {}
      : {
          parameters: names.map((name) => ({ name, in: 'path', required: true, schema: jsonSchema(parameterSchemas[name] ?? z.string()) })),
        }),
    ...(operation.request ? { requestBody: { required: true, content: content(operation.request) } } : {}),
    responses: {
      ...Object.fromEntries(
        Object.entries(operation.answers).map(([status, type]) => [
          status,
          { description: operation.summary, ...headers, content: content(type) },
        ]),
      ),
      ...Object.fromEntries(failures.map((status) => [String(status), { ...failureAnswer(status), ...headers }])),
    },
  }
}

/** The document as plain JSON data. */
export function openApiDocument(): {
  openapi: string
  paths: Record<string, Record<string, object>>
  components: { schemas: Record<string, object> }
} & Record<string, unknown> {
  const paths: Record<string, Record<string, object>> = {}
  for (const operation of operations) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: operationObject(operation) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Proposer service',
      version: schema.version.api,
      description: 'Submission of signed proposals to oracle questions, single (v1) and in batches. Paths are exact; nothing is decoded.',
    },
    tags: [{ name: 'single' }, { name: 'batch' }, { name: 'service' }],
    paths,
    components: { schemas: components() },
  }
}
