import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createConfig, lintFromString } from '@redocly/openapi-core'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { z } from 'zod'
import { classifyResponse } from '#client/gateway/answer'
import { Trust } from '#client/trust/trust'
import { refusalAnswer } from '#gateway/front/routes'
import { failures, nextActions, type WireCode, wireFailures } from '#protocol/codes'
import { openApiDocument } from '#protocol/openapi'
import { commonHeaders, refuse } from '#protocol/refusal'
import * as responses from '#protocol/schema'
import * as schema from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { witnessRound } from '#protocol/witness'
import { withCodes } from '../../scripts/manual-pages.js'

type Value = Readonly<Record<string, unknown>>
interface Media {
  readonly schema: object
  readonly examples: Readonly<Record<string, { readonly value?: unknown; readonly $ref?: string }>>
}
interface Operation {
  readonly operationId: string
  readonly parameters?: readonly (Media & { readonly name: string })[]
  readonly requestBody?: { readonly content: Readonly<Record<string, Media>> }
  readonly responses: Readonly<
    Record<
      string,
      { readonly description: string; readonly content?: Readonly<Record<string, Media>> }
    >
  >
}

const root = join(import.meta.dirname, '../..')
const document = JSON.parse(JSON.stringify(openApiDocument())) as ReturnType<typeof openApiDocument>
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    at: `${method} ${path}`,
    operation: operation as Operation,
  })),
)

const ajv = new Ajv2020({ strict: true, strictTypes: false, allowUnionTypes: true })
for (const [name, component] of Object.entries(document.components.schemas))
  ajv.addSchema(component, `#/components/schemas/${name}`)
const fits = (shape: object, value: unknown) => ajv.validate(shape, value) || ajv.errorsText()

function valuesOf({ examples }: Media): readonly (readonly [string, unknown])[] {
  return Object.entries(examples).map(([name, { value, $ref }]) => {
    if ($ref === undefined) return [name, value]
    const { value: shared } = document.components.examples[$ref.split('/').at(-1) ?? ''] as Value
    return [name, shared]
  })
}

test('contract §2: a linter with its recommended rules finds nothing', async () => {
  const rules = {
    // Paths are the service spec's (§1). The two differ in method, and `eligibility` is no
    // identifier (contract §2).
    'no-ambiguous-paths': 'off',
  } as const
  const config = await createConfig({ extends: ['recommended'], rules })
  const problems = await lintFromString({ source: JSON.stringify(document), config })
  expect(
    problems.map(({ severity, ruleId, message, location }) => [
      severity,
      ruleId,
      message,
      location[0]?.pointer,
    ]),
  ).toEqual([])
})

test('contract §2: it has the schemas that its routes lead to, and no other of the process', () => {
  // The client's, which a program with a gateway in it may have loaded too.
  expect(z.globalRegistry.get(Trust)?.id).toBe('Trust')
  const text = JSON.stringify(openApiDocument())
  for (const name of Object.keys(openApiDocument().components.schemas))
    expect(text).toContain(`"#/components/schemas/${name}"`)
  expect(text).not.toContain('Trust')
  for (const [, name = ''] of text.matchAll(/#\/components\/schemas\/(\w+)/g))
    expect(document.components.schemas).toHaveProperty(name)
})

test('contract §5: it lists the known codes and next actions of a failure, and lets later ones through', () => {
  const { properties } = document.components.schemas.Failure as {
    properties: Record<'code' | 'next_action', object>
  }
  expect(properties.code).toMatchObject({
    anyOf: [{ enum: Object.keys(failures) }, { type: 'string' }],
  })
  expect(properties.next_action).toMatchObject({
    anyOf: [{ enum: nextActions }, { type: 'string' }],
  })
  expect(fits(properties.code, 'a_later_code')).toBe(true)
})

test('robustness §4: it says that client_ref counts bytes, as the gateway does', () => {
  expect(document.components.schemas.ClientRef).toMatchObject({
    maxLength: 256,
    description: expect.stringContaining('256 bytes of UTF-8'),
  })
  expect(schema.ClientRef.safeParse('é'.repeat(128)).success).toBe(true)
  expect(schema.ClientRef.safeParse('é'.repeat(129)).success).toBe(false)
})

test('contract §2: its schemas are JSON Schema 2020-12, strictly', () => {
  for (const name of Object.keys(document.components.schemas)) {
    expect(typeof ajv.getSchema(`#/components/schemas/${name}`), name).toBe('function')
  }
})

const bodies = operations.flatMap(({ at, operation }) => [
  ...Object.entries(operation.requestBody?.content ?? {}).map(([type, media]) => ({
    at: `${at} request`,
    type,
    media,
  })),
  ...Object.entries(operation.responses).flatMap(([status, { content = {} }]) =>
    Object.entries(content).map(([type, media]) => ({ at: `${at} ${status}`, type, media })),
  ),
])

test.each(bodies)('contract §2: $at has examples, each of its shape', ({ type, media }) => {
  expect(type).toBe('application/json')
  const values = valuesOf(media)
  expect(values.length).toBeGreaterThan(0)
  for (const [name, value] of values)
    expect([name, fits(media.schema, value)]).toEqual([name, true])
})

test('contract §2: every answer has a body, and every path parameter has examples of its shape', () => {
  for (const { at, operation } of operations) {
    const bare = Object.entries(operation.responses).flatMap(([status, { content }]) =>
      content ? [] : [status],
    )
    expect([at, bare]).toEqual([at, []])
    for (const parameter of operation.parameters ?? []) {
      expect(Object.keys(parameter.examples).length).toBeGreaterThan(0)
      for (const [name, value] of valuesOf(parameter))
        expect([at, name, fits(parameter.schema, value)]).toEqual([at, name, true])
    }
  }
})

test('robustness §4: every code of the catalogue that has a route is shown where its status is, and described', () => {
  const shown = new Set<string>()
  for (const { operation } of operations) {
    for (const [status, { description, content }] of Object.entries(operation.responses)) {
      for (const [code, value] of content ? valuesOf(content['application/json'] as Media) : []) {
        if (!(code in wireFailures)) continue
        shown.add(code)
        expect((value as schema.ErrorBody).error.code).toBe(code)
        expect(wireFailures[code as WireCode].status).toBe(Number(status))
        expect(description).toContain(code)
      }
    }
  }
  const elsewhere = ['method_not_allowed', 'price_not_allowed']
  expect([...shown, ...elsewhere].sort()).toEqual(Object.keys(wireFailures).sort())
})

test('domain §3: the authorization in them is a vector, its question id hashes its ancillary data, and the signature recovers', () => {
  const example = (id: string, status: number) => {
    const found = operations.find(({ operation }) => operation.operationId === id)?.operation
      .responses[status]
    return (valuesOf(found?.content?.['application/json'] as Media)[0] ?? [])[1]
  }
  const submitted = operations.find(({ operation }) => operation.operationId === 'submit')
    ?.operation.requestBody
  const [[, body] = []] = valuesOf(submitted?.content['application/json'] as Media)
  const payload = schema.SignedProposal.parse(body)
  const data = responses.SigningData.parse(example('signingData', 200))
  const { domain, message } = data.typed_data
  const witness = message.witness as { [name in keyof typeof message.witness]: never }
  const round = witnessRound(
    {
      chainId: Number(domain.chainId),
      permit2: domain.verifyingContract as never,
      signedProposer: message.spender as never,
    },
    witness,
    message.permitted.token as never,
  )
  expect(round.ancillaryHash).toBe(data.question_id)
  const digest = round.digest({ price: message.witness.proposedPrice, ...data.permit })
  expect(recoverSigner(digest, payload.signature as never)).toBe(payload.proposer)
  const { cases } = JSON.parse(
    readFileSync(join(root, 'fixtures', 'vectors', 'witness.json'), 'utf8'),
  ) as {
    cases: { name: string; signature: string; expected: { digest: string } }[]
  }
  const vector = cases.find(({ name }) => name === 'question text without p3')
  expect([`0x${Buffer.from(digest).toString('hex')}`, payload.signature]).toEqual([
    vector?.expected.digest,
    vector?.signature,
  ])
})

test('contract §2: a code that is added to the table is in the document, on the reference page, and what a client shows', async () => {
  const added = {
    status: 409,
    by: ['submit'],
    when: 'the moon is full',
    example: 'the moon is full; wait a day',
  }
  const codes = { ...wireFailures, moon_is_full: added }
  Object.assign(wireFailures, { moon_is_full: added })
  onTestFinished(() => {
    Reflect.deleteProperty(wireFailures, 'moon_is_full')
  })
  const { paths, components } = openApiDocument()
  const submit = paths['/v1/proposals/{identifier}']?.post as Operation
  expect(submit.responses['409']?.description).toContain('moon_is_full')
  expect(components.examples.moon_is_full).toEqual({
    value: { error: { code: 'moon_is_full', detail: added.example } },
  })
  const page = readFileSync(join(root, 'docs/reference/error-codes.md'), 'utf8')
  expect(withCodes(page, codes, failures)).toMatch(/`moon_is_full` +\| 409 +\| no +\| the moon/)
  const { status, body } = refusalAnswer(refuse('moon_is_full' as WireCode, added.example))
  const response = new Response(body, { status, headers: commonHeaders })
  const expected = { read: () => undefined, capBytes: 1_000, admits: true }
  const answer = await classifyResponse(response, expected, { nowMs: Date.now })
  expect(answer).toMatchObject({ kind: 'reconcile', code: 'moon_is_full', detail: added.example })
})

const near = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.stringMatching(/^[a-z0-9-]{0,12}$/),
  fc.stringMatching(/^0x[0-9a-f]{0,6}$/),
  fc.stringMatching(/^0x[0-9a-f]{40}$/),
  fc.stringMatching(/^0x[0-9a-f]{64}$/),
  fc.constantFrom(
    'eligibility',
    'eligibility-2',
    `0x${'0'.repeat(40)}`,
    `0x${'0'.repeat(64)}`,
    '0x',
    'a'.repeat(200),
    'a'.repeat(201),
  ),
  fc.constantFrom(`0x${'ab'.repeat(8192)}`, `0x${'ab'.repeat(8193)}`, `0x${'ab'.repeat(8191)}a`),
)
const { Identifier, Signature, NonzeroAddress, Address, Bytes32, Bytes, Uuid, Instant } = schema
test.each(
  Object.entries({
    Identifier,
    Signature,
    NonzeroAddress,
    Address,
    Bytes32,
    Bytes,
    Uuid,
    Instant,
  }),
)('contract §2: %s of the document takes exactly what the gateway takes', (name, type) => {
  fc.assert(
    fc.property(near, (text) => {
      expect(ajv.validate({ $ref: `#/components/schemas/${name}` }, text)).toBe(
        type.safeParse(text).success,
      )
    }),
    { numRuns: 300 },
  )
})

test('§2.1: a number beyond 256 bits and a client_ref of too many bytes pass the document only where JSON Schema cannot say so', () => {
  const takes = (name: string, text: string) =>
    ajv.validate({ $ref: `#/components/schemas/${name}` }, text)
  expect([
    takes('Uint256', '01'),
    takes('Uint256', '1'.repeat(79)),
    takes('Uint256', '9'.repeat(78)),
  ]).toEqual([false, false, true])
  expect([takes('ClientRef', 'a'.repeat(257)), takes('ClientRef', 'é'.repeat(200))]).toEqual([
    false,
    true,
  ])
})
