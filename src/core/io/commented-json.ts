import {
  findNodeAtLocation,
  getNodeValue,
  type Node,
  type ParseError,
  parseTree,
  printParseErrorCode,
} from 'jsonc-parser'
import { UsageError } from '#protocol/errors'

/** Errors name the place, never the content (R5). */
export function parseCommentedJson(bytes: Uint8Array, name: string) {
  const notJson = (where: string, why: string) =>
    new UsageError(
      'input_not_json',
      `${name}${where} is not JSON${why}`,
      'correct the file: JSON in UTF-8, in which // and /* */ comments are allowed',
    )
  const text = decoded(bytes)
  if (text === undefined) throw notJson('', ' in UTF-8')
  const errors: ParseError[] = []
  const read = treeOf(text, errors)
  const [error] = errors
  if (error !== undefined)
    throw notJson(
      `:${placeAt(text, error.offset)}`,
      `: ${wordsOf(printParseErrorCode(error.error))}`,
    )
  if (read === undefined) throw notJson('', ': it is nested too deep')
  const { root, value } = read
  const [twice] = keysTwice(root)
  if (twice !== undefined)
    throw new UsageError(
      'input_not_json',
      `${name}:${placeAt(text, twice.offset)} has the key ${JSON.stringify(twice.key)} a second time, after ${placeAt(text, twice.firstOffset)}`,
      'keep one of the two',
    )
  return {
    value,
    placeOf(path: readonly PropertyKey[]) {
      for (let length = path.length; ; length--) {
        const keys = path
          .slice(0, length)
          .map((key) => (typeof key === 'number' ? key : String(key)))
        const node = findNodeAtLocation(root, keys)
        if (node)
          return placeAt(text, node.parent?.type === 'property' ? node.parent.offset : node.offset)
      }
    },
  }
}

function decoded(bytes: Uint8Array) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** `undefined`: too deep for the parser's stack. */
function treeOf(text: string, errors: ParseError[]) {
  try {
    const root = parseTree(text, errors, { allowTrailingComma: true })
    return root && { root, value: getNodeValue(root) as unknown }
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

interface KeyTwice {
  readonly key: string
  readonly offset: number
  readonly firstOffset: number
}

function keysTwice({ type, children = [] }: Node): readonly KeyTwice[] {
  const firstOffsets = new Map<string, number>()
  return children.flatMap((child) => {
    const inside = keysTwice(child)
    if (type !== 'object') return inside
    const key = String(child.children?.[0]?.value)
    const firstOffset = firstOffsets.get(key)
    if (firstOffset !== undefined) return [{ key, offset: child.offset, firstOffset }]
    firstOffsets.set(key, child.offset)
    return inside
  })
}

const wordsOf = (code: string) => code.replace(/(?<=[a-z])(?=[A-Z])/g, ' ').toLowerCase()

function placeAt(text: string, offset: number) {
  const before = text.slice(0, offset).split('\n')
  return `${before.length}:${(before.at(-1) ?? '').length + 1}`
}
