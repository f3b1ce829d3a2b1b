/** A handler for each route of the service: what is done once the shape of a call is right. */
import type * as z from 'zod/mini'
import type { OperationId } from '../../protocol/codes.js'
import type { operations } from '../../protocol/service.js'
import type { RouteAnswer } from './answer.js'
import type { Exchange } from './exchange.js'

export interface RouteCall<Body = unknown> {
  readonly params: Readonly<Record<string, string>>
  readonly body: Body
  readonly exchange: Exchange
}

type BodyOf<Id extends OperationId> = (typeof operations)[Id] extends {
  readonly body: { readonly type: infer Type extends z.ZodMiniType }
}
  ? z.infer<Type>
  : undefined

export type Handler<Body = unknown> = (call: RouteCall<Body>) => RouteAnswer | Promise<RouteAnswer>
export type Handlers<Ids extends OperationId = OperationId> = {
  readonly [Id in Ids]: Handler<BodyOf<Id>>
}
