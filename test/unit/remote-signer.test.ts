import { getAddress, recoverTransactionAddress, type TransactionSerializedEIP1559 } from 'viem'
import { signTransaction } from '#chain/transaction'
import { openRemoteSigner, type RemoteSigner } from '#io/remote-signer'
import type { Hex } from '#ports'
import { deferred } from '#support/deferred'
import { noncesOf, oneCandidate, testSigner } from '#support/pipeline-world'
import { refusal } from '#support/refusal'
import { honestSigner, startWallet, type Wallet, type WalletAnswer } from '#support/wallet-server'

const key = `0x${'01'.repeat(32)}` as const
const otherKey = `0x${'02'.repeat(32)}` as const
const { address } = testSigner(0)
const gwei = 10n ** 9n
const unsigned = {
  chainId: 137,
  nonce: 5,
  to: '0x48563c004803795901f3b54726566daf179a36b2' as const,
  data: '0xb762b23c00' as const,
  gas: 500_000n,
  maxFeePerGas: 80n * gwei,
  maxPriorityFeePerGas: 25n * gwei,
}

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

async function open(wallet: Wallet = honestSigner(key), path = '', timeoutMs = 5_000) {
  const state = { wallet }
  const server = await startWallet((asked) => state.wallet(asked))
  const signer = openRemoteSigner({ url: `${server.url}${path}`, address }, { timeoutMs })
  closers.push(server.close, signer.dispose)
  return { ...server, signer, state }
}
const sign = (signer: RemoteSigner) => signTransaction(signer, unsigned)
const failing =
  (answer: () => Promise<WalletAnswer | undefined>): Wallet =>
  async ({ method }) =>
    method === 'eth_signTransaction' ? answer() : undefined

describe('at the wire', () => {
  test('it is asked for the whole transaction in hex, its recipient with the checksum that Clef wants, and what it signs is our transaction', async () => {
    const { signer, asked } = await open()
    const { raw } = await sign(signer)
    expect(asked).toEqual([
      {
        method: 'eth_signTransaction',
        params: [
          {
            from: address,
            to: getAddress(unsigned.to),
            data: '0xb762b23c00',
            value: '0x0',
            chainId: '0x89',
            nonce: '0x5',
            gas: '0x7a120',
            maxFeePerGas: '0x12a05f2000',
            maxPriorityFeePerGas: '0x5d21dba00',
          },
        ],
      },
    ])
    const serializedTransaction = raw as TransactionSerializedEIP1559
    expect((await recoverTransactionAddress({ serializedTransaction })).toLowerCase()).toBe(address)
    expect(await signer.accounts()).toEqual([address])
  })

  test('geth and Clef give an object with the bytes; Clef knows its own method only', async () => {
    const { signer, asked } = await open(async ({ method, params }) => {
      if (method === 'account_list') return { result: [] }
      if (method !== 'account_signTransaction') return undefined
      const signed = await honestSigner(key)({ method: 'eth_signTransaction', params })
      return signed && 'result' in signed
        ? { result: { raw: signed.result, tx: { hash: '0x' } } }
        : signed
    })
    expect(await sign(signer)).toEqual(await signTransaction(testSigner(0), unsigned))
    expect(asked.map(({ method }) => method)).toEqual([
      'eth_signTransaction',
      'account_signTransaction',
    ])
    expect(await signer.accounts()).toEqual([])
  })

  test('the largest transaction that a node takes comes through, beside its own JSON', async () => {
    const data: Hex = `0x${'ab'.repeat(128 * 1024 - 200)}`
    const { signer } = await open(async (asked) => {
      const signed = await honestSigner(key)(asked)
      return signed && 'result' in signed
        ? { result: { raw: signed.result, tx: { input: data } } }
        : signed
    })
    const large = { ...unsigned, data }
    expect(await signTransaction(signer, large)).toEqual(
      await signTransaction(testSigner(0), large),
    )
  })

  const answers: Record<string, readonly [Wallet, code: string, detail: string]> = {
    'HTML with status 500': [
      failing(async () => ({ raw: '<html>', status: 500 })),
      'signer_answer',
      'not JSON-RPC (HTTP 500)',
    ],
    'an empty 429': [
      failing(async () => ({ raw: '', status: 429 })),
      'signer_answer',
      'not JSON-RPC (HTTP 429)',
    ],
    junk: [failing(async () => ({ raw: 'junk' })), 'signer_answer', 'not JSON-RPC'],
    'an error with status 400': [
      failing(async () => ({
        raw: '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no such account"}}',
        status: 400,
      })),
      'signer_refused',
      'refused: “no such account”',
    ],
    'an error without words': [
      failing(async () => ({ error: { code: -32_000, message: '' } })),
      'signer_refused',
      'refused: “code -32000”',
    ],
    'no method that signs': [async () => undefined, 'signer_refused', 'knows no method'],
    'no transaction': [
      failing(async () => ({ result: { tx: {} } })),
      'signer_answer',
      'holds no transaction',
    ],
    'a number': [failing(async () => ({ result: 7 })), 'signer_answer', 'holds no transaction'],
    'bytes of something else': [
      failing(async () => ({ result: '0x02c0' })),
      'signer_answer',
      'not a transaction',
    ],
    'more than any transaction': [
      failing(async () => ({ result: '0'.repeat(1_100_000) })),
      'signer_answer',
      'longer than any signature',
    ],
    'a cut connection': [
      failing(() => Promise.reject(new Error('cut'))),
      'signer_lost',
      'broke before it responded',
    ],
    'another nonce': [
      honestSigner(key, (asked) => ({ ...asked, nonce: '0x6' })),
      'signer_answer',
      'changed nonce',
    ],
    'another account': [
      (asked) =>
        honestSigner(otherKey, (transaction) => ({
          ...transaction,
          from: testSigner(1).address,
        }))(asked),
      'signer_answer',
      `signed as ${testSigner(1).address}, not as the executor ${address}`,
    ],
  }
  test.each(Object.entries(answers))(
    '%s is refused with its reason',
    async (_, [wallet, code, detail]) => {
      const { signer } = await open(wallet)
      const error = await refusal(sign(signer))
      expect(error).toMatchObject({ code, detail: expect.stringContaining(detail) })
      expect(error.meta.hint).toMatch(/executor\.signer/)
    },
  )

  test('nobody listens: told as such, without the address', async () => {
    const { signer, close, url } = await open()
    await close()
    const error = await refusal(sign(signer))
    expect(error).toMatchObject({ code: 'signer_unreachable', meta: { exitCode: 75 } })
    expect(error.detail).toContain('ECONNREFUSED')
    expect(`${error.detail} ${error.meta.hint}`).not.toContain(new URL(url).port)
  })

  test('R5: a signer that repeats the key in its address does not get it into the error', async () => {
    const words = 'no credit: /v1/PATHSECRET17?key=querysecret17'
    const { signer } = await open(
      failing(async () => ({ error: { code: -32_000, message: words } })),
      '/v1/PATHSECRET17?key=QUERYSECRET17',
    )
    const { detail } = await refusal(sign(signer))
    expect(detail).toContain('no credit')
    expect(detail).not.toMatch(/pathsecret17|querysecret17/i)
  })

  test('a signer that answers after the time limit is not waited for', async () => {
    const { promise: late, resolve: answer } = deferred()
    const { signer } = await open(
      async (asked) => {
        await late
        return honestSigner(key)(asked)
      },
      '',
      50,
    )
    const error = await refusal(sign(signer))
    answer()
    expect(error).toMatchObject({
      code: 'signer_timed_out',
      detail: 'the remote signer did not respond within 1 s',
      meta: { exitCode: 75 },
    })
  })
})

const troubles: Record<string, readonly [Wallet, said: string]> = {
  'is cut off': [failing(() => Promise.reject(new Error('cut'))), 'broke before it responded'],
  'is slow': [failing(() => new Promise(() => undefined)), 'did not respond within'],
  'answers 503': [failing(async () => ({ raw: 'busy', status: 503 })), 'HTTP 503'],
  refuses: [failing(async () => ({ error: { code: 1, message: 'no' } })), 'refused: “no”'],
  'changes the nonce': [
    honestSigner(key, (asked) => ({ ...asked, nonce: '0x9' })),
    'it changed nonce of the transaction',
  ],
  'changes the calldata': [
    honestSigner(key, (asked) => ({ ...asked, data: `${asked.data}00` })),
    'it changed data of the transaction',
  ],
}
test.each(Object.entries(troubles))(
  'one that %s: one nonce waits, nothing is stored, it goes on when all is well',
  async (_, [trouble, said]) => {
    const { signer, state } = await open(trouble, '', 300)
    const { world, candidate } = await oneCandidate({ signing: () => signer })
    await world.pass(3)
    expect(world.ledger.slots()).toMatchObject([{ nonce: 0, attempts: [] }])
    const [fault, ...others] = world.pipeline.faults()
    expect(others).toEqual([])
    expect(fault).toMatch(
      new RegExp(`^the key of the executor ${address} does not sign: .*: waiting$`),
    )
    expect(fault).toContain(said)
    state.wallet = honestSigner(key)
    await world.pass(8)
    expect(await world.end(candidate)).toBe('executed')
    expect(world.pipeline.faults()).toEqual([])
    expect(noncesOf(world)).toEqual([0])
  },
)
