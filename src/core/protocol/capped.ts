import { type BodyLimits, joined } from './call.js'

type Body = ReadableStream<Uint8Array> | null

export async function readBytes(body: Body, { limitBytes, reserve }: BodyLimits) {
  const parts: Uint8Array[] = []
  let length = 0
  let fault: 'too_large' | 'no_room' | undefined
  for await (const part of body?.values({ preventCancel: true }) ?? []) {
    length += part.length
    fault = length > limitBytes ? 'too_large' : reserve(part.length) ? undefined : 'no_room'
    if (fault) break
    parts.push(part)
  }
  if (fault === undefined) return joined(parts, length)
  // Not waited for: a body that somebody else reads too is never done cancelling.
  body?.cancel().catch(() => undefined)
  return fault
}

export async function readCapped(body: Body, limitBytes: number, decoder = new TextDecoder()) {
  const bytes = await readBytes(body, { limitBytes, reserve: () => true })
  return typeof bytes === 'string' ? undefined : decoder.decode(bytes)
}

/** `undefined`, which no schema takes, where it is no JSON. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export const inGroups = <T>(rows: readonly T[], size: number): readonly (readonly T[])[] =>
  Array.from({ length: Math.ceil(rows.length / size) }, (_, at) =>
    rows.slice(at * size, (at + 1) * size),
  )
