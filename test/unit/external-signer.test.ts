import { openOutsideWallet, requireSignerUrl } from '#io/external-signer'
import { ProposerError } from '#protocol/errors'
import { refusal } from '#support/refusal'
import { startWallet, type Wallet, type WalletServer } from '#support/wallet-server'

const address = `0x${'ab'.repeat(20)}` as const
const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

async function open(
  answers: Wallet,
  options: Parameters<typeof openOutsideWallet>[1] = {},
): Promise<WalletServer & { wallet: ReturnType<typeof openOutsideWallet> }> {
  const server = await startWallet(answers)
  const wallet = openOutsideWallet(server.url, options)
  closers.push(server.close, wallet.close)
  return { ...server, wallet }
}
const document = { primaryType: 'PermitWitnessTransferFrom' }

test('contract §7: a wallet that knows older spellings only is asked by those: web3signer with text, Clef with the object', async () => {
  const web3signer = await open(async ({ method }) =>
    method === 'eth_signTypedData' ? { result: '0x12' } : undefined,
  )
  expect(await web3signer.wallet.signer(address).signTypedData?.(document)).toBe('0x12')
  expect(web3signer.asked.at(-1)?.params).toEqual([address, JSON.stringify(document)])
  const clef = await open(async ({ method }) => {
    if (method === 'account_list') return { result: [address.toUpperCase().replace('0X', '0x')] }
    return method === 'account_signTypedData' ? { result: '0x34' } : undefined
  })
  expect(await clef.wallet.accounts()).toEqual([address])
  expect(await clef.wallet.signer(address).signTypedData?.(document)).toBe('0x34')
  expect(clef.asked.at(-1)?.params).toEqual([address, document])
})

test('contract §7: Ctrl-C while the wallet waits ends with its own reason', async () => {
  const stop = new AbortController()
  const reason = new ProposerError('interrupted', 'stopped by SIGINT', { exitCode: 130 })
  const { wallet } = await open(
    async () => {
      stop.abort(reason)
      return new Promise(() => undefined)
    },
    { signal: stop.signal },
  )
  expect(await refusal(wallet.signer(address).signTypedData?.(document))).toBe(reason)
})

test('R8: a connection that breaks once the wallet has the call is told apart from one that never was: it may still sign', async () => {
  const { wallet, url } = await open(() => Promise.reject(new Error('cut')))
  const error = await refusal(wallet.signer(address).signTypedData?.(document))
  expect(error).toMatchObject({
    code: 'signer_lost',
    detail: expect.stringContaining('may still sign'),
    meta: { exitCode: 75 },
  })
  expect(`${error.detail} ${error.meta.hint}`).not.toContain(new URL(url).port)
})

test('R5: what cannot be reached or redirects is told without its address', async () => {
  const { wallet, url, close } = await open(async () => ({ result: [] }))
  await close()
  const error = await refusal(wallet.accounts())
  expect(error).toMatchObject({ code: 'signer_unreachable', meta: { exitCode: 75 } })
  expect(`${error.detail} ${error.meta.hint}`).not.toContain(new URL(url).port)
})

test('R5: a wallet that repeats the key in its own address does not get it into the error', async () => {
  const server = await startWallet(async () => ({
    error: { code: 4001, message: 'no credit: /v1/PATHSECRET?key=querysecret' },
  }))
  const wallet = openOutsideWallet(`${server.url}/v1/PATHSECRET?key=QUERYSECRET`)
  closers.push(server.close, wallet.close)
  const error = await refusal(wallet.signer(address).signTypedData?.(document))
  expect(error).toMatchObject({
    code: 'signer_refused',
    detail: expect.stringContaining('no credit: /v1/[hidden]?key=[hidden]'),
  })
})

test('contract §7: a wallet outside signs no bare digest: a transaction needs --print', async () => {
  const { wallet } = await open(async () => ({ result: '0x' }))
  const error = await refusal(wallet.signer(address).signDigest(`0x${'1'.repeat(64)}`))
  expect(error).toMatchObject({
    code: 'signer_needs_typed_data',
    meta: { exitCode: 2, hint: expect.stringContaining('--print') },
  })
})

test.each([
  'https://wallet.example',
  'https://wallet.example/key?id=1',
  'http://localhost:1248',
  'http://[::1]:1',
  'http://127.9.9.9',
])('robustness §6: %s is an address to ask', (url) => expect(requireSignerUrl(url)).toBe(url))
test.each([
  'http://wallet.example',
  'http://127.0.0.1.example',
  'https://a:b@wallet.example',
  'https://wallet.example/#x',
  'file:///x',
  'x',
])('robustness §6: %s is refused', (url) =>
  expect(() => requireSignerUrl(url)).toThrow(
    expect.objectContaining({ code: 'invalid_signer_url' }),
  ),
)
