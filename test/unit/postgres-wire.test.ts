import { expect, test } from 'vitest'
import { createReader, type Message } from '../support/postgres/wire.js'

const int32 = (n: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(n)
  return bytes
}
const frame = (type: string, body: string) =>
  Buffer.concat([Buffer.from(type), int32(4 + Buffer.byteLength(body)), Buffer.from(body)])
const startup = (code: number, body = '') =>
  Buffer.concat([int32(8 + body.length), int32(code), Buffer.from(body)])

const exchange: readonly (readonly ['client' | 'server', Buffer])[] = [
  ['client', startup(80877103)],
  ['server', Buffer.from('N')],
  ['client', startup(196608, 'user\0postgres\0\0')],
  ['server', Buffer.concat([frame('R', '\0\0\0\0'), frame('S', 'a\0b\0'), frame('Z', 'I')])],
  ['client', frame('Q', 'BEGIN\0')],
  ['server', Buffer.concat([frame('C', 'BEGIN\0'), frame('Z', 'T')])],
  [
    'client',
    Buffer.concat([
      ...[frame('P', 'one\0SELECT ‹1›\0\0\0'), frame('B', '\0one\0\0\0'), frame('E', '\0\0\0\0\0')],
      ...[frame('P', '\0SELECT 2\0\0\0'), frame('B', 'p\0\0\0\0'), frame('E', 'p\0\0\0\0\0')],
      frame('S', ''),
    ]),
  ],
  [
    'server',
    Buffer.concat([
      ...[frame('1', ''), frame('2', ''), frame('D', 'row'), frame('C', 'SELECT 1\0')],
      ...[frame('1', ''), frame('2', ''), frame('E', 'error'), frame('Z', 'E')],
    ]),
  ],
  ['server', frame('A', 'unasked')],
  ['client', frame('Q', 'ROLLBACK\0')],
  ['server', Buffer.concat([frame('C', 'ROLLBACK\0'), frame('Z', 'I')])],
]

function read(size: number): Message[] {
  const reader = createReader(1)
  return exchange.flatMap(([from, bytes]) => {
    const pieces = []
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size))
    return pieces.flatMap((piece) => reader.read(from, piece))
  })
}

test('each message knows its statement, its end and whether it begins an answer', () => {
  const told = read(Number.POSITIVE_INFINITY).map(({ type, statement, tag, isFirst }) =>
    [type, statement, tag, isFirst ? 'first' : undefined].filter((one) => one !== undefined),
  )
  expect(told).toEqual([
    ...[['ssl'], ['ssl'], ['startup'], ['R', 'first'], ['S'], ['Z']],
    ...[
      ['Q', 'BEGIN'],
      ['C', 'BEGIN', 'BEGIN', 'first'],
      ['Z', 'BEGIN'],
    ],
    ...[
      ['P', 'SELECT ‹1›'],
      ['B', 'SELECT ‹1›'],
      ['E', 'SELECT ‹1›'],
    ],
    ...[['P', 'SELECT 2'], ['B', 'SELECT 2'], ['E', 'SELECT 2'], ['S']],
    ...[
      ['1', 'SELECT ‹1›', 'first'],
      ['2', 'SELECT ‹1›'],
      ['D', 'SELECT ‹1›'],
    ],
    ['C', 'SELECT ‹1›', 'SELECT 1'],
    ...[['1', 'SELECT 2'], ['2', 'SELECT 2'], ['E', 'SELECT 2'], ['Z', 'SELECT 2'], ['A']],
    ...[
      ['Q', 'ROLLBACK'],
      ['C', 'ROLLBACK', 'ROLLBACK', 'first'],
      ['Z', 'ROLLBACK'],
    ],
  ])
})

test.each([1, 2, 3, 5, 7])('pieces of %d bytes are the same messages', (size) => {
  expect(read(size)).toEqual(read(Number.POSITIVE_INFINITY))
  const bytes = Buffer.concat(read(size).map((message) => message.bytes))
  expect(bytes.length).toBe(exchange.reduce((all, [, { length }]) => all + length, 0))
})
