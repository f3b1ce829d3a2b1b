import * as z from 'zod/mini'
import { type OperationId, type WireCode, wireFailure, wireFailures } from './codes.js'
import {
  answerExamples,
  errorExample,
  pathExamples,
  requestExamples,
  type Values,
} from './openapi-examples.js'
import * as shapes from './schema.js'
import { named, names } from './schema-building.js'
import { type Operation, operations, type ParameterName, parameters, tags } from './service.js'
import { version } from './words.js'

named(shapes)
const reference = (id: string) => `#/components/schemas/${id}`

function jsonSchema(type: z.ZodMiniType) {
  const id = names.get(type)?.id
  if (id !== undefined) return { $ref: reference(id) }
  const { $schema: _, ...inline } = z.toJSONSchema(type, { io: 'input' })
  return inline
}

/** The schemas in the order in which `paths` leads to them. */
function components(paths: object) {
  const { schemas } = z.toJSONSchema(names, { uri: reference, io: 'input' })
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

const valued = (values: Values = {}) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]))
const content = (type: z.ZodMiniType, examples: object) => ({
  'application/json': { schema: jsonSchema(type), examples },
})

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
/** The connection refuses with these before the rate limit is asked. */
const unbudgeted = new Set([400, 408, 431])

function headersOf(isFree: boolean, status: number) {
  const [when, more] = unbudgeted.has(status)
    ? ['; absent if the connection itself was rejected', { required: false }]
    : ['', {}]
  const budget = Object.entries(budgetHeaders).map(([name, description]) => [
    name,
    { description: description + when, schema: integer, ...more },
  ])
  const headers = {
    ...(!isFree && Object.fromEntries(budget)),
    ...((status === 429 || status === 503) && retryAfter),
  }
  return Object.keys(headers).length === 0 ? {} : { headers }
}

const codesOf = (id: OperationId, { tag, body }: Operation) =>
  (Object.keys(wireFailures) as WireCode[]).filter((code) => {
    const { by } = wireFailure(code)
    if (typeof by !== 'string') return by.includes(id)
    return by === 'connection' || (by === 'charged' ? tag !== 'Gateway' : body !== undefined)
  })

function responses(id: OperationId, operation: Operation) {
  const found: Record<string, object> = {}
  const add = (status: number, description: string, type: z.ZodMiniType, examples: object) => {
    const headers = headersOf(operation.tag === 'Gateway', status)
    found[status] = { description, ...headers, content: content(type, examples) }
  }
  for (const [key, [type, description]] of Object.entries(operation.answers)) {
    const status = Number(key)
    add(status, description, type, valued(answerExamples[id]?.[status]))
  }
  const codes = codesOf(id, operation)
  for (const status of new Set(codes.map((code) => wireFailure(code).status))) {
    const own = codes.filter((code) => wireFailure(code).status === status)
    const examples = own.map((code) => [code, { $ref: `#/components/examples/${code}` }])
    add(status, own.join(', '), shapes.ErrorBody, Object.fromEntries(examples))
  }
  return found
}

function operationObject(id: OperationId, operation: Operation) {
  const { path, summary, description, tag, body } = operation
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name as ParameterName)
  return {
    operationId: id,
    summary,
    ...(description !== undefined && { description }),
    tags: [tag],
    ...(names.length > 0 && { parameters: names.map(parameterObject) }),
    ...(body && {
      requestBody: { required: true, content: content(body.type, valued(requestExamples[id])) },
    }),
    responses: responses(id, operation),
  }
}

function parameterObject(name: ParameterName) {
  const { type, description } = parameters[name]
  return {
    name,
    in: 'path',
    required: true,
    description,
    schema: jsonSchema(type),
    examples: valued(pathExamples[name]),
  }
}

export function openApiDocument(): {
  openapi: string
  paths: Record<string, Record<string, object>>
  components: { schemas: Record<string, object>; examples: Record<string, object> }
} & Record<string, unknown> {
  const paths: Record<string, Record<string, object>> = {}
  const used = new Set<WireCode>()
  for (const id of Object.keys(operations) as OperationId[]) {
    const operation = operations[id]
    const { method, path } = operation
    paths[path] = { ...paths[path], [method.toLowerCase()]: operationObject(id, operation) }
    for (const code of codesOf(id, operation)) used.add(code)
  }
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
