import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { wireFailures } from '#protocol/codes'
import { openApiDocument } from '#protocol/openapi'

export interface SeenAnswer {
  readonly method: string
  readonly target: string
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

interface HeaderObject {
  readonly required?: boolean
  readonly schema: object
}

export interface ResponseObject {
  readonly description: string
  readonly headers?: Readonly<Record<string, HeaderObject>>
  readonly content?: Readonly<
    Record<
      string,
      {
        readonly schema: { readonly $ref?: string }
        readonly examples: Readonly<Record<string, object>>
      }
    >
  >
}

interface DocumentedRoute {
  readonly path: string
  readonly pattern: RegExp
  readonly operations: Readonly<
    Record<string, { readonly responses: Readonly<Record<string, ResponseObject>> }>
  >
}

const errorBody = '#/components/schemas/ErrorBody'

/**
 * The document as it is served, but with every object closed: callers must let additions through,
 * the gateway must not answer with a field that its document does not name.
 */
const document = closed(JSON.parse(JSON.stringify(openApiDocument()))) as ReturnType<
  typeof openApiDocument
>
const ajv = new Ajv2020({ strict: false })
ajv.addSchema(document, 'openapi.json')

/** A function gives it: in a replacement `$&` would be what is replaced. */
const segment = "(?!\\.{1,2}(/|$))[\\w.~!$&'()*+,;=:@-]+"
const routes: readonly DocumentedRoute[] = Object.entries(document.paths).map(
  ([path, operations]) => ({
    path,
    pattern: new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, () => segment)}$`),
    operations: operations as unknown as DocumentedRoute['operations'],
  }),
)

function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.fromEntries(
    Object.entries(value).map(([key, entry]) => [key, closed(entry)]),
  )
  return entries.type === 'object' && 'properties' in entries
    ? { additionalProperties: false, ...entries }
    : entries
}

const pointer = (...parts: readonly string[]) =>
  parts.map((part) => `/${part.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
const validators = new Map<string, ValidateFunction>()

function shapeFault(at: string, value: unknown): string | undefined {
  const validate = validators.get(at) ?? ajv.compile({ $ref: `openapi.json#${encodeURI(at)}` })
  validators.set(at, validate)
  if (validate(value)) return undefined
  return ajv.errorsText(validate.errors, { dataVar: 'the answer' })
}

export function answerFault(answer: SeenAnswer): string | undefined {
  const fault = faultOf(answer)
  return (
    fault &&
    `${answer.method} ${answer.target.slice(0, 120)} answered ${answer.status}: ${fault}: ${answer.body.slice(0, 400)}`
  )
}

function faultOf(answer: SeenAnswer): string | undefined {
  const route =
    answer.target.length > 512
      ? undefined
      : routes.find(({ pattern }) => pattern.test(answer.target))
  const method = answer.method.toLowerCase()
  const operation = route?.operations[method]
  if (!route || !operation) return faultElsewhere(answer, route)
  const response = operation.responses[answer.status]
  if (!response) return `the document has no ${answer.status} for ${route.path}`
  const at = pointer('paths', route.path, method, 'responses', String(answer.status))
  const { content } = response
  return headersFault(response, answer, at) ?? (content && contentFault(content, answer, at))
}

function headersFault(
  { headers = {} }: ResponseObject,
  answer: SeenAnswer,
  at: string,
): string | undefined {
  for (const [name, { required }] of Object.entries(headers)) {
    const value = answer.headers[name.toLowerCase()]
    if (value === undefined) {
      if (required) return `${name} is missing`
      continue
    }
    const fault = shapeFault(
      `${at}${pointer('headers', name, 'schema')}`,
      /^\d+$/.test(value) ? Number(value) : value,
    )
    if (fault) return `${name}: ${fault}`
  }
  return undefined
}

function contentFault(
  content: NonNullable<ResponseObject['content']>,
  answer: SeenAnswer,
  at: string,
): string | undefined {
  const type = answer.headers['content-type'] ?? 'none'
  const media = content[type]
  if (!media) return `the content type ${type} is not documented`
  const value = parsed(answer.body)
  if (value === undefined) return 'the body is not JSON'
  const fault = shapeFault(`${at}${pointer('content', type, 'schema')}`, value)
  if (fault || media.schema.$ref !== errorBody) return fault
  const code = codeOf(value)
  return code in media.examples ? undefined : `the code ${code} is not documented here`
}

function faultElsewhere(
  answer: SeenAnswer,
  route: DocumentedRoute | undefined,
): string | undefined {
  const allow = route && Object.keys(route.operations).join(', ').toUpperCase()
  if (answer.status === 204) {
    const sound =
      answer.method === 'OPTIONS' &&
      answer.body === '' &&
      answer.headers['access-control-allow-methods'] === allow
    return sound ? undefined : 'only a preflight is answered without content'
  }
  if (answer.method !== 'HEAD') {
    const value = parsed(answer.body)
    const fault = shapeFault(pointer('components', 'schemas', 'ErrorBody'), value)
    if (fault) return fault
    const code = codeOf(value)
    const failure: { status: number } | undefined = Object.entries(wireFailures).find(
      ([name]) => name === code,
    )?.[1]
    if (failure?.status !== answer.status) return `the code ${code} is not one of this status`
  }
  if ([400, 408, 431].includes(answer.status)) return undefined
  if (answer.method === 'unparsed' && answer.status === 503) return undefined
  if (!route) return answer.status === 404 ? undefined : 'an unknown path is 404'
  if (answer.status !== 405) return 'another method of a known path is 405'
  return answer.headers.allow === allow
    ? undefined
    : `Allow is ${answer.headers.allow}, the document has ${allow}`
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}

const codeOf = (body: unknown) => (body as { error: { code: string } }).error.code
