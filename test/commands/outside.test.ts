import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { privateKeyToAccount } from 'viem/accounts'
import { type Argv, answerOf, errorOf, type RunOptions, run } from '#support/cli'
import { type Desk, key, openDesk, proposer, sign } from '#support/desk'
import { bondRaw, pins } from '#support/scripted-gateway'
import {
  honestWallet,
  startWallet,
  type Wallet,
  type WalletDocument,
  type WalletServer,
} from '#support/wallet-server'

const account = privateKeyToAccount(key)
const stranger = `0x${'22'.repeat(32)}` as const

let { home, gateway, env } = {} as Desk
const servers: WalletServer[] = []
beforeEach(async () => {
  ;({ home, gateway } = await openDesk())
  env = { PROPOSER_GATEWAY: gateway.url }
})
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, argv, { env, fetch: gateway.fetch, ...more })
const listed = async () =>
  answerOf(await ask('journal list --json')).authorizations as Record<string, unknown>[]
async function wallet(answers: Wallet): Promise<WalletServer> {
  const server = await startWallet(answers)
  servers.push(server)
  return server
}

test('§9: -v shows what the wallet is asked and answers, without the signature and the path', async () => {
  const { url } = await wallet(honestWallet(key))
  const ran = await ask([...sign, '--signer', `${url}/secretpath`, '-v'])
  expect(ran.code).toBe(0)
  const { payload } = JSON.parse(ran.stdout) as { payload: { signature: string } }
  expect(ran.stderr).toMatch(/^> POST http:\/\/127\.0\.0\.1:\d+\/… .*eth_signTypedData_v4/m)
  expect(ran.stderr).toMatch(/^< 200 in \d+ ms .*\(65 bytes\)/m)
  expect(ran.stderr).not.toContain(payload.signature.slice(12, 40))
  expect(ran.stderr).not.toContain('secretpath')
})

test('a wallet gets EIP-712 data that we built, and its signature is journaled and sent like any other', async () => {
  const { url, asked } = await wallet(honestWallet(key))
  const signed = answerOf(await ask([...sign, '--signer', url]))
  expect(signed).toMatchObject({
    signer: proposer,
    payload: { permit: { amount: bondRaw }, outcome: 'p2' },
  })
  expect(asked.map(({ method }) => method)).toEqual(['eth_accounts', 'eth_signTypedData_v4'])
  const document = JSON.parse(String(asked[1]?.params[1]))
  expect(document).toMatchObject({
    primaryType: 'PermitWitnessTransferFrom',
    domain: { name: 'Permit2', chainId: pins.chain_id, verifyingContract: pins.permit2 },
    message: {
      spender: pins.signed_proposer,
      witness: { oracle: pins.oracles[0], maxPayment: '0' },
    },
  })
  expect(document.types.EIP712Domain).toHaveLength(3)
  const sent = answerOf(
    await ask(['submit', 'will-it-hold', '--outcome', 'p2', '--json', '--signer', url]),
  )
  expect(sent).toMatchObject({ journal_id: signed.journal_id, outcome: 'accepted' })
  expect(asked.filter(({ method }) => method === 'eth_signTypedData_v4')).toHaveLength(1)
})

test('domain §3.3: a wallet that ends with v 0 or 1 is put right, 64 bytes are taken, and upper case is lowered', async () => {
  const v01 = (signature: string) =>
    `${signature.slice(0, 130)}${signature.endsWith('1b') ? '00' : '01'}`
  const compact = (signature: string) => {
    const s = BigInt(`0x${signature.slice(66, 130)}`) | (signature.endsWith('1c') ? 1n << 255n : 0n)
    return `0x${signature.slice(2, 66)}${s.toString(16).padStart(64, '0')}`
  }
  const upper = (signature: string) => `0x${signature.slice(2).toUpperCase()}`
  for (const [change, shape] of [
    [v01, /^0x[0-9a-f]{128}1[bc]$/],
    [compact, /^0x[0-9a-f]{128}$/],
    [upper, /^0x[0-9a-f]{128}1[bc]$/],
  ] as const) {
    const { url } = await wallet(honestWallet(key, change))
    const open = (await listed()).find(({ superseded_by }) => superseded_by === null)
    const supersede = open === undefined ? [] : ['--supersede', String(open.journal_id)]
    const { payload } = answerOf(await ask([...sign, '--signer', url, ...supersede]))
    expect((payload as { signature: string }).signature).toMatch(shape)
  }
})

const hostile: readonly [what: string, answers: Wallet, code: string, exitCode: number][] = [
  ['a signature by another key', withAccounts(honestWallet(stranger)), 'bad_signature', 2],
  [
    'a signature of other data',
    honestWallet(key, () => `0x${'3'.repeat(128)}1b`),
    'bad_signature',
    2,
  ],
  ['garbage', honestWallet(key, () => 'yes, of course'), 'bad_signature', 2],
  [
    'an odd number of digits',
    honestWallet(key, (signature) => `${signature}0`),
    'bad_signature',
    2,
  ],
  ['no text at all', honestWallet(key, () => ({ evil: true })), 'signer_answer', 2],
  ['no JSON', withAccounts(async () => ({ raw: '<html>' })), 'signer_answer', 2],
  ['a megabyte', withAccounts(async () => ({ raw: 'x'.repeat(1024 * 1024) })), 'signer_answer', 2],
  [
    'a refusal',
    withAccounts(async () => ({ error: { code: 4001, message: 'User denied \u001b[2J' } })),
    'signer_refused',
    2,
  ],
  ['no such method', withAccounts(async () => undefined), 'signer_refused', 2],
  [
    'a cut connection',
    withAccounts(async () => {
      throw new Error('cut')
    }),
    'signer_lost',
    75,
  ],
]
test.each(hostile)(
  'R9: a wallet that answers with %s leaves nothing behind that could be sent',
  async (_what, answers, code, exitCode) => {
    const { url } = await wallet(answers)
    const ran = await ask([...sign, '--signer', url])
    expect(ran.code).toBe(exitCode)
    expect(errorOf(ran)).toMatchObject({ code, hint: expect.stringMatching(/\w/) })
    expect(ran.stdout).toBe('')
    expect(ran.stderr).not.toContain('\u001b')
    // One that may sign yet keeps its question (R8).
    expect((await listed()).map(({ state }) => state)).toEqual(
      code === 'signer_lost' ? ['offered'] : [],
    )
    // A good wallet signs for the same answer: anew, or where the first may sign yet, the very
    // same document.
    expect(
      answerOf(await ask([...sign, '--signer', (await wallet(honestWallet(key))).url])),
    ).toMatchObject({ signer: proposer })
  },
)

test('contract §7: of several accounts --proposer names one; without it, exit 2 names the flag', async () => {
  const honest = honestWallet(key)
  const { url } = await wallet(async (asked) =>
    asked.method === 'eth_accounts'
      ? { result: [account.address, privateKeyToAccount(stranger).address] }
      : honest(asked),
  )
  expect(errorOf(await ask([...sign, '--signer', url]))).toMatchObject({
    code: 'proposer_needed',
    exit_code: 2,
    hint: expect.stringContaining('--proposer'),
  })
  expect(
    answerOf(await ask([...sign, '--signer', url, '--proposer', account.address])),
  ).toMatchObject({ signer: proposer })
})

test.each([
  [['--signer', 'http://wallet.example'], 'invalid_signer_url'],
  [['--signer', 'https://me:secret@wallet.example'], 'invalid_signer_url'],
  [['--signer', 'ftp://127.0.0.1'], 'invalid_signer_url'],
  [['--signer', 'http://127.0.0.1:1', '--account', 'hot'], 'two_signers'],
  [['--proposer', '0x12'], 'bad_proposer'],
])('robustness §6: %j exits 2 with %s and shows no credential', async (more, code) => {
  const ran = await ask([...sign, ...more])
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code })
  expect(ran.stderr).not.toContain('secret')
})

/** An honest list of accounts before whatever else. */
function withAccounts(rest: Wallet): Wallet {
  return async (asked) =>
    asked.method === 'eth_accounts' ? { result: [account.address] } : rest(asked)
}

const give = ['sign', 'will-it-hold', '--outcome', 'p2', '--typed-data', '--proposer', proposer]
const signedBy = (document: string, by = account) =>
  by.signTypedData(JSON.parse(document) as WalletDocument)

test('contract §6: the document goes out alone on stdout, and its signature comes back as the payload', async () => {
  const given = await ask(give)
  expect(given.code).toBe(0)
  expect(given.stderr).toContain('--signature')
  const signature = await signedBy(given.stdout)
  const signed = answerOf(await ask(['sign', 'will-it-hold', '--signature', signature, '--json']))
  expect(signed).toMatchObject({
    schema: 'proposer.signed/1',
    signer: proposer,
    payload: { signature },
    reused: false,
  })
  const sent = answerOf(await ask(`submit will-it-hold --outcome p2 --proposer ${proposer} --json`))
  expect(sent).toMatchObject({ journal_id: signed.journal_id, outcome: 'accepted' })
})

test('R6, R8: what was given out keeps its nonce and its question until its signature is here', async () => {
  const first = answerOf(await ask([...give, '--json']))
  expect(first).toMatchObject({ schema: 'proposer.typed-data/1', proposer, reused: false })
  const again = answerOf(await ask([...give, '--json']))
  expect(again).toMatchObject({
    journal_id: first.journal_id,
    typed_data: first.typed_data,
    reused: true,
  })
  const other = await ask(
    `sign will-it-hold --outcome p1 --typed-data --proposer ${proposer} --json`,
  )
  expect(other.code).toBe(5)
  expect(errorOf(other)).toMatchObject({
    code: 'authorization_open',
    hint: expect.stringContaining(String(first.journal_id)),
  })
  writeFileSync(join(home, 'key'), key, { mode: 0o600 })
  env = { ...env, PROPOSER_KEY_FILE: join(home, 'key') }
  expect((await ask('sign will-it-hold --outcome p1 --json')).code).toBe(5)
  expect(await listed()).toMatchObject([
    { journal_id: first.journal_id, state: 'offered', outcome: 'p2' },
  ])
  const superseding = [
    'sign',
    'will-it-hold',
    '--outcome',
    'p1',
    '--supersede',
    String(first.journal_id),
    '--json',
  ]
  expect(answerOf(await ask(superseding))).toMatchObject({ payload: { outcome: 'p1' } })
  const late = await signedBy(JSON.stringify(first.typed_data))
  expect(errorOf(await ask(['sign', 'will-it-hold', '--signature', late, '--json']))).toMatchObject(
    { code: 'no_offer', exit_code: 2 },
  )
})

test('R6: the key itself signs what was given out before, under the same nonce', async () => {
  const { journal_id, digest } = answerOf(await ask([...give, '--json']))
  writeFileSync(join(home, 'key'), key, { mode: 0o600 })
  env = { ...env, PROPOSER_KEY_FILE: join(home, 'key') }
  expect(answerOf(await ask([...sign]))).toMatchObject({ journal_id, digest })
  expect(errorOf(await ask([...give, '--json']))).toMatchObject({
    code: 'authorization_open',
    exit_code: 5,
  })
})

test('contract §6: a payload that a program outside made of the document is the same authorization', async () => {
  const given = answerOf(await ask([...give, '--json']))
  const document = given.typed_data as {
    message: { permitted: { amount: string }; nonce: string; deadline: string }
  }
  const { permitted, nonce, deadline } = document.message
  const payload = JSON.stringify({
    version: { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' },
    proposer,
    outcome: 'p2',
    max_payment: '0',
    permit: { amount: permitted.amount, nonce, deadline },
    signature: await signedBy(JSON.stringify(document)),
  })
  const sent = answerOf(await ask('submit will-it-hold - --json', { stdin: payload }))
  expect(sent).toMatchObject({ journal_id: given.journal_id, outcome: 'accepted' })
  expect(gateway.received).toEqual([payload])
})

test('R9: a signature by another key, of another document or none is refused, and the right one still comes in', async () => {
  const given = await ask(give)
  const wrong = [
    await signedBy(given.stdout, privateKeyToAccount(stranger)),
    `0x${'3'.repeat(130)}`,
    'garbage',
    '0x',
  ]
  for (const signature of wrong) {
    const refused = await ask(['sign', 'will-it-hold', '--signature', signature, '--json'])
    expect(refused.code).toBe(2)
    expect(errorOf(refused)).toMatchObject({ code: 'bad_signature' })
    expect(refused.stderr).not.toMatch(/[0-9a-f]{100}/)
  }
  const right = JSON.stringify(await signedBy(given.stdout))
  const signed = await ask('sign will-it-hold --signature - --json', {
    stdin: `${right}\n`,
  })
  expect(answerOf(signed)).toMatchObject({ signer: proposer })
})

test('R5: -o keeps the document in a file of its own, 0600', async () => {
  const ran = await ask([...give, '-o', 'typed.json'])
  expect(ran.stdout).not.toContain('PermitWitnessTransferFrom')
  expect(statSync(join(home, 'typed.json')).mode & 0o777).toBe(0o600)
  expect(JSON.parse(readFileSync(join(home, 'typed.json'), 'utf8'))).toMatchObject({
    primaryType: 'PermitWitnessTransferFrom',
  })
})

test.each([
  [['sign', 'will-it-hold', '--signature', '0x12'], 'no_offer'],
  [['sign', 'will-it-hold', '--signature', '0x12', '--amount', '5raw'], 'flag_without_meaning'],
  [
    ['sign', 'will-it-hold', '--signature', '0x12', '--typed-data', '--as-owner'],
    'flag_without_meaning',
    'omit --as-owner, --typed-data, or omit --signature',
  ],
  [['sign', 'will-it-hold', '--outcome', 'p2', '--typed-data'], 'no_account'],
])('contract §6: %j exits 2 with %s', async (argv, code, hint = '') => {
  const error = { code, exit_code: 2, hint: expect.stringContaining(hint) }
  expect(errorOf(await ask([...argv, '--json']))).toMatchObject(error)
})

test('defaults to the bond; --headroom or the profile adds to it, rounded up, and --max-amount bounds the addition only', async () => {
  writeFileSync(join(home, 'key'), key, { mode: 0o600 })
  env = { ...env, PROPOSER_KEY_FILE: join(home, 'key') }
  const amount = async (...more: string[]) =>
    answerOf(await ask([...sign, '--dry-run', ...more])).amount
  expect(await amount()).toBe('750000000')
  expect(await amount('--headroom', '0.01')).toBe('750075000')
  expect(await amount('--headroom', '10', '--max-amount', '760000000raw')).toBe('760000000')
  await ask('config set headroom-percent 5')
  expect(await amount()).toBe('787500000')
  expect(await amount('--amount', '750000001raw')).toBe('750000001')
  expect(await amount('--headroom', '0')).toBe('750000000')
  expect(errorOf(await ask([...sign, '--headroom', 'much']))).toMatchObject({
    code: 'bad_headroom',
    exit_code: 2,
  })
  expect((await ask('config set headroom-percent 5%')).code).toBe(2)
  expect(errorOf(await ask([...sign, '--max-amount', '1raw', '--headroom', '5']))).toMatchObject({
    code: 'amount_above_cap',
  })
})
