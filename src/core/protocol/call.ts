import type { WireCode } from './codes.js'
import type { Refusal } from './refusal.js'

export const connectionPlaces = 1_024

/**
 * A reader instead of the body: 413 and 429 are decided before a byte of it is read (robustness §4,
 * §5).
 */
export interface Call {
  readonly method: string
  readonly target: string
  header(name: string): string | undefined
  readBody(limits: BodyLimits): Promise<Uint8Array>
  readonly address?: string
  /** It still costs what its route costs (robustness §4). */
  readonly refused?: Refusal
  /** `false` in process (contract §6). */
  readonly charged?: boolean
}

/** `body` is empty where HTTP has none (204, HEAD). */
export interface Answered {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** What a `Request` does not show: it normalises its URL and refuses some methods. */
export interface Peer {
  readonly address?: string
  readonly target?: string
  readonly method?: string
  readonly charged?: boolean
}

export interface BodyLimits {
  readonly limitBytes: number
  readonly reserve: (bytes: number) => boolean
}

/** `lost`: too late or cut off, so that nobody is left to be answered. */
export class BodyError extends Error {
  constructor(readonly kind: 'too_large' | 'no_room' | 'lost') {
    super(`body: ${kind}`)
    this.name = 'BodyError'
  }
}

/** For request log and metrics: no URL, header or body (robustness §5). */
export interface RequestRecord {
  readonly requestId: string
  readonly method: string
  readonly route: string
  readonly status: number
  readonly code: WireCode | undefined
  readonly durationMs: number
  readonly items: number
  /** Hashed before it is logged. */
  readonly client: string
  readonly bug: { readonly name: string; readonly frames: readonly string[] } | undefined
}

export interface RequestCount extends Pick<RequestRecord, 'route' | 'method' | 'status'> {
  readonly count: number
}

export function joined(parts: readonly Uint8Array[], length: number) {
  const [only] = parts
  if (only && parts.length === 1) return only
  const whole = new Uint8Array(length)
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}
