import { base64Of, decoded } from '#protocol/url-secrets'
import {
  attemptRow,
  journalRecordOf,
  journalRow,
  type Recorded,
  signatureInBody,
} from '../journal/authorizations.js'
import type { Holdings } from '../journal/journal.js'

export interface Secret {
  readonly kind: string
  readonly text: string
}

/** Shorter ones count where they stand alone. */
const anywhereAtLeast = 6

export function findSecrets(document: unknown, secrets: readonly Secret[]) {
  const sought = secrets
    .filter(({ text }) => text !== '')
    .map(({ kind, text }) => ({ kind, text: text.toLowerCase().replace(/^0x/, '') }))
  const look = (value: string, field: string) => {
    const lower = value.toLowerCase()
    const words = lower.split(/[^\p{L}\p{N}]+/u)
    const named = sought.find(({ text }) =>
      text.length >= anywhereAtLeast ? lower.includes(text) : words.includes(text),
    )
    return named ? [{ field, kind: named.kind }] : []
  }
  const walk = (value: unknown, path: readonly string[]): { field: string; kind: string }[] => {
    // A number is no secret, and holds every short one.
    if (typeof value === 'string') return isOurs(path) ? [] : look(value, path.join('.'))
    if (typeof value !== 'object' || value === null) return []
    return Object.entries(value).flatMap(([key, inner]) => walk(inner, [...path, key]))
  }
  return walk(document, [])
}

const ourFields = [
  /^(key|from|origin|url|removed|variables)$/,
  /^(state|class|form|outcome|result|kind|status|failure_stage|source)$/,
]
const isOurs = (path: readonly string[]) => {
  const field = path.findLast((step) => !/^\d+$/.test(step)) ?? ''
  return path[0] === 'versions' || ourFields.some((form) => form.test(field))
}

const longAtLeast = 16
/** Letters and digits, as in `v2`. */
const mixedAtLeast = 6
const valueAtLeast = 8
const tellingName = /key|secret|token|auth|pass|sig|cred|jwt/i
const toldAtLeast = 4

const looksLikeKey = (text: string) =>
  text.length >= longAtLeast ||
  (text.length >= mixedAtLeast && /\d/.test(text) && /[a-z]/i.test(text))

export function webUrl(text: string) {
  const url = URL.canParse(text) ? new URL(text) : undefined
  return /^(https?|wss?):$/.test(url?.protocol ?? '') ? url : undefined
}

/** Narrower than `url-secrets`: a path `/proposer` must not refuse every `proposer`. */
export function urlCredentials(urls: readonly string[]) {
  const found = urls.flatMap((text) => {
    const url = webUrl(text)
    if (url !== undefined) return credentialsOf(url)
    // Without a scheme the user may stand in its place.
    const completed = webUrl(`https://${text}`)
    return [text, ...(completed ? [completed.username, ...credentialsOf(completed)] : [])]
  })
  return [...new Set(found)].filter((one) => one !== '')
}

function credentialsOf({ username, password, pathname, search, hash }: URL) {
  const isAlone = password === ''
  const parts = [
    password,
    isAlone || looksLikeKey(username) ? username : '',
    ...pathname.split('/').filter(looksLikeKey),
    ...search.slice(1).split('&').flatMap(queryValue),
    hash.slice(1),
    isAlone ? '' : base64Of(`${decoded(username)}:${decoded(password)}`),
  ]
  return parts.flatMap((part) => [part, decoded(part)])
}

function queryValue(pair: string) {
  const split = pair.indexOf('=')
  const value = pair.slice(split + 1)
  const isTold = split < 0 || tellingName.test(pair.slice(0, split))
  const counts = value.length >= (isTold ? toldAtLeast : valueAtLeast) || looksLikeKey(value)
  return counts ? [value, value.replaceAll('+', ' ')] : []
}

/** The newest so many are reported (R17). */
const bundleLimit = 1_000
const attemptLimit = 20

/** An allow-list of fields (R5): no payload, signature or digest. */
export function journalPart(
  { authorizations, offers }: Holdings,
  { question, fromMs = 0 }: { question?: string | undefined; fromMs?: number | undefined },
  nowMs: number,
) {
  const wanted = [...offers, ...authorizations].filter((one) => {
    const { questionId, identifier } = journalRecordOf(one)
    return [undefined, questionId, identifier].includes(question) && lastMsOf(one) >= fromMs
  })
  const rows = wanted.slice(-bundleLimit).map((one) => partRow(one, nowMs))
  return { authorizations: rows, left_out: wanted.length - rows.length }
}

export function journalSignatures(view: Holdings) {
  const parts = view.offers.flatMap((one) => one.parts.map(({ signature }) => signature))
  const whole = view.authorizations.map(({ signed }) => signatureInBody(signed.body))
  return [...parts, ...whole]
}

function lastMsOf(one: Recorded) {
  if (!('signed' in one)) return one.offered.offeredAtMs
  const { signedAtMs, terminalAtMs = 0, attempts } = one
  return Math.max(signedAtMs, terminalAtMs, attempts.at(-1)?.startedAtMs ?? 0)
}

function partRow(one: Recorded, nowMs: number) {
  const { price: _price, token: _token, digest: _digest, ...row } = journalRow(one, nowMs)
  const all = 'signed' in one ? one.attempts : []
  const attempts = all
    .slice(-attemptLimit)
    .map((attempt) => ({ ...attemptRow(attempt), form: attempt.start.form }))
  return { ...row, attempts, attempts_left_out: all.length - attempts.length }
}
