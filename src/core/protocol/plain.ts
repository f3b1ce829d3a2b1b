/**
 * Readers of plain JSON values, for commands that read one value and then end: zod, of which the
 * wire's schemas are made, takes longer to load than one proposal to sign. A reader answers a copy
 * with the members it knows. Where it differs from its schema is for a test to say.
 */

/** `undefined` never stands for a value: JSON has none. Throws ShapeError. */
export type Read<T> = (value: unknown) => T
export type ReadBy<R> = R extends Read<infer T> ? T : never

/** Where the first fault lies, in the order of the members as they are written down. */
export class ShapeError extends Error {
  readonly path: (string | number)[] = []
}

function inside<T>(name: string | number, read: Read<T>, value: unknown): T {
  try {
    return read(value)
  } catch (error) {
    if (error instanceof ShapeError) error.path.unshift(name)
    throw error
  }
}

function fault(): never {
  throw new ShapeError('the value does not have its shape')
}

export const text =
  (isOne: (text: string) => boolean = () => true): Read<string> =>
  (value) =>
    typeof value === 'string' && isOne(value) ? value : fault()

export const oneOf =
  <const T extends string>(...words: readonly T[]): Read<T> =>
  (value) =>
    words.find((word) => word === value) ?? fault()

export const integer =
  (least = Number.MIN_SAFE_INTEGER): Read<number> =>
  (value) =>
    typeof value === 'number' && Number.isSafeInteger(value) && value >= least ? value : fault()

export const number: Read<number> = (value) =>
  typeof value === 'number' && Number.isFinite(value) ? value : fault()

export const flag: Read<boolean> = (value) => (typeof value === 'boolean' ? value : fault())

export const anything: Read<unknown> = (value) => value

export const orNull =
  <T>(read: Read<T>): Read<T | null> =>
  (value) =>
    value === null ? null : read(value)

/** A list of at least this many. */
export const list =
  <T>(read: Read<T>, least = 0): Read<T[]> =>
  (value) => {
    if (!Array.isArray(value)) return fault()
    const items = value.map((item, index) => inside(index, read, item))
    return items.length < least ? fault() : items
  }

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Any names, all of one shape. */
export const record =
  <T>(read: Read<T>): Read<Record<string, T>> =>
  (value) => {
    if (!isObject(value)) return fault()
    const copy: Record<string, T> = {}
    // A member of that name would become the copy's prototype.
    for (const [name, member] of Object.entries(value))
      if (name !== '__proto__') copy[name] = inside(name, read, member)
    return copy
  }

/** A member that need not be there. */
export interface Optional<T> extends Read<T | undefined> {
  readonly isOptional: true
}

export const maybe = <T>(read: Read<T>): Optional<T> =>
  Object.assign((value: unknown) => (value === undefined ? undefined : read(value)), {
    isOptional: true,
  } as const)

type Members = Readonly<Record<string, Read<unknown>>>
type Needed<M extends Members> = {
  [Name in keyof M as M[Name] extends Optional<unknown> ? never : Name]: ReadBy<M[Name]>
}
type Possible<M extends Members> = {
  [Name in keyof M as M[Name] extends Optional<unknown> ? Name : never]?: ReadBy<M[Name]>
}
type Copy<M extends Members> = Needed<M> & Possible<M>

/**
 * These members; others are left out, or with `strict` are a fault, behind those of the members.
 */
export const members =
  <M extends Members>(all: M, { strict = false } = {}): Read<Copy<M>> =>
  (value) => {
    if (!isObject(value)) return fault()
    const copy: Record<string, unknown> = {}
    for (const [name, read] of Object.entries(all)) {
      const member = inside(name, read, Object.hasOwn(value, name) ? value[name] : undefined)
      if (member !== undefined) copy[name] = member
    }
    if (strict && Object.keys(value).some((name) => !Object.hasOwn(all, name))) return fault()
    return copy as Copy<M>
  }
