import * as fc from 'fast-check'
import { getAddress } from 'viem'
import { checksummed, givenAddress, lowercaseAddresses } from '#protocol/address'
import { amountText, parseAmount, toRaw, unitOf } from '#protocol/amount'
import { durationMs, spanMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'

function codeOf(act: () => unknown): string | undefined {
  try {
    act()
    return undefined
  } catch (error) {
    if (error instanceof UsageError) return error.code
    throw error
  }
}

const symbols = ['USDC.e', 'USDC', 'pUSD', 'WETH', 'raX', 'Dai1']
const symbol = fc.constantFrom(...symbols)
const decimals = fc.integer({ min: 0, max: 36 })
const read = (text: string, tokens: readonly { symbol: string; decimals: number }[]) =>
  toRaw(parseAmount(text, '--amount'), tokens).raw

test('what is shown is read back as the same raw amount, with 0 to 36 decimals', async () => {
  await fc.assert(
    fc.property(fc.bigInt(0n, 2n ** 200n), decimals, symbol, (raw, places, name) => {
      const token = { symbol: name, decimals: places }
      const [number = ''] = amountText(String(raw), token).replaceAll(',', '').split(' ')
      expect(read(`${number}${unitOf(token)}`, [token])).toBe(raw)
      expect(read(`${raw}raw`, [token])).toBe(raw)
      expect(read(`${raw}raw`, [])).toBe(raw)
    }),
  )
})

test('thousands are told apart, and only before the point', () => {
  const usdc = { symbol: 'USDC.e', decimals: 6 }
  expect(amountText('1234567890123456', usdc)).toBe('1,234,567,890.123456 USDC.e')
  expect(amountText('999000000', usdc)).toBe('999 USDC.e')
  expect(amountText('1', { symbol: 'X', decimals: 7 })).toBe('0.0000001 X')
  expect(amountText('1234', { symbol: 'X', decimals: 0 })).toBe('1,234 X')
})

test('every unit but that of the token is refused', async () => {
  await fc.assert(
    fc.property(
      symbol,
      fc.oneof(symbol, fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/)),
      decimals,
      (name, other, places) => {
        const token = { symbol: name, decimals: places }
        const unit = unitOf({ symbol: other, decimals: 0 })
        fc.pre(unit !== unitOf(token) && unit !== 'raw')
        expect(codeOf(() => read(`7${unit}`, [token]))).toBe('unknown_unit')
        expect(codeOf(() => read(`7${unit}`, []))).toBe('unknown_unit')
      },
    ),
  )
})

test('more decimals than the token has are refused, also where they are zeros', async () => {
  await fc.assert(
    fc.property(decimals, fc.integer({ min: 1, max: 20 }), (places, more) => {
      const token = { symbol: 'USDC.e', decimals: places }
      expect(codeOf(() => read(`1.${'0'.repeat(places + more)}usdc`, [token]))).toBe(
        'too_many_decimals',
      )
    }),
  )
  expect(codeOf(() => read('0.5raw', []))).toBe('too_many_decimals')
})

test('a bare number is refused in a flag and raw units elsewhere', async () => {
  await fc.assert(
    fc.property(fc.bigInt(0n, 2n ** 256n - 1n), (raw) => {
      expect(codeOf(() => parseAmount(String(raw), '--amount'))).toBe('unit_missing')
      expect(toRaw(parseAmount(String(raw), 'max-amount', true), []).raw).toBe(raw)
    }),
  )
})

test('two tokens of one name: taken where their decimals are the same, else refused', () => {
  const [one, same, other] = [
    { symbol: 'USDC.e', decimals: 6 },
    { symbol: 'USDC', decimals: 6 },
    { symbol: 'usdc.x', decimals: 18 },
  ]
  expect(toRaw(parseAmount('1usdc', '--amount'), [one, same]).tokens).toEqual([one, same])
  expect(codeOf(() => read('1usdc', [one, other]))).toBe('unknown_unit')
})

test.each(['', '-1raw', '+1raw', '01usdc', '.5usdc', '5.usdc', '1,000usdc', '1e3', '0x1raw'])(
  'malformed: %j',
  (text) => {
    const token = { symbol: 'USDC.e', decimals: 6 }
    expect(codeOf(() => read(text, [token]))).toMatch(/^(bad_number|unknown_unit)$/)
  },
)

test('2^256 and more is refused, in raw units and in tokens', () => {
  const token = { symbol: 'USDC.e', decimals: 6 }
  expect(codeOf(() => read(`${2n ** 256n}raw`, []))).toBe('bad_number')
  expect(codeOf(() => read(`${2n ** 250n}usdc`, [token]))).toBe('bad_number')
})

const address = fc
  .uint8Array({ minLength: 20, maxLength: 20 })
  .map((bytes) => `0x${Buffer.from(bytes).toString('hex')}` as const)
test('EIP-55 as viem writes it; lowercase and checksum are one address', async () => {
  await fc.assert(
    fc.property(address, (lower) => {
      expect(checksummed(lower)).toBe(getAddress(lower))
      for (const text of [lower, getAddress(lower)]) expect(givenAddress(text)).toBe(lower)
    }),
  )
})

test('every flip of the case of one letter of a checksum is refused', async () => {
  await fc.assert(
    fc.property(address, (lower) => {
      const right = getAddress(lower)
      for (const [index, letter] of [...right].entries()) {
        if (index < 2 || !/[a-f]/i.test(letter)) continue
        const flipped =
          letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase()
        const wrong = `${right.slice(0, index)}${flipped}${right.slice(index + 1)}`
        // Without a capital there is no checksum.
        if (wrong === lower) continue
        expect(codeOf(() => givenAddress(wrong))).toBe('invalid_address')
        expect(lowercaseAddresses({ a: [wrong] })).toEqual({ a: [wrong] })
      }
    }),
  )
})

test('JSON: values and keys in lowercase, and nothing else of it changes', async () => {
  await fc.assert(
    fc.property(fc.jsonValue(), address, (json, lower) => {
      const right = getAddress(lower)
      expect(lowercaseAddresses({ json, [right]: { to: right } })).toEqual({
        json: lowercaseAddresses(json),
        [lower]: { to: lower },
      })
      expect(lowercaseAddresses(json)).toEqual(json)
    }),
  )
})

test.each(['', '0x', `0X${'ab'.repeat(20)}`, `0x${'ab'.repeat(21)}`, `0x${'zz'.repeat(20)}`])(
  'no address: %j',
  (text) => expect(codeOf(() => givenAddress(text))).toBe('invalid_address'),
)

const part = fc.integer({ min: 0, max: 999 })
test('days, hours, minutes and seconds, each once and in this order', async () => {
  await fc.assert(
    fc.property(part, part, part, part, (d, h, m, s) => {
      const ms = (((d * 24 + h) * 60 + m) * 60 + s) * 1000
      expect(durationMs(`${d}d${h}h${m}m${s}s`)).toBe(ms)
      expect(spanMs(`${d}d${h}h${m}m${s}s`)).toBe(ms)
      expect(durationMs(`${h}h${m}m`)).toBe((h * 60 + m) * 60_000)
      expect(durationMs(String(s))).toBe(s * 1000)
      expect(spanMs(String(s))).toBeUndefined()
    }),
  )
})

test.each(['', 'm', '90', '1.5h', '30m2h', '2h2h', '2h 30m', '-5m', '5M', '2h30', '1w', '1e3s'])(
  'no span: %j',
  (text) => expect(spanMs(text)).toBeUndefined(),
)
