import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { askHidden, confirm } from '#commands/session/inputs'
import { parseDeadline } from '#commands/session/intent'
import {
  amountText,
  dateText,
  fields,
  fold,
  jsonText,
  publicUrl,
  visible,
} from '#commands/terminal/render'
import { defaultHome } from '#io/home'
import { fakeContext } from '#support/cli'

/** Everything that can move a cursor, hide or reorder text (robustness §5). */
const dangerous = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/

test('R20: no outside text holds a character that acts on a terminal once it is made visible', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary', maxLength: 60 }),
      (text) => !dangerous.test(visible(text)),
    ),
  )
  expect(visible('a\u001b[2J\u202eb\ud800')).toBe('a\\u001b[2J\\u202eb\\ud800')
  expect(visible('Atlético — 東京 🙂')).toBe('Atlético — 東京 🙂')
})

test('R20: JSON parses to the same data whatever text it holds, and holds no dangerous character', () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' })),
      fc.constantFrom(0 as const, 2 as const),
      (data, indent) => {
        const printed = jsonText(data, indent)
        expect(JSON.parse(printed)).toEqual(data)
        expect(dangerous.test(printed.replaceAll('\n', ''))).toBe(false)
      },
    ),
  )
})

test('contract §6: no line of fields is longer than the terminal unless one word is', () => {
  const label = fc.constantFrom('a', 'question', 'signed proposer')
  const value = fc
    .array(fc.string({ minLength: 1, maxLength: 30, unit: 'grapheme-ascii' }), {
      minLength: 1,
      maxLength: 12,
    })
    .map((words) => words.join(' '))
  fc.assert(
    fc.property(
      fc.array(fc.tuple(label, value), { maxLength: 5 }),
      fc.integer({ min: 40, max: 100 }),
      (rows, columns) => {
        for (const line of fields(rows, columns).split('\n')) {
          const words = line.trim().split(' ')
          expect(line.length <= columns || words.length === 1).toBe(true)
        }
      },
    ),
  )
})

test('fold keeps every word in order', () => {
  fc.assert(
    fc.property(
      fc.array(fc.stringMatching(/^\w{1,12}$/)),
      fc.integer({ min: 20, max: 60 }),
      (words, columns) => {
        const lines = fold(words.join(' '), columns, '  ').split('\n')
        expect(
          lines.flatMap((line) => line.trim().split(' ')).filter((word) => word !== ''),
        ).toEqual(words)
      },
    ),
  )
})

test('amounts keep every digit that counts', () => {
  const token = { decimals: 6, symbol: 'USDC.e' }
  expect(amountText('750000000', token)).toBe('750 USDC.e')
  expect(amountText('750500000', token)).toBe('750.5 USDC.e')
  expect(amountText('1', token)).toBe('0.000001 USDC.e')
  expect(amountText('0', token)).toBe('0 USDC.e')
  expect(amountText('7', { decimals: 0, symbol: 'X' })).toBe('7 X')
  expect(amountText('750000000')).toBe('750000000 (raw units)')
})

test('a deadline no calendar holds is shown as its number', () => {
  expect(dateText('1760000000')).toBe('2025-10-09 08:53:20Z (unix 1760000000)')
  expect(dateText(String(2n ** 255n))).toBe(String(2n ** 255n))
})

test('R5: of a URL only scheme and host are shown', () => {
  expect(publicUrl('https://node.example')).toBe('https://node.example')
  expect(publicUrl('https://u:p@node.example:8545/v2/key?a=b#c')).toBe(
    'https://node.example:8545/…',
  )
  expect(publicUrl('secret')).toBe('(not a URL)')
})

test('contract §6: spans count from now, digits alone are unix seconds', () => {
  expect(parseDeadline('90m', 1_000_500)).toBe(1000n + 5400n)
  expect(parseDeadline('45s', 0)).toBe(45n)
  expect(parseDeadline('2h', 0)).toBe(7200n)
  expect(parseDeadline('1d', 0)).toBe(86_400n)
  expect(parseDeadline('1760000000', 5)).toBe(1_760_000_000n)
  expect(parseDeadline(undefined, 5)).toBeUndefined()
})

test.each(['', '-5', '1.5h', '90 m', 'h', '1w', '9999999999999'])(
  'contract §6: "%s" is no deadline',
  (text) => {
    expect(() => parseDeadline(text, 0)).toThrow('neither Unix seconds nor a duration')
  },
)

describe('folders', () => {
  test("contract §7: the platform's data folder", () => {
    expect(defaultHome('linux', {}, '/home/u')).toBe('/home/u/.local/share/proposer')
    expect(defaultHome('linux', { XDG_DATA_HOME: '/data' }, '/home/u')).toBe('/data/proposer')
    expect(defaultHome('linux', { XDG_DATA_HOME: 'relative' }, '/home/u')).toBe(
      '/home/u/.local/share/proposer',
    )
    expect(defaultHome('darwin', {}, '/Users/u')).toBe(
      '/Users/u/Library/Application Support/proposer',
    )
  })
})

describe('prompts', () => {
  /** A terminal on which keys are typed only once the prompt stands there. */
  function terminal(keys: readonly string[]) {
    const { context, stderr } = fakeContext('/nowhere', { interactive: true })
    const stdin = new PassThrough()
    const modes: boolean[] = []
    const raw = Object.assign(stdin, { isTTY: true, setRawMode: (on: boolean) => modes.push(on) })
    const pending = [...keys]
    const typing = {
      ...stderr,
      write: (text: string) => {
        stderr.written.push(text)
        const next = text === '\n' ? undefined : pending.shift()
        if (next !== undefined) setImmediate(() => stdin.write(next))
      },
    }
    return {
      context: { ...context, stdin: raw, streams: { ...context.streams, stderr: typing } },
      modes,
      written: stderr.written,
    }
  }

  test('robustness §6: hidden input is read raw, takes back what backspace says, and is never echoed', async () => {
    const { context, modes, written } = terminal(['sex\u007fcret\r', 'again\n'])
    expect(await askHidden(context, 'Password: ', '--password-file')).toBe('secret')
    expect(await askHidden(context, 'Again: ', '--password-file')).toBe('again')
    expect(modes).toEqual([true, false, true, false])
    expect(written.join('')).toBe('Password: \nAgain: \n')
  })

  test('contract §6: Ctrl-C at a prompt exits 130, Ctrl-D leaves it unanswered with exit 2', async () => {
    await expect(
      askHidden(terminal(['ab\u0003']).context, 'Password: ', '-'),
    ).rejects.toMatchObject({
      code: 'interrupted',
      meta: { exitCode: 130 },
    })
    await expect(askHidden(terminal(['\u0004']).context, 'Password: ', '-')).rejects.toMatchObject({
      code: 'declined',
      meta: { exitCode: 2 },
    })
  })

  test.each(['', 'n', 'no', 'yesterday'])(
    'contract §6: the answer "%s" declines',
    async (answer) => {
      await expect(
        confirm(terminal([`${answer}\n`]).context, 'Go on?', false),
      ).rejects.toMatchObject({ code: 'declined' })
    },
  )

  test.each(['y', 'Y', 'yes', ' yes '])('contract §6: the answer "%s" agrees', async (answer) => {
    await expect(
      confirm(terminal([`${answer}\n`]).context, 'Go on?', false),
    ).resolves.toBeUndefined()
  })
})
