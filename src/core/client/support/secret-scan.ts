/**
 * The last look at a document before it is given away (R5). It was put together from an allow-list,
 * and this proves that no known secret got in by a field that was thought to be harmless.
 */

/** Something that must not appear, without regard to case. */
export interface Secret {
  /** What it is, for people, such as `the RPC URL`. */
  readonly kind: string
  readonly text: string
}

export interface FoundSecret {
  /** Dotted path in the document, such as `journal.authorizations.3.client_ref`. */
  readonly field: string
  readonly kind: string
}

/** Shorter ones count only where they stand alone: a password `a` is in every text. */
const anywhereAtLeast = 6

/** Every field whose value, or key name, holds one of the secrets; the value is never told. */
export function findSecrets(document: unknown, secrets: readonly Secret[]): readonly FoundSecret[] {
  const sought = secrets
    .filter(({ text }) => text !== '')
    .map(({ kind, text }) => ({ kind, text: text.toLowerCase().replace(/^0x/, '') }))
  const found: FoundSecret[] = []
  const look = (value: string, field: string) => {
    const lower = value.toLowerCase()
    const words = lower.split(/[^\p{L}\p{N}]+/u)
    const named = sought.find(({ text }) =>
      text.length >= anywhereAtLeast ? lower.includes(text) : words.includes(text),
    )
    if (named !== undefined) found.push({ field, kind: named.kind })
  }
  const walk = (value: unknown, path: readonly string[]): void => {
    // A number holds too few digits for a secret, and every short one.
    if (typeof value === 'string' && !isOurs(path)) look(value, path.join('.'))
    if (typeof value !== 'object' || value === null) return
    for (const [key, inner] of Object.entries(value)) walk(inner, [...path, key])
  }
  walk(document, [])
  return found
}

/**
 * Fields that hold words of ours, a variable's or flag's name, or a URL cut down to scheme, host and
 * port: a secret that is the same word says nothing there.
 */
const fields: ReadonlySet<string> = new Set([
  ...['key', 'from', 'origin', 'url', 'removed', 'variables'],
  ...['state', 'class', 'form', 'outcome', 'result', 'kind', 'status', 'failure_stage', 'source'],
])
const isOurs = (path: readonly string[]): boolean =>
  path[0] === 'versions' || fields.has(path.findLast((step) => !/^\d+$/.test(step)) ?? '')
