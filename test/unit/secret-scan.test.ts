/** The last look at a document before it is given away (R5). */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isOurs } from '../../src/core/client/support/own-words.js'
import { findSecrets, type Secret } from '../../src/core/client/support/secret-scan.js'
import { urlCredentials } from '../../src/core/client/support/url-credentials.js'
import { concealing, urlSecrets } from '../../src/core/protocol/url-secrets.js'

const nothing: ReadonlySet<string> = new Set()
const secret = (text: string): readonly Secret[] => [{ kind: 'a password', text }]
const id = `0x${'ab'.repeat(32)}`

test('R5: a planted secret is found in every form, wherever it stands, and only its field and kind are told', () => {
  fc.assert(
    fc.property(
      fc
        .string({ minLength: 6, maxLength: 40 })
        .filter((text) => text.trim() === text && !/^[\d.]+$/.test(text)),
      fc.constantFrom<(text: string) => string>(
        (text) => text,
        (text) => text.toUpperCase(),
        encodeURIComponent,
        (text) => Buffer.from(text).toString('base64'),
        (text) => Buffer.from(text).toString('base64url'),
        (text) => Buffer.from(text).toString('hex'),
      ),
      fc.constantFrom<(text: string) => unknown>(
        (text) => ({ row: [{ client_ref: text }] }),
        (text) => ({ [text]: 1 }),
        (text) => [`before ${text} after`],
      ),
      (text, form, place) => {
        const found = findSecrets(place(form(text)), secret(text), nothing)
        expect(found.map(({ kind }) => kind)).toEqual(['a password'])
        expect(JSON.stringify(found)).not.toContain(form(text))
      },
    ),
    { seed: 1, numRuns: 500, examples: [] },
  )
})

test('R5: hex longer than an address is a finding unless it is an id of the document; decimals are none', () => {
  const at = (text: string, ids: ReadonlySet<string> = nothing) =>
    findSecrets({ a: { b: text } }, [], ids)
  expect(at(id, new Set([id]))).toEqual([])
  expect(at(id.toUpperCase().replace('0X', '0x'), new Set([id]))).toEqual([])
  expect(at(id)).toEqual([{ field: 'a.b', kind: 'hex that may be a key, a token or a signature' }])
  expect(at(id.slice(2))).toHaveLength(1)
  expect(at(`${id}ab`, new Set([id]))).toHaveLength(1)
  expect(at(`0x${'1'.repeat(64)}`)).toHaveLength(1)
  expect(at(`0x${'1'.repeat(40)}`)).toEqual([])
  expect(at(String(2n ** 256n - 1n))).toEqual([])
})

test('R5: a public id that is also a secret stays a secret; a short secret counts where it stands alone', () => {
  expect(findSecrets({ question_id: id }, [{ kind: 'a key', text: id }], new Set([id]))).toEqual([
    { field: 'question_id', kind: 'a key' },
  ])
  expect(findSecrets(['passable'], secret('pass'), nothing)).toEqual([])
  expect(findSecrets(['my pass, here'], secret('pass'), nothing)).toHaveLength(1)
  expect(findSecrets([''], secret(''), nothing)).toEqual([])
})

test('R5: the words of the program itself are no findings: fixed key names, enumerations, versions, hosts', () => {
  const document = {
    question_id: 'a',
    settings: [
      {
        key: 'rpc-url',
        value: { url: 'https://polygon-mainnet.example', removed: ['path'] },
        from: 'PROPOSER_RPC_URL',
        origin: 'environment',
      },
    ],
    versions: { node: 'v20.18.1' },
    journal: {
      authorizations: [{ state: 'accepted', attempts: [{ class: 'accepted', http_status: 202 }] }],
    },
    gateway: { running: { metrics: { 'build{word="planted"}': 1 } } },
  }
  const words = [
    'question_id',
    'polygon',
    'PROPOSER',
    'environment',
    'v20.18.1',
    'accepted',
    '202',
    'planted',
  ]
  const found = (ours?: typeof isOurs) =>
    words.filter(
      (text) => findSecrets(document, [{ kind: 'a word', text }], nothing, ours).length > 0,
    )
  expect(found()).toEqual(words.filter((word) => word !== '202'))
  expect(found(isOurs)).toEqual(['planted'])
})

test('R5: a key is found as hex, in base64 of its bytes, as a decimal, and cut by spaces, dashes or line ends', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 32, maxLength: 32 }).filter((bytes) => (bytes[0] ?? 0) > 15),
      fc.boolean(),
      fc.constantFrom<(hex: string) => string>(
        (hex) => hex,
        (hex) => Buffer.from(hex, 'hex').toString('base64'),
        (hex) => Buffer.from(hex, 'hex').toString('base64url'),
        (hex) => BigInt(`0x${hex}`).toString(),
        (hex) => `${hex.slice(0, 32)} ${hex.slice(32)}`,
        (hex) => (hex.match(/.{1,8}/g) ?? []).join('-'),
        (hex) => (hex.match(/.{2}/g) ?? []).join(':'),
        (hex) => `0x${hex.slice(0, 20)}\n${hex.slice(20)}`,
      ),
      (bytes, isPrefixed, form) => {
        const hex = Buffer.from(bytes).toString('hex')
        const found = findSecrets(
          [`x ${form(hex)} y`],
          [{ kind: 'a key', text: isPrefixed ? `0x${hex}` : hex }],
          nothing,
        )
        expect(found.map(({ kind }) => kind)).toEqual(['a key'])
      },
    ),
    { seed: 1, numRuns: 500 },
  )
})

test('R5: of a URL what looks like a credential counts: passwords, lone users, long or mixed parts; plain words of the path do not', () => {
  const of = (...urls: string[]) => urlCredentials(urls)
  expect(
    of('https://gateway.example/proposer', 'https://rpc.example/polygon/v2?retry=1&chain=polygon'),
  ).toEqual([])
  expect(of('https://admin:p%40ss@node.example')).toEqual(
    expect.arrayContaining(['p%40ss', 'p@ss', btoa('admin:p@ss')]),
  )
  expect(of('https://admin:pw@node.example')).not.toContain('admin')
  expect(of('https://lonely@node.example')).toEqual(['lonely'])
  expect(of('https://k3yk3y:x@node.example')).toContain('k3yk3y')
  expect(of('https://node.example/v2/abcdefghijklmnop')).toEqual(['abcdefghijklmnop'])
  expect(of('https://node.example/v2/abc123')).toEqual(['abc123'])
  expect(of('https://node.example/?key=abc&apikey=word#fragment-of-one')).toEqual(
    expect.arrayContaining(['word', 'fragment-of-one']),
  )
  expect(of('https://node.example/?session=abcdefgh')).toEqual(['abcdefgh'])
  expect(of('topsecretuser:topsecretword@node.example')).toEqual(
    expect.arrayContaining([
      'topsecretword',
      'topsecretuser',
      'topsecretuser:topsecretword@node.example',
    ]),
  )
  expect(of('token:abc')).toEqual(['token:abc'])
  expect(of('')).toEqual([])
})

test('R5: of a URL everything but scheme, host, port and short words of the path is secret, decoded too', () => {
  const url = 'https://user:p%40ss@node.example:8545/v2/PATHSECRET?key=QUERY%20SECRET#FRAGMENT'
  expect(urlSecrets([url, 'no url'])).toEqual(
    expect.arrayContaining([
      'user',
      'p%40ss',
      'p@ss',
      'PATHSECRET',
      'QUERY%20SECRET',
      'QUERY SECRET',
      'FRAGMENT',
      btoa('user:p@ss'),
    ]),
  )
  expect(urlSecrets([url])).not.toContain('v2')
  expect(concealing([url])('at node.example: pathsecret, QUERY SECRET for user')).toBe(
    'at node.example: [hidden], [hidden] for [hidden]',
  )
  expect(concealing(['https://node.example'])('nothing is hidden')).toBe('nothing is hidden')
})
