/**
 * RFC 7512. Only attributes that are compared are taken: one that is passed over could mean another
 * key.
 */

import { toHex } from './witness.js'

export interface Pkcs11Uri
  extends Readonly<Partial<Record<'id' | (typeof texts)[number], string>>> {
  readonly slotId?: number
}

/** It never repeats what stands in the URI: that may be a PIN. */
export class Pkcs11UriFault extends Error {}

const texts = ['token', 'manufacturer', 'model', 'serial', 'object'] as const
const attributeNames = [...texts, 'id', 'slot-id', 'type']

/** RFC 7512 §2.3, pk11-pchar. */
const valueForm = /^(?:[A-Za-z0-9\-._~:[\]@!$'()*+,=&]|%[0-9A-Fa-f]{2})*$/

const refusedQueries: Readonly<Record<string, string>> = {
  'pin-value': 'a PIN does not stand in a URI, but in the PIN file',
  'pin-source': 'the PIN file is named beside the URI',
  'module-path': 'the module is named beside the URI',
  'module-name': 'the module is named beside the URI',
}

export function pkcs11UriFault(text: string) {
  try {
    parsePkcs11Uri(text)
    return undefined
  } catch (error) {
    if (error instanceof Pkcs11UriFault) return error.message
    throw error
  }
}

export function parsePkcs11Uri(text: string): Pkcs11Uri {
  if (!/^pkcs11:/i.test(text)) throw new Pkcs11UriFault('the URI does not begin with pkcs11:')
  const [path = '', ...queries] = text.slice('pkcs11:'.length).split('?')
  for (const query of queries.join('?').split('&')) refuseQuery(query)
  const attributes = new Map<string, string>()
  for (const part of path === '' ? [] : path.split(';')) {
    const at = part.indexOf('=')
    const name = part.slice(0, at)
    if (at < 1) throw new Pkcs11UriFault('the URI has a part that is not <attribute>=<value>')
    if (!attributeNames.includes(name))
      throw new Pkcs11UriFault(
        `the URI chooses by something else than ${attributeNames.join(', ')}`,
      )
    if (attributes.has(name)) throw new Pkcs11UriFault(`the URI names ${name} twice`)
    const value = part.slice(at + 1)
    if (!valueForm.test(value))
      throw new Pkcs11UriFault(`${name} of the URI holds a character that must be written as %xx`)
    attributes.set(name, value)
  }
  return uriOf(attributes)
}

function refuseQuery(query: string) {
  const [name = ''] = query.split('=')
  if (name === '') return
  throw new Pkcs11UriFault(
    Object.hasOwn(refusedQueries, name)
      ? `the URI may not have ${name}: ${refusedQueries[name]}`
      : 'the URI has an attribute behind ? that means nothing here',
  )
}

function uriOf(attributes: ReadonlyMap<string, string>) {
  let uri: Pkcs11Uri = {}
  for (const [name, value] of attributes) {
    if (name === 'id') uri = { ...uri, id: toHex(bytesOf(value)).slice(2) }
    else if (name === 'slot-id') uri = { ...uri, slotId: slotIdOf(value) }
    else if (name !== 'type') uri = { ...uri, [name]: decoded(name, value) }
    else if (value !== 'private') throw new Pkcs11UriFault('type of the URI is not private')
  }
  if (!uri.object && !uri.id)
    throw new Pkcs11UriFault('the URI names no key: object=<label> or id=<%xx…> is missing')
  return uri
}

const bytesOf = (value: string): Uint8Array =>
  Uint8Array.from(value.match(/%..|./g) ?? [], (one) =>
    one.length === 3 ? Number.parseInt(one.slice(1), 16) : one.charCodeAt(0),
  )

function decoded(name: string, value: string) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytesOf(value))
  } catch {
    throw new Pkcs11UriFault(`${name} of the URI is not UTF-8`)
  }
}

function slotIdOf(value: string) {
  if (!/^\d{1,15}$/.test(value)) throw new Pkcs11UriFault('slot-id of the URI is not a number')
  return Number(value)
}
