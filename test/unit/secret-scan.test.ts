import fc from 'fast-check'
import { findSecrets, type Secret, urlCredentials } from '#client/support/secret-scan'
import { concealing, urlSecrets } from '#protocol/url-secrets'

const secret = (text: string): readonly Secret[] => [{ kind: 'a password', text }]
const id = `0x${'ab'.repeat(32)}`

test('R5: a planted secret is found, wherever it stands, and only its field and kind are told', () => {
  fc.assert(
    fc.property(
      fc
        .string({ minLength: 6, maxLength: 40 })
        .filter((text) => text.trim() === text && !/^[\d.]+$/.test(text)),
      fc.constantFrom<(text: string) => string>(
        (text) => text,
        (text) => text.toUpperCase(),
      ),
      fc.constantFrom<(text: string) => unknown>(
        (text) => ({ row: [{ client_ref: text }] }),
        (text) => [`before ${text} after`],
      ),
      (text, form, place) => {
        const found = findSecrets(place(form(text)), secret(text))
        expect(found.map(({ kind }) => kind)).toEqual(['a password'])
        expect(JSON.stringify(found)).not.toContain(form(text))
      },
    ),
    { seed: 1, numRuns: 500, examples: [] },
  )
})

test('R5: a public id that is also a secret stays a secret; a short secret counts where it stands alone', () => {
  expect(findSecrets({ question_id: id.slice(2) }, [{ kind: 'a key', text: id }])).toEqual([
    { field: 'question_id', kind: 'a key' },
  ])
  expect(findSecrets(['passable'], secret('pass'))).toEqual([])
  expect(findSecrets(['my pass, here'], secret('pass'))).toHaveLength(1)
  expect(findSecrets([''], secret(''))).toEqual([])
})

test('R5: the words of the program itself are no findings: enumerations, versions, hosts', () => {
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
    gateway: { paused: { why: 'planted' } },
  }
  const words = ['polygon', 'PROPOSER', 'environment', 'v20.18.1', 'accepted', '202', 'planted']
  const found = words.filter((text) => findSecrets(document, [{ kind: 'a word', text }]).length > 0)
  expect(found).toEqual(['planted'])
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
