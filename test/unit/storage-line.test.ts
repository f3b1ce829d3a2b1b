import fc from 'fast-check'
import { systemHash } from '#io/clock'
import {
  decodeLine,
  encodeData,
  encodeHead,
  encodeLine,
  maxLineBytes,
  noCheck,
} from '#storage/line'

const head = {
  previous: noCheck,
  sequence: 7,
  durableBytes: 4096,
  kind: 'candidate.received',
  timeMs: 1_755_000_000_000,
  more: 0,
}
const bytesOf = (text: string) => new TextEncoder().encode(text)
const withoutNewline = (text: string) => bytesOf(text).subarray(0, -1)

test('robustness §2: a line is valid JSON with the fixed start, and its check covers byte 24 up to the newline', () => {
  const { text, check } = encodeLine(systemHash, head, encodeData('candidate.received', { a: 1 }))
  expect(text).toBe(
    `{"c":"${check}","p":"0000000000000000","n":7,"s":4096,"k":"candidate.received","t":1755000000000,"d":{"a":1}}\n`,
  )
  expect(check).toBe(systemHash.sha256(text.slice(24, -1)).slice(0, 16))
  expect(JSON.parse(text)).toMatchObject({ c: check, n: 7, s: 4096, d: { a: 1 } })
})

test('R11: whatever JSON can hold comes back from a line unchanged, in one line without NUL', () => {
  fc.assert(
    fc.property(
      fc.jsonValue(),
      fc.string({ unit: 'binary' }),
      fc.nat(),
      fc.nat(),
      (value, text, sequence, durableBytes) => {
        const data = { value, text }
        const line = encodeLine(
          systemHash,
          { ...head, sequence, durableBytes },
          encodeData('x', data),
        )
        const bytes = bytesOf(line.text)
        expect(bytes.indexOf(10)).toBe(bytes.length - 1)
        expect(bytes.indexOf(0)).toBe(-1)
        const found = decodeLine(systemHash, bytes.subarray(0, -1))
        expect(found).toEqual({
          ...head,
          sequence,
          durableBytes,
          check: line.check,
          data: JSON.parse(JSON.stringify(data)),
        })
      },
    ),
  )
})

test('R11, T4: no single flipped bit and no cut of a line goes unnoticed', () => {
  const bytes = withoutNewline(
    encodeLine(systemHash, head, encodeData('x', { amount: '500', proposer: 'ü' })).text,
  )
  for (let index = 0; index < bytes.length; index++) {
    for (let bit = 0; bit < 8; bit++) {
      const flipped = bytes.slice()
      flipped[index] = (flipped[index] ?? 0) ^ (1 << bit)
      expect(decodeLine(systemHash, flipped)).toBeUndefined()
    }
    expect(decodeLine(systemHash, bytes.subarray(0, index))).toBeUndefined()
    expect(decodeLine(systemHash, bytes.subarray(index + 1))).toBeUndefined()
  }
})

test('R11: bytes that carry their own right checksum but are no line are refused', () => {
  const signed = (body: string) => bytesOf(`{"c":"${systemHash.sha256(body).slice(0, 16)}",${body}`)
  const whole = '"p":"0000000000000000","n":7,"s":1,"k":"x","t":1,"d":{}}'
  expect(decodeLine(systemHash, signed(whole))).toBeDefined()
  for (const body of [
    '"p":"0000000000000000","n":7,"s":1,"k":"x","t":1,"d":{}',
    '"p":"0000000000000000","n":-7,"s":1,"k":"x","t":1,"d":{}}',
    '"p":"0000000000000000","n":7.5,"s":1,"k":"x","t":1,"d":{}}',
    '"p":"0000000000000000","n":7,"s":"1","k":"x","t":1,"d":{}}',
    '"p":"0000000000000000","n":7,"s":1,"k":"x","t":1,"e":{}}',
    '"p":"0000000000000000","n":7,"s":1,"k":["x"],"t":1,"d":{}}',
  ]) {
    expect(decodeLine(systemHash, signed(body))).toBeUndefined()
  }
  const broken = signed(whole)
  const invalid = new Uint8Array([...broken.subarray(0, -2), 0xff, 0xfe, 0x7d])
  expect(decodeLine(systemHash, invalid)).toBeUndefined()
})

test('R17: a line is at most 384 KiB, newline included', () => {
  const room = maxLineBytes - 256 - '{"x":""}'.length
  const text = encodeData('x', { x: 'a'.repeat(room) })
  const line = encodeLine(
    systemHash,
    { ...head, sequence: Number.MAX_SAFE_INTEGER, durableBytes: Number.MAX_SAFE_INTEGER },
    text,
  )
  expect(line.text.length).toBeLessThanOrEqual(maxLineBytes)
  expect(decodeLine(systemHash, withoutNewline(line.text))).toBeDefined()
  expect(() => encodeData('x', { x: 'a'.repeat(room + 1) })).toThrow(
    expect.objectContaining({ code: 'record_invalid' }),
  )
  expect(() => encodeData('x', { x: 'é'.repeat(room / 2 + 1) })).toThrow(
    expect.objectContaining({ code: 'record_invalid' }),
  )
  const over = encodeLine(systemHash, head, JSON.stringify('a'.repeat(maxLineBytes)))
  expect(decodeLine(systemHash, withoutNewline(over.text))).toBeUndefined()
})

test('robustness §2: a record kind is a short dotted name', () => {
  for (const kind of ['', 'A', 'a"', 'a.', '.a', 'a b', 'a'.repeat(65)]) {
    expect(() => encodeData(kind, {})).toThrow(expect.objectContaining({ code: 'record_invalid' }))
  }
  for (const kind of ['mark', 'x-note', 'nonce.reserved', 'snap.end'])
    expect(encodeData(kind, {})).toBe('{}')
})

const scalar = fc.oneof(
  fc.constantFrom(',"d":', ',"h":[', '"', '\\'),
  fc.stringMatching(/^[\x20-\x7e]{0,20}$/),
  fc.nat(),
  fc.boolean(),
)

test('T13: a line with a head gives both, or where only heads are asked for that alone; JSON alone reads it too', () => {
  fc.assert(
    fc.property(
      fc.array(scalar, { maxLength: 5 }),
      fc.jsonValue(),
      fc.string({ unit: 'binary', maxLength: 600 }),
      (parts, value, fill) => {
        const data = { value, fill }
        const headText = encodeHead(parts)
        const { text } = encodeLine(systemHash, head, encodeData('x', data, headText), headText)
        const bytes = withoutNewline(text)
        const stored = JSON.parse(JSON.stringify(data))
        expect(JSON.parse(text)).toMatchObject({ n: 7, h: parts })
        expect(decodeLine(systemHash, bytes)).toEqual({
          ...head,
          check: text.slice(6, 22),
          head: parts,
          data: stored,
        })
        const found = decodeLine(systemHash, bytes, true)
        expect(found).toEqual({
          ...head,
          check: text.slice(6, 22),
          head: parts,
          data: bytes.length > 512 ? undefined : stored,
        })
      },
    ),
  )
})

test('R11: where only heads are asked for, a line without one is read whole, and no flipped bit behind a head goes unnoticed', () => {
  const plain = withoutNewline(
    encodeLine(systemHash, head, encodeData('x', { x: 'é'.repeat(400), trap: [',"h":[1],"d":'] }))
      .text,
  )
  expect(decodeLine(systemHash, plain, true)).toEqual(decodeLine(systemHash, plain))
  const headText = encodeHead(['a', 1, true])
  const bytes = withoutNewline(
    encodeLine(systemHash, head, encodeData('x', { x: 'é'.repeat(400) }, headText), headText).text,
  )
  expect(decodeLine(systemHash, bytes, true)).toMatchObject({ head: ['a', 1, true] })
  for (let index = 0; index < bytes.length; index += 1) {
    const flipped = bytes.slice()
    flipped[index] = (flipped[index] ?? 0) ^ 1
    expect(decodeLine(systemHash, flipped, true)).toBeUndefined()
  }
})

test('R17: a head is at most 256 bytes of ASCII, and the longest line has room for it', () => {
  for (const parts of [['a'.repeat(300)], ['é'], ['\n\u007f']])
    expect(() => encodeHead(parts)).toThrow(expect.objectContaining({ code: 'record_invalid' }))
  const headText = encodeHead(['a'.repeat(200)])
  const room = maxLineBytes - 256 - headText.length - '{"x":""}'.length
  const text = encodeData('x', { x: 'a'.repeat(room) }, headText)
  const line = encodeLine(
    systemHash,
    { ...head, sequence: Number.MAX_SAFE_INTEGER, durableBytes: Number.MAX_SAFE_INTEGER },
    text,
    headText,
  )
  expect(line.text.length).toBeLessThanOrEqual(maxLineBytes)
  expect(() => encodeData('x', { x: 'a'.repeat(room + 1) }, headText)).toThrow(
    expect.objectContaining({ code: 'record_invalid' }),
  )
})
