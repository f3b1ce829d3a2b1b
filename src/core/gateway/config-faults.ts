/** What is wrong with a gateway.json, said by way of its schema. */
import * as z from 'zod'
import { isMistyped } from '../protocol/address.js'
import { didYouMean, nearest } from '../protocol/guess.js'

/** What is wrong, and the part of the file that it is about, as far as it is there. */
export interface ConfigFault {
  readonly path: readonly PropertyKey[]
  readonly detail: string
}

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null

/** What earlier versions had in gateway.json, and what stands for it now (contract §10). */
export const droppedKeys: Readonly<Record<string, string>> = {
  'chain.ws_urls':
    'Take it out: rpc_urls are asked every 0.5 s while something is awaited, else every 2 s.',
  webhooks: 'Take it out: /metrics and the alert rules of deploy/ tell of a gateway.',
}

/** What an issue of the schema says: for unknown keys one fault each. Throws nothing. */
export function faultsOf(
  schema: z.ZodType,
  issue: z.core.$ZodIssue,
  raw: unknown,
): readonly ConfigFault[] {
  const { path } = issue
  if (issue.code !== 'unrecognized_keys') return [{ path, detail: valueFault(schema, issue, raw) }]
  const known = knownKeys(schema, path)
  return issue.keys.map((name) => {
    const key = [...path, name].join('.')
    const named = JSON.stringify(key)
    const instead = Object.hasOwn(droppedKeys, key) ? droppedKeys[key] : undefined
    if (instead !== undefined)
      return {
        path: [...path, name],
        detail: `${named} is no longer a configuration key. ${instead}`,
      }
    const near = nearest(name, known).map((one) => [...path, one].join('.'))
    const meant = near.length === 0 ? `Known keys here: ${known.join(', ')}` : didYouMean(near)
    return {
      path: [...path, name],
      detail: `${named} is not a configuration key. ${meant}`,
    }
  })
}

function valueFault(schema: z.ZodType, issue: z.core.$ZodIssue, raw: unknown): string {
  const key = issue.path.join('.')
  if (key === '') return 'it must be one JSON object'
  const given = issue.path.reduce<unknown>(
    (value, part) => (isRecord(value) ? value[String(part)] : undefined),
    raw,
  )
  if (isMistyped(given))
    return `${key} has a wrong checksum (EIP-55): a character is mistyped; copy the address again`
  const own: unknown = issue.code === 'custom' ? issue.params?.expected : undefined
  const expected =
    typeof own === 'string' ? own : (describe(schema, issue.path) ?? 'in the documented form')
  if (
    key === 'chain.signed_proposer' &&
    given === undefined &&
    isRecord(raw) &&
    isRecord(raw.chain) &&
    'profile' in raw.chain
  ) {
    return `${key} is missing; it must be ${expected}: there is no public source for the SignedProposer of this profile, so ask the operator of that contract`
  }
  return given === undefined
    ? `${key} is missing; it must be ${expected}`
    : `${key} must be ${expected}`
}

/** The schema without its wrappers of defaults. */
function bare(schema: unknown): unknown {
  let inner = schema
  while (
    inner instanceof z.ZodDefault ||
    inner instanceof z.ZodPrefault ||
    inner instanceof z.ZodOptional ||
    inner instanceof z.ZodNullable
  ) {
    inner = inner.unwrap()
  }
  return inner
}

/** The schemas along a path, as far as it is known; list entries stand for their list. */
function schemasAlong(schema: z.ZodType, keys: readonly PropertyKey[]): readonly unknown[] {
  const along: unknown[] = [schema]
  for (const key of keys) {
    const inner = bare(along.at(-1))
    if (inner instanceof z.ZodArray) along.push(inner.element)
    else if (inner instanceof z.ZodRecord) along.push(inner.valueType)
    else if (inner instanceof z.ZodObject && Object.hasOwn(inner.shape, key))
      along.push((inner.shape as Record<PropertyKey, unknown>)[key])
    else if (inner instanceof z.ZodDiscriminatedUnion) {
      const shape = inner.options
        .flatMap((option) => (option instanceof z.ZodObject ? option.shape : []))
        .find((one) => Object.hasOwn(one, key))
      if (shape === undefined) return along
      along.push((shape as Record<PropertyKey, unknown>)[key])
    } else return along
  }
  return along
}

/** What the innermost described part of the path must be. */
function describe(schema: z.ZodType, keys: readonly PropertyKey[]): string | undefined {
  return schemasAlong(schema, keys)
    .map((one) => (one instanceof z.ZodType ? one.description : undefined))
    .findLast((text) => text !== undefined)
}

function knownKeys(schema: z.ZodType, keys: readonly PropertyKey[]): readonly string[] {
  const inner = bare(schemasAlong(schema, keys).at(-1))
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : ['source', 'url']
}
