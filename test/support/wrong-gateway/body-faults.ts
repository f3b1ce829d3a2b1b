/**
 * §2.1, §2.7 and §9: gateways that take a body, or an item of a batch, which must be refused: one
 * member is made right before anything looks at it.
 */
import { at } from '#conformance/probe'
import { priceOf } from '#protocol/proposal'
import { version } from '#protocol/words'
import {
  type Faults,
  isBatch,
  isSingle,
  type Json,
  type Make,
  takes,
  takesItems,
} from './between.js'

type Repair = (value: unknown) => unknown
type Body = Json & { readonly permit: Json }

const some = `0x${'5a'.repeat(20)}`
const junk = `0x${'5a'.repeat(64)}1b`
const many = String(2n ** 128n)
const or =
  (other: unknown): Repair =>
  (value) =>
    value ?? other
const text =
  (to: (value: string) => unknown): Repair =>
  (value) =>
    typeof value === 'string' ? to(value) : value
const number =
  (to: (value: number) => unknown): Repair =>
  (value) =>
    typeof value === 'number' ? to(value) : value
const unless = (form: RegExp, other: string) => text((value) => (form.test(value) ? value : other))
const where = (form: RegExp, other: string) => text((value) => (form.test(value) ? other : value))
const lower = text((value) => value.toLowerCase())
const only =
  (...names: readonly string[]): Repair =>
  (value) =>
    Object.fromEntries(Object.entries(value as Json).filter(([name]) => names.includes(name)))
const uint256 = text((value) =>
  /^(0|[1-9]\d*)$/.test(value) && BigInt(value) < 2n ** 256n ? value : '1',
)
const members = ['proposer', 'proposed_price', 'max_payment', 'permit', 'signature']

/** What is taken, by which member that is made right; the body itself where there is none. */
type Rows = Readonly<Record<string, readonly [path: string, repair: Repair]>>

const inBoth: Rows = {
  'a proposer in capitals': ['proposer', lower],
  'a payment': ['max_payment', text(() => '0')],
  'an amount as number': ['permit.amount', number(() => many)],
  'a nonce as number': ['permit.nonce', number(() => '1')],
  'no signature': ['signature', or(junk)],
  'a signature in capitals': ['signature', lower],
  'a signature that is not hex': ['signature', unless(/^0x[0-9a-f]*$/i, junk)],
}

const inSingle: Rows = {
  ...inBoth,
  'any api': ['version.api', () => version.api],
  'any schema': ['version.schema', () => version.schema],
  'any witness': ['version.witness', () => version.witness],
  'more members of version': ['version', (value) => value && only(...Object.keys(version))(value)],
  'no version': ['version', or(version)],
  'the zero address': ['proposer', where(/^0x0+$/, some)],
  'a truncated proposer': ['proposer', where(/^.{0,41}$/, some)],
  'no proposer': ['proposer', or(some)],
  'any outcome for p1': ['outcome', unless(/^p[123]$/, 'p1')],
  'outcomes in capitals': ['outcome', lower],
  'no outcome': ['outcome', or('p2')],
  '0 as a number for max_payment': ['max_payment', number(() => '0')],
  'no max_payment': ['max_payment', or('0')],
  'an amount in hex': ['permit.amount', where(/^0x/, many)],
  'an amount with a fraction': ['permit.amount', where(/\./, many)],
  'a negative amount': ['permit.amount', where(/^-/, many)],
  'no amount': ['permit.amount', or(many)],
  'a nonce beyond 256 bits': ['permit.nonce', uint256],
  'no nonce': ['permit.nonce', or('1')],
  'a deadline as number': ['permit.deadline', number(String)],
  'no deadline': ['permit.deadline', or('99999999999')],
  'half a byte of signature': ['signature', where(/^0x([0-9a-f]{2})*[0-9a-f]$/, junk)],
  'signatures of any length': ['signature', text((value) => value.slice(0, 16_386))],
  'fields it does not know': ['', only(...members, 'version', 'outcome', 'ancillary_data')],
  'fields of the permit it does not know': ['permit', only('amount', 'nonce', 'deadline')],
  'a batch item for a v1 body': [
    '',
    (value) => {
      const { proposed_price, identifier: _id, client_ref: _ref, ...body } = value as Body
      if (proposed_price === undefined) return body
      const permit = { ...body.permit, deadline: String(body.permit.deadline) }
      return { version, outcome: 'p1', ...body, permit }
    },
  ],
}

const inBatch: Rows = {
  ...inBoth,
  'no identifier': ['identifier', or('question-one')],
  'a number as client_ref': ['client_ref', number(String)],
  'any text as proposer': ['proposer', unless(/^0x[0-9a-fA-F]{40}$/, some)],
  'outcome keys for prices': ['proposed_price', (value) => priceOf[value as 'p2'] ?? value],
  'prices as numbers': ['proposed_price', number(() => '0')],
  'a nonce in hex': ['permit.nonce', where(/^0x/, '1')],
  'a deadline as text': ['permit.deadline', text(Number)],
  'half a second of deadline': ['permit.deadline', number(Math.floor)],
  'a version': ['version', () => undefined],
  'an outcome': ['outcome', () => undefined],
  'fields it does not know': [
    '',
    only(...members, 'identifier', 'client_ref', 'version', 'outcome', 'ancillary_data'),
  ],
  'a v1 body for an item': [
    '',
    (value) => {
      const { version: sent, outcome, ...body } = value as Body
      if (sent === undefined || outcome === undefined) return value
      const permit = { ...body.permit, deadline: Number(body.permit.deadline) }
      return { proposed_price: priceOf[outcome as 'p2'], ...body, permit }
    },
  ],
}

function repaired(body: Json, path: string, repair: Repair): unknown {
  if (at(body, 'permit') === undefined) return body
  if (path === '') return repair(body)
  const [name = '', inner] = path.split('.')
  const holder = inner === undefined ? body : body[name]
  if (typeof holder !== 'object' || holder === null) return body
  const changed = { ...holder, [inner ?? name]: repair(at(holder, inner ?? name)) }
  return inner === undefined ? changed : { ...body, [name]: changed }
}

const taking = (rows: Rows, make: (repair: Repair) => Make, of = '') =>
  Object.fromEntries(
    Object.entries(rows).map(([what, [path, repair]]) => [
      `takes ${what}${of}`,
      make((body) => repaired(body as Json, path, repair)),
    ]),
  )

export const bodyFaults: Faults = {
  '§2.1, §9': taking(inSingle, (repair) => takes(isSingle, repair)),
  '§2.7, §9': taking(inBatch, (repair) => takesItems(isBatch, repair), ' in an item'),
}
