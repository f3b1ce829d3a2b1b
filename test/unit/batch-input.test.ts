import fc from 'fast-check'
import { checkBatch, readBatch } from '#client/input/input'
import { type BatchFormat, type BatchSource, inputLimits, readIds } from '#client/input/rows'
import type { Hex } from '#ports'
import { testHash } from '#support/front'
import { refusal } from '#support/refusal'

const encode = (text: string) => new TextEncoder().encode(text)

const sourceOf = (content: string | Uint8Array, name = 'rows'): BatchSource => ({
  name,
  bytes: typeof content === 'string' ? encode(content) : content,
})

const rowsOf = async (content: string | Uint8Array, name?: string, format?: BatchFormat) => {
  const { rows, faults } = readBatch(sourceOf(content, name), format)
  faults.throwAny()
  return rows
}

const id = (n: number): Hex => `0x${n.toString(16).padStart(64, '0')}`
const wallet: Hex = `0x${'ab'.repeat(20)}`
const check = async (content: string, name?: string) => {
  const input = readBatch(sourceOf(content, name))
  const checked = await checkBatch(input, {
    hash: testHash,
    proposer: async () => wallet,
    questionOf: (identifier) =>
      identifier === 'pinned'
        ? id(1)
        : identifier.startsWith('0x')
          ? (identifier as Hex)
          : undefined,
  })
  input.faults.throwAny()
  return checked
}
const item = {
  identifier: id(1),
  proposer: wallet,
  proposed_price: '0',
  max_payment: '0',
  permit: { amount: '5', nonce: '7', deadline: 1_900_000_000 },
  signature: '0xabcd',
}

test('contract §6: NDJSON, a JSON array and CSV of the same rows come to the same, with the lines they begin on', async () => {
  const expected = [
    {
      kind: 'intent',
      identifier: id(1),
      outcome: 'p2',
      clientRef: 'a',
      amountRaw: 5n,
      nonce: 6n,
      deadlineSeconds: 1_900_000_000n,
    },
    { kind: 'intent', identifier: 'some-slug', outcome: 'p1', proposer: wallet },
  ]
  const one = {
    identifier: id(1),
    outcome: 'p2',
    client_ref: 'a',
    amount: '5',
    nonce: 6,
    deadline: 1_900_000_000,
  }
  const two = { identifier: 'some-slug', proposed_price: '0', proposer: wallet }
  const csv = `identifier,outcome,proposed_price,client_ref,amount,nonce,deadline,proposer\r\n${id(1)},p2,,a,5,6,1900000000,\r\nsome-slug,,0,,,,,${wallet}\r\n`
  expect(await rowsOf(`${JSON.stringify(one)}\n\n${JSON.stringify(two)}`)).toEqual([
    { line: 1, ...expected[0] },
    { line: 3, ...expected[1] },
  ])
  expect(await rowsOf(JSON.stringify([one, two], undefined, 2))).toEqual([
    { line: 2, element: 1, ...expected[0] },
    { line: 10, element: 2, ...expected[1] },
  ])
  expect(await rowsOf(csv)).toEqual([
    { line: 2, ...expected[0] },
    { line: 3, ...expected[1] },
  ])
  for (const text of [
    `${JSON.stringify(one)}\n${JSON.stringify(two)}`,
    JSON.stringify([one, two]),
    csv,
  ]) {
    expect((await check(text.replaceAll('some-slug', id(2)))).fingerprint).toBe(
      (await check(`${JSON.stringify(one)}\n${JSON.stringify({ ...two, identifier: id(2) })}`))
        .fingerprint,
    )
  }
})

test('contract §6: a byte order mark, CRLF, quoted commas, quotes and line ends are read', async () => {
  const csv = `\ufeffclient_ref,identifier,outcome\r\n"a, ""b""",${id(1)},p1\r\n-1 + 1,${id(2)},p2\r\n`
  expect(await rowsOf(csv)).toMatchObject([
    { clientRef: 'a, "b"', line: 2 },
    { clientRef: '-1 + 1', line: 3 },
  ])
  expect(await rowsOf(`\ufeff{"identifier":"x","outcome":"p1"}\r\n`)).toMatchObject([
    { identifier: 'x', line: 1 },
  ])
  // A control character is none of a reference; the record is whole all the same, and the next
  // one keeps its line.
  expect(
    (await refusal(rowsOf(`client_ref,identifier,outcome\n"a\nb",${id(1)},p1\n`))).detail,
  ).toContain('line 2: client_ref')
})

test('contract §6: a signed item keeps its exact bytes; in CSV its permit is spelled with dots', async () => {
  const spaced = JSON.stringify(item).replaceAll(':', ': ')
  expect(await rowsOf(spaced)).toEqual([
    { kind: 'item', line: 1, identifier: id(1), item, body: spaced },
  ])
  const csv = `identifier,proposer,proposed_price,max_payment,permit.amount,permit.nonce,permit.deadline,signature\n${id(1)},${wallet},0,0,5,7,1900000000,0xabcd\n`
  expect(await rowsOf(csv)).toEqual([
    { kind: 'item', line: 2, identifier: id(1), item, body: JSON.stringify(item) },
  ])
})

const refused =
  (name: string, code: string) =>
  (text: string, said: string): [string, string, string, string] => [text, name, code, said]
const badRow = refused('rows', 'invalid_row')
const badCsv = refused('rows.csv', 'invalid_csv')
test.each([
  [
    '{"identifier":"x","outcome":"p1"}\n{"identifier":"y","outc',
    'rows',
    'input_torn',
    'line 2: the last line is cut off',
  ],
  [
    '[{"identifier":"x","outcome":"p1"},{"identifier"',
    'rows',
    'input_torn',
    'closing ] is missing',
  ],
  badRow('{"identifier":"x","outcome":"p1"\n{}\n', 'line 1'),
  ['[{"identifier":"x","outcome":"p1"} {}]', 'rows', 'invalid_json_array', 'a syntax error'],
  badRow(
    '[{"identifier":"x","outcome":"p1","outcome":"p2"}]',
    'row 1: the row is not one JSON object: a key occurs twice',
  ),
  badRow('[1, 1.5]', 'row 2: the row is not one JSON object: a number is not a plain integer'),
  badRow('{"identifier":"x","outcome":"p1","price":"0"}', 'line 1: "price" is not a field'),
  badRow('{"identifier":"x","outcome":"p1","outcome":"p2"}\n', 'a key occurs twice'),
  badRow('{"identifier":"x"}', 'outcome is missing'),
  badRow('{"identifier":"x","outcome":"p4"}', 'outcome "p4" is none of p1, p2, p3'),
  badRow(
    '{"identifier":"x","outcome":"p1","proposed_price":"1000000000000000000"}',
    'say different things',
  ),
  badRow('{"identifier":"X","outcome":"p1"}', 'identifier is neither'),
  badRow(
    '{"identifier":"x","outcome":"p1","amount":"1e6"}',
    'amount is neither raw units in digits nor an amount such as 750usdc',
  ),
  badRow('{"identifier":"x","outcome":"p1","proposer":"0xAB"}', 'proposer is not an address'),
  badRow('{"version":{},"signature":"0xab"}', 'v1 payload'),
  badRow(JSON.stringify({ ...item, extra: 1 }), '"extra" is not a field of a signed item'),
  badRow(
    JSON.stringify({ ...item, permit: { ...item.permit, deadline: '1900000000' } }),
    '"permit.deadline"',
  ),
  badCsv('identifier,outcome,identifier\n', 'line 1: the header has the column identifier twice'),
  badCsv('identifier,out\n', 'the header has no column outcome'),
  badCsv('title,outcome\n', 'the header has no column identifier'),
  badCsv('identifier,outcome,ammount\n', 'a column "ammount": Did you mean amount?'),
  badCsv('identifier,outcome,Client Ref\n', 'a column "Client Ref": Did you mean client_ref?'),
  badCsv('identifier,outcome,note,note\n', 'the header has the column note twice'),
  [
    'client_ref,identifier,outcome\n=SUM(A1),x,p1\n',
    'rows.csv',
    'invalid_row',
    'line 2: client_ref holds a formula',
  ],
  [
    'identifier,outcome,title\nx,p1, =1+1\n',
    'rows.csv',
    'invalid_row',
    'line 2: title holds a formula',
  ],
  ['identifier,outcome,title\nx,p1,a\0b\n', 'rows.csv', 'invalid_row', 'line 2: title holds a NUL'],
  [
    'identifier,outcome\nx\n',
    'rows.csv',
    'invalid_row',
    'line 2: the row has 1 cell, the header has 2',
  ],
  badCsv('identifier,outcome\n"x,p1\n', 'line 2: a quote is never closed'),
  badCsv('identifier,outcome\n"x"y,p1\n', 'line 2: text follows a closing quote'),
  badCsv('identifier,outcome\nx"y",p1\n', 'line 2: a quote is inside a cell'),
  badRow('[1]', 'not one JSON object'),
])('robustness §6: %j is refused with its line and field', async (content, name, code, detail) => {
  const fault = await refusal(rowsOf(content, name))
  expect(fault.meta.exitCode).toBe(2)
  expect(fault.code).toBe(code)
  expect([fault.detail, ...(fault.meta.lines ?? [])].join('\n')).toContain(detail)
})

test('robustness §6: a row of 64 KiB is read, one of a byte more is refused with its place before it is parsed', async () => {
  const padded = (bytes: number) => {
    const text = '{"identifier":"x","outcome":"p1"}'
    return `${text.slice(0, -1)}${' '.repeat(bytes - text.length)}}`
  }
  expect(await rowsOf(`${padded(inputLimits.rowBytes)}\n`)).toHaveLength(1)
  for (const [content, place] of [
    [`\n${padded(inputLimits.rowBytes + 1)}\n`, 'line 2'],
    [`\n[${padded(100)}, {"identifier":"${'x'.repeat(inputLimits.rowBytes)}"}]`, 'row 2'],
  ] as const) {
    const fault = await refusal(rowsOf(content))
    expect(fault.code).toBe('row_too_long')
    expect(fault.detail).toContain(place)
  }
  expect((await refusal(rowsOf(`identifier,outcome\n"${'x'.repeat(66_000)}`, 'a.csv'))).code).toBe(
    'row_too_long',
  )
})

test('robustness §6: an input of more than 20,000 rows is refused', async () => {
  const many = `${JSON.stringify({ identifier: 'x', outcome: 'p1' })}\n`
  expect(await rowsOf(many.repeat(inputLimits.rows))).toHaveLength(20_000)
  expect(await refusal(rowsOf(many.repeat(inputLimits.rows + 1)))).toMatchObject({
    code: 'too_many_rows',
    detail: 'rows, line 20001: there are more than 20000 rows',
  })
})

test('contract §6: bytes that are no UTF-8 are refused with their line', async () => {
  const bytes = new Uint8Array([
    ...encode('{"identifier":"x","outcome":"p1"}\n{"a":"'),
    0xff,
    ...encode('"}\n'),
  ])
  expect((await refusal(rowsOf(bytes, 'a.ndjson'))).detail).toContain(
    'line 2: the row is not UTF-8',
  )
})

test('contract §6: property: rows of any text come out of each form as they went in', async () => {
  const row = fc.record({
    identifier: fc.integer({ min: 1, max: 99 }).map(id),
    client_ref: fc.string({ unit: fc.constantFrom('a', 'é', '"', ',', '\\', ' ', '🦀') }),
  })
  await fc.assert(
    fc.asyncProperty(
      fc.array(row, { minLength: 1, maxLength: 6 }),
      fc.constantFrom<BatchFormat>('ndjson', 'json', 'csv'),
      async (wanted, format) => {
        const cell = (text: string) => `"${text.replaceAll('"', '""')}"`
        const given = wanted.map((each) => ({ ...each, outcome: 'p1' }))
        const text =
          format === 'ndjson'
            ? given.map((each) => JSON.stringify(each)).join('\r\n')
            : format === 'json'
              ? JSON.stringify(given, undefined, 1)
              : [
                  'identifier,outcome,client_ref',
                  ...wanted.map((each) => `${each.identifier},p1,${cell(each.client_ref)}`),
                ].join('\n')
        const rows = await rowsOf(text, 'rows', format)
        const expected = wanted.map((each) => ({
          identifier: each.identifier,
          ...(format === 'csv' && each.client_ref === '' ? {} : { clientRef: each.client_ref }),
        }))
        expect(rows).toMatchObject(expected)
        expect(rows).toHaveLength(wanted.length)
      },
    ),
  )
})

describe('the whole input is checked before anything is signed', () => {
  const row = (n: number, more: object = {}) =>
    JSON.stringify({ identifier: id(n), outcome: 'p1', ...more })

  test('a client_ref, or a question of one proposer, that comes twice is refused with both lines', async () => {
    const refs = await refusal(
      check(`${row(1, { client_ref: 'a' })}\n${row(2)}\n${row(3, { client_ref: 'a' })}\n`),
    )
    expect(refs).toMatchObject({
      code: 'duplicate_row',
      detail: 'rows: lines 1 and 3 have the same client_ref',
      meta: { exitCode: 2 },
    })
    const questions = await refusal(
      check(`${row(2)}\n${row(1)}\n{"identifier":"pinned","outcome":"p2"}\n`),
    )
    expect(questions.detail).toBe('rows: lines 2 and 3 are the same question for the same proposer')
  })

  test('a row for another proposer than the account, a slug that is not pinned and an empty input are refused', async () => {
    expect(
      await refusal(check(`${row(1)}\n${row(2, { proposer: `0x${'cd'.repeat(20)}` })}\n`)),
    ).toMatchObject({ code: 'wrong_signer' })
    expect(await refusal(check('{"identifier":"other","outcome":"p1"}\n'))).toMatchObject({
      code: 'untrusted_slug',
    })
    expect(await refusal(check('\n\n'))).toMatchObject({ code: 'empty_input' })
  })
})

describe('ids of batch status', () => {
  const uuid = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`
  const idsOf = async (content: string, name?: string) => {
    const { ids, faults } = readIds(sourceOf(content, name), 'candidate_id')
    faults.throwAny()
    return ids.map((one) => one.id)
  }
  const result = (n: number) => ({
    client_ref: null,
    outcome: 'accepted',
    candidate: { candidate_id: uuid(n), status: 'received' },
  })
  const refused = {
    client_ref: 'x',
    outcome: 'rejected',
    candidate: null,
    error: { code: 'a', detail: 'b' },
  }

  test.each([
    ['bare lines', `${uuid(1)}\n\n${uuid(2)}\n`],
    ['a JSON array of strings', JSON.stringify([uuid(1), uuid(2)])],
    [
      'a JSON array of objects',
      JSON.stringify([{ candidate_id: uuid(1) }, { candidate_id: uuid(2) }]),
    ],
    ['CSV with a column', `status,candidate_id\nreceived,${uuid(1)}\nfailed,${uuid(2)}\n`],
    ['CSV of one column without a header', `${uuid(1)}\n${uuid(2)}`],
    [
      'lines of batch submit',
      [result(1), refused, result(2), { schema: 'proposer.batch/1', summary: {} }]
        .map((each) => JSON.stringify(each))
        .join('\n'),
    ],
    [
      'the document of batch submit',
      JSON.stringify(
        {
          schema: 'proposer.batch/1',
          results: [result(1), refused, result(2)],
          summary: { results: 3 },
        },
        undefined,
        2,
      ),
    ],
  ])('%s', async (_name, content) => {
    expect(await idsOf(content)).toEqual([uuid(1), uuid(2)])
  })

  test('an object without an id, and a line that is cut off, are refused', async () => {
    expect((await refusal(idsOf('{"a":1}\n'))).detail).toContain(
      'line 1: the row has no candidate_id',
    )
    expect((await refusal(idsOf(`"${uuid(1)}"\n{"cand`, 'a.ndjson'))).detail).toContain(
      'line 2: the last line is cut off',
    )
    expect((await refusal(idsOf('{"schema":"x","results":[{"candidate"'))).code).toBe('input_torn')
  })
})
