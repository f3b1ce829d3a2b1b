/**
 * Calls to a gateway, grown from valid ones by drawn numbers: the route, its body, and what is
 * wrong with each.
 */
import fc from 'fast-check'
import type { Fronts } from './fronts.js'
import {
  type Edit,
  edited,
  editedBytes,
  editedText,
  editsUpTo,
  tokens,
  withOtherDigit,
} from './mutate.js'

export interface Draw {
  readonly base: number
  readonly form: number
  readonly edits: readonly Edit[]
  readonly target: number
  readonly head: number
  readonly world: number
}

export const draws: fc.Arbitrary<Draw> = fc.record({
  base: fc.nat(999_999),
  form: fc.nat(99),
  edits: editsUpTo(3, 1),
  target: fc.nat(255),
  head: fc.nat(255),
  world: fc.nat(255),
})

export interface FuzzedCall {
  readonly method: string
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array<ArrayBuffer> | undefined
}

interface Base {
  readonly method: 'GET' | 'POST'
  readonly target: string
  readonly body?: unknown
}

const pickOf = <T>(list: readonly T[], at: number): T => list[at % list.length] as T
const encoder = new TextEncoder()

function baseOf(fronts: Fronts, draw: number): Base {
  const { signed, identifiers, candidateIds } = fronts
  const pick = Math.floor(draw / 16)
  const one = pickOf(signed, pick)
  const { questionId, slug } = one.question
  const identifier = pick % 3 === 0 ? (slug ?? questionId) : questionId
  switch (draw % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      return { method: 'POST', target: `/v1/proposals/${identifier}`, body: one.single }
    case 5:
    case 6: {
      const { signature: _, ...unsigned } = one.single
      return { method: 'POST', target: `/v1/proposals/${identifier}/signing-data`, body: unsigned }
    }
    case 7:
    case 8:
    case 9:
    case 10: {
      const items = Array.from({ length: 1 + (pick % 3) }, (_, at) => ({
        ...pickOf(signed, pick + at * 7).item,
        ...(at % 2 === 0 ? { client_ref: `ref-${pick}` } : {}),
      }))
      return { method: 'POST', target: '/propose/batch', body: { proposals: items } }
    }
    case 11: {
      const some = Array.from({ length: 1 + (pick % 4) }, (_, at) => pickOf(identifiers, pick + at))
      return { method: 'POST', target: '/propose/batch/signing-data', body: { identifiers: some } }
    }
    case 12: {
      const some = [pickOf(candidateIds, pick), '00000000-0000-4000-8000-000000000000']
      return { method: 'POST', target: '/propose/batch/status', body: { candidate_ids: some } }
    }
    case 13:
      if (pick % 4 > 0)
        return { method: 'POST', target: `/v1/proposals/${identifier}`, body: one.single }
      return {
        method: 'GET',
        target: pick % 400 === 0 ? '/openapi.json' : pickOf(['/healthz', '/readyz'], pick >> 2),
      }
    case 14:
      return {
        method: 'GET',
        target: `/v1/proposals/${identifier}/status/${pickOf(candidateIds, pick)}`,
      }
    default:
      return { method: 'GET', target: `/v1/proposals/eligibility/${one.single.proposer}` }
  }
}

function bodyOf(body: unknown, { form, edits, base }: Draw): Uint8Array<ArrayBuffer> {
  if (form < 3) return encoder.encode(JSON.stringify(body))
  if (form < 12) return encoder.encode(JSON.stringify(withOtherDigit(body, edits[0] ?? [0, 0, 0])))
  if (form < 70) return encoder.encode(JSON.stringify(edited(body, edits)) ?? '')
  if (form < 84) return encoder.encode(editedText(JSON.stringify(body), edits))
  if (form < 88) return encoder.encode(editedText(JSON.stringify(edited(body, edits)) ?? '', edits))
  if (form < 95) return editedBytes(encoder.encode(JSON.stringify(body)), edits)
  if (form < 97) return encoder.encode(JSON.stringify(body) + ' '.repeat(7_000 + (base % 40_000)))
  return Uint8Array.from(edits.flat(), (value) => value & 255)
}

const foreignTargets = [
  '/',
  '/v1',
  '/v1/proposals/',
  '/propose',
  '/metrics',
  '/propose/status/x',
  `/${tokens[0]}`,
  '*',
  '//v1/proposals/x',
]

function targetOf(target: string, draw: number, [place, how, pick]: Edit): string {
  if (draw < 225) return target
  switch (draw % 10) {
    case 0:
      return `${target}/`
    case 1:
      return `${target}?${tokens[0]}=1`
    case 2:
      return target.replace('/', '//')
    case 3:
      return `${target.slice(0, -1)}%${(pick % 256).toString(16).padStart(2, '0')}`
    case 4:
      return `${target.slice(0, target.lastIndexOf('/'))}/${pickOf([...tokens, '..', '.', 'eligibility', 'a'.repeat(201), '0x12', 'A'], pick)}`
    case 5:
      return `${target}/${tokens[place % 2]}`
    case 6:
      return target + 'a'.repeat(520)
    case 7:
      return pickOf(foreignTargets, pick)
    case 8:
      return target.slice(0, 1 + (place % target.length))
    default:
      return (
        target.slice(0, place % target.length) +
        pickOf([';', '~', '_', 'Z', '0', '=', '"', '|'], how) +
        target.slice(place % target.length)
      )
  }
}

const oddHeads: readonly Readonly<Record<string, string>>[] = [
  { 'content-type': 'text/plain' },
  { 'content-type': `application/json; charset=${tokens[0]}` },
  { 'content-type': 'application/json; charset="UTF-8"' },
  { 'content-type': tokens[0] },
  { 'content-encoding': 'gzip' },
  { 'content-encoding': tokens[0] },
  { expect: tokens[0] },
  { origin: `https://${tokens[1]}.test` },
  { 'x-forwarded-for': `${tokens[0]}, 10.0.0.1` },
  { [tokens[0]]: tokens[1] },
  { authorization: `Bearer ${tokens[0]}` },
  { cookie: `${tokens[0]}=1`, 'if-none-match': '*' },
  { accept: tokens[0], 'accept-language': 'x'.repeat(900) },
]

const oddMethods = ['PUT', 'DELETE', 'PATCH', 'OPTIONS', 'HEAD', 'GET', 'POST']

export function callOf(fronts: Fronts, draw: Draw): FuzzedCall {
  const base = baseOf(fronts, draw.base)
  const [first = [0, 0, 0] as const] = draw.edits
  const body = base.body === undefined ? undefined : bodyOf(base.body, draw)
  const odd = draw.head < 232 ? {} : pickOf(oddHeads, draw.head)
  const otherMethod = draw.target > 218 && draw.target < 225
  const method = otherMethod ? pickOf(oddMethods, draw.head) : base.method
  return {
    method,
    target: targetOf(base.target, draw.target, first),
    headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...odd },
    body: method === 'POST' || method === 'PUT' || method === 'PATCH' ? body : undefined,
  }
}
