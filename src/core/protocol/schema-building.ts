import * as z from 'zod/mini'
import type { Hex } from '#ports'
import { limits } from './words.js'

/** What OpenAPI calls them; those that `schema.ts` exports are named as they are exported. */
export const names = z.registry<{ id: string }>()
export function named(shapes: Readonly<Record<string, z.ZodMiniType>>) {
  for (const [id, shape] of Object.entries(shapes)) names.add(shape, { id })
}

type About = Readonly<Record<string, unknown>>
export const described = <S extends z.ZodMiniType>(
  description: string,
  schema: S,
  about: About = {},
): S => {
  z.globalRegistry.add(schema, { description, ...about })
  return schema
}
export const hex = (description: string, text: z.ZodMiniString, about?: About) =>
  described(description, text, about) as unknown as z.ZodMiniType<Hex, Hex>
export const matching = (pattern: RegExp, abort = false) =>
  z.string().check(z.regex(pattern, { abort }))
export const fitting = (code: string, fits: (text: string) => boolean) =>
  z.refine<string>(fits, { params: { code } })
export const listOf = <S extends z.ZodMiniType>(item: S) =>
  z.array(item).check(z.minLength(1), z.maxLength(limits.batchItems))
export const natural = () => z.int().check(z.minimum(0))
export const zeroPayment = z.literal('0')
