import { join } from 'node:path'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { contractOf, devAccount, devAddresses, devRpc } from '#devchain/dev-contracts'
import { createChain } from '#io/rpc/rpc'
import type { Chain, Hex } from '#ports'
import { proposerHome, run } from '#support/cli'
import { deferPayout } from '#support/deferred-payout'

let dev: DevChain
let chain: Chain & { close(): Promise<void> }
let home: string
const [rival, outsider] = [devAccount('rival'), devAccount('outsider')]

beforeAll(async () => {
  dev = await startDevChain({ questions: 1 })
  chain = createChain([dev.rpcUrl])
  home = proposerHome(dev.description.trust, rival.private_key)
})
afterAll(async () => {
  await chain?.close()
  await dev?.stop()
})

const ask = (...argv: string[]) =>
  run(home, argv, {
    env: { PROPOSER_RPC_URL: dev.rpcUrl, PROPOSER_KEY_FILE: join(home, 'key') },
    chain,
  })
const holds = (account: Hex) =>
  devRpc(dev.rpcUrl).read<bigint>(contractOf('token'), 'balanceOf', [account])

test('domain §10: a payout that the token refuses is deferred, shown, and claimed by its wallet alone', async () => {
  const none = await ask('payouts', 'list', '--json')
  expect(JSON.parse(none.stdout)).toMatchObject({ schema: 'proposer.payouts/1', payouts: [] })
  expect((await ask('payouts', 'claim', '--yes')).stdout).toMatch(/nothing to\s+claim/)

  const owed = await deferPayout(dev)
  const listed = await ask('payouts', 'list', '--json')
  const payout = { wallet: rival.address, oracle: devAddresses.oracle, amount: String(owed) }
  expect(JSON.parse(listed.stdout).payouts).toMatchObject([payout])
  const shown = await ask('payouts', 'list', '--proposer', rival.address)
  expect(shown.stdout).toContain('755 USDC.e')
  expect(shown.stdout).toContain('payouts claim')

  const asked = await ask('payouts', 'claim', '--to', outsider.address, '--json')
  expect(asked.code).toBe(2)
  expect(JSON.parse(asked.stderr).error.code).toBe('confirmation_needed')
  const blocked = await ask('payouts', 'claim', '--yes', '--json')
  expect(blocked.code).toBe(2)
  expect(JSON.parse(blocked.stderr).error.code).toBe('transaction_would_revert')

  const before = await holds(outsider.address)
  const claimed = await ask('payouts', 'claim', '--to', outsider.address, '--yes', '--json')
  expect(claimed.code).toBe(0)
  const { claims } = JSON.parse(claimed.stdout)
  expect(claims).toMatchObject([{ ...payout, to: outsider.address }])
  expect(claims[0].transaction_hash).toMatch(/^0x[0-9a-f]{64}$/)
  expect(await holds(outsider.address)).toBe(before + owed)
  expect(JSON.parse((await ask('payouts', 'list', '--json')).stdout).payouts).toEqual([])
})
