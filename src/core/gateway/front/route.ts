/** What a route is: data that the pipeline of `routes.ts` runs. */
import type * as z from 'zod/mini'
import type { ShapeFault } from '../../protocol/faults.js'
import { refuse } from '../../protocol/refusal.js'
import { type RouteAnswer, refusalAnswer } from './answer.js'
import type { Exchange } from './exchange.js'

/** Bytes a body may have, per route (robustness §5): 100 maximal items are 1.73 MB. */
export const bodyLimits = {
  signingData: 8 * 1024,
  submit: 32 * 1024,
  batchSigningData: 64 * 1024,
  batchSubmit: 2 * 1024 * 1024,
  batchStatus: 8 * 1024,
} as const

export interface RouteCall {
  readonly params: Readonly<Record<string, string>>
  /** The parsed body of a POST. */
  readonly body: unknown
  readonly exchange: Exchange
}

export interface Route {
  readonly method: 'GET' | 'POST'
  /** With `{name}` for parameters, as the documents write it. */
  readonly template: string
  /** The shape each path parameter must have; malformed is 400 `invalid_identifier`. */
  readonly params: Readonly<Record<string, (text: string) => boolean>>
  readonly body?: {
    readonly limitBytes: number
    /**
     * Whether the body admits something, so that ancillary data must not be in it (§4.1 rule 3).
     */
    readonly admission: boolean
    /** The field whose entries are charged; one item without it (§8 rule 2). */
    readonly list?: string
  }
  /** Free of charge and never shed. */
  readonly free?: true
  readonly run: (call: RouteCall) => RouteAnswer | Promise<RouteAnswer>
}

/** A handler behind a schema: the whole body is judged before anything is done (R18). */
export function withBody<T>(
  schema: z.ZodMiniType<T>,
  faultOf: (issues: readonly z.core.$ZodIssue[], input: unknown) => ShapeFault,
  run: (body: T, call: RouteCall) => Promise<RouteAnswer>,
): Route['run'] {
  return (call) => {
    const parsed = schema.safeParse(call.body)
    if (parsed.success) return run(parsed.data, call)
    const fault = faultOf(parsed.error.issues, call.body)
    return refusalAnswer(
      refuse(fault.code, fault.detail, fault.errors === undefined ? {} : { errors: fault.errors }),
    )
  }
}
