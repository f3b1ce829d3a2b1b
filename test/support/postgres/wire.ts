/**
 * PostgreSQL's frontend/backend protocol, as far as a proxy must know it: where messages begin and
 * end, which statement a message carries or answers, and how a command ended.
 */

export interface Message {
  readonly from: 'client' | 'server'
  readonly connection: number
  /**
   * Its first byte: `Q` Query, `P` Parse, `C` CommandComplete, `Z` ReadyForQuery, …; `startup` for
   * what opens a connection, `ssl` for the question for TLS and the byte that answers it.
   */
  readonly type: string
  readonly statement: string | undefined
  readonly tag: string | undefined
  readonly isFirst: boolean
  readonly bytes: Buffer
}

interface Frame {
  readonly type: string
  readonly bytes: Buffer
}

const encryptionCodes = [80877103, 80877104]
const textAt = (bytes: Buffer, from: number) => {
  const end = bytes.indexOf(0, from)
  return { text: bytes.toString('utf8', from, end), next: end + 1 }
}

export function createReader(connection: number): {
  read(from: 'client' | 'server', chunk: Buffer): Message[]
} {
  const statements = createStatements()
  const rest: Record<'client' | 'server', Buffer> = { client: Buffer.of(), server: Buffer.of() }
  let isStarted = false
  let encryptionAnswers = 0

  function frameOf(from: 'client' | 'server', bytes: Buffer): Frame | undefined {
    if (bytes.length === 0) return undefined
    if (from === 'server' && encryptionAnswers > 0) {
      encryptionAnswers -= 1
      return { type: 'ssl', bytes: bytes.subarray(0, 1) }
    }
    const isStartup = from === 'client' && !isStarted
    const head = isStartup ? 0 : 1
    if (bytes.length < head + 4) return undefined
    const end = head + bytes.readInt32BE(head)
    if (bytes.length < end) return undefined
    if (!isStartup)
      return { type: String.fromCharCode(bytes[0] ?? 0), bytes: bytes.subarray(0, end) }
    if (encryptionCodes.includes(bytes.readInt32BE(4))) encryptionAnswers += 1
    else isStarted = true
    return { type: isStarted ? 'startup' : 'ssl', bytes: bytes.subarray(0, end) }
  }

  return {
    read(from, chunk) {
      const messages: Message[] = []
      let bytes = rest[from].length === 0 ? chunk : Buffer.concat([rest[from], chunk])
      for (let frame = frameOf(from, bytes); frame; frame = frameOf(from, bytes)) {
        bytes = bytes.subarray(frame.bytes.length)
        const meaning = from === 'client' ? statements.sent(frame) : statements.answered(frame)
        messages.push({ from, connection, ...meaning, ...frame })
      }
      rest[from] = bytes
      return messages
    },
  }
}

type Meaning = Pick<Message, 'statement' | 'tag' | 'isFirst'>

type Owed =
  | { readonly kind: 'query' | 'execute'; readonly statement: string | undefined }
  | { readonly kind: 'sync' }

function createStatements() {
  const prepared = new Map<string, string>()
  const portals = new Map<string, string | undefined>()
  const owed: Owed[] = []
  let lastStatement: string | undefined
  let isFirst = true

  function statementOf({ type, bytes }: Frame): string | undefined {
    const first = () => textAt(bytes, 5)
    switch (type) {
      case 'startup':
        owed.push({ kind: 'query', statement: undefined })
        return undefined
      case 'Q':
        owed.push({ kind: 'query', statement: first().text })
        return first().text
      case 'P': {
        const statement = textAt(bytes, first().next).text
        prepared.set(first().text, statement)
        return statement
      }
      case 'B': {
        const statement = prepared.get(textAt(bytes, first().next).text)
        portals.set(first().text, statement)
        return statement
      }
      case 'E':
        owed.push({ kind: 'execute', statement: portals.get(first().text) })
        return portals.get(first().text)
      case 'S':
        owed.push({ kind: 'sync' })
        return undefined
      default:
        return undefined
    }
  }

  return {
    sent: (frame: Frame): Meaning => ({
      statement: statementOf(frame),
      tag: undefined,
      isFirst: false,
    }),
    answered({ type, bytes }: Frame): Meaning {
      const [now] = owed
      if (now !== undefined && now.kind !== 'sync') lastStatement = now.statement
      const meaning = {
        statement: now === undefined ? undefined : lastStatement,
        tag: type === 'C' ? textAt(bytes, 5).text : undefined,
        isFirst: isFirst && now !== undefined && type !== 'ssl',
      }
      if (meaning.isFirst) isFirst = false
      if (now?.kind === 'execute' && 'CIs'.includes(type)) owed.shift()
      if (type === 'E') while (owed[0]?.kind === 'execute') owed.shift()
      if (type === 'Z') {
        owed.shift()
        isFirst = true
      }
      return meaning
    },
  }
}

export type Place = (message: Message) => boolean

export const commitAnswer: Place = ({ from, tag }) => from === 'server' && tag === 'COMMIT'

export const answerTo =
  (statement: RegExp): Place =>
  (message) =>
    message.from === 'server' && message.isFirst && statement.test(message.statement ?? '')

export const statementLike =
  (statement: RegExp): Place =>
  (message) =>
    'QP'.includes(message.type) &&
    message.from === 'client' &&
    statement.test(message.statement ?? '')

export const answer = (n: number): Place =>
  nth(n, ({ from, isFirst }) => from === 'server' && isFirst)

export function nth(n: number, place: Place): Place {
  let seen = 0
  return (message) => place(message) && ++seen === n
}
