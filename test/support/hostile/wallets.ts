/** Wallets that cost the executor what they can: what each does in front of a block and after it. */
import { maxUint256 } from 'viem'
import {
  callData,
  contractOf,
  type DevRpc,
  devAccount,
  devAddresses,
  devBondRaw,
  devFinalFeeRaw,
} from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'

type Act = (rpc: DevRpc, wallet: Address, inFlight: number) => Promise<unknown>

export interface HostileKind {
  readonly name: string
  readonly questions: number
  readonly prepare?: Act
  readonly attack?: Act
  readonly retreat?: Act
}

/** Returns the magic value of ERC-1271, whatever it is asked: PUSH4 … SHL, MSTORE, RETURN. */
const agrees = '631626ba7e60e01b60005260206000f3'
/** Counts 36,000 down first, for some 940,000 gas: as dear as one proposal may be. */
const agreesDearly = (start: string) => `618ca05b600190038060${start}57${agrees}`
/** INVALID: all the gas there is. */
const burns = 'fe'
/** Uses gas until 50,000 are left, and reverts: GAS, PUSH2, LT, JUMPI back; REVERT. */
const revertsLate = (start: string) => `5a61c3501060${start}575f5ffd`

/** Code that goes on to `deed`, by where that starts, if `condition` says so, and agrees else. */
const codeOf = (condition: string, deed: Deed, agree: Deed = () => agrees): Hex => {
  const at = (bytes: number) => bytes.toString(16).padStart(2, '0')
  const before = condition.length / 2 + 3
  const agreeing = agree(at(before + 3))
  const start = at(before + agreeing.length / 2)
  return `0x${condition}60${start}57${agreeing}5b${deed(start)}`
}
type Deed = (start: string) => string
/** GASPRICE; PREVRANDAO, PUSH1 1, AND; PUSH0, SLOAD. */
const [gasPrice, someBlocks, switchedOn] = ['3a', '44600116', '5f54'] as const

const setCode =
  (code: Hex): Act =>
  (rpc, wallet) =>
    rpc.request('anvil_setCode', [wallet, code])
const turn =
  (word: number): Act =>
  (rpc, wallet) =>
    rpc.request('anvil_setStorageAt', [wallet, '0x0', `0x${String(word).padStart(64, '0')}`])

const burner: Address = '0x00000000000000000000000000000000000b0001'
const delegated: Hex = `0xef0100${burner.slice(2)}`
const placeBurner: Act = (rpc) => rpc.request('anvil_setCode', [burner, `0x${burns}`])

async function withToken(
  rpc: DevRpc,
  place: 'front' | 'back',
  from: Address,
  name: string,
  ...args: readonly unknown[]
): Promise<void> {
  const { baseFeePerGas } = await rpc.request<{ baseFeePerGas: Hex }>('eth_getBlockByNumber', [
    'latest',
    false,
  ])
  // Anvil mines the higher cap first.
  const cap = place === 'front' ? 10n ** 12n : (BigInt(baseFeePerGas) * 9n) / 8n + 1n
  await rpc.request('eth_sendTransaction', [
    {
      ...{ from, to: devAddresses.token, gas: '0x30d40' },
      data: callData(contractOf('token'), name, args),
      ...{ maxPriorityFeePerGas: '0x1', maxFeePerGas: `0x${cap.toString(16)}` },
    },
  ])
}

const takesApproval: Act = async (rpc, wallet) => {
  await withToken(rpc, 'front', wallet, 'approve', devAddresses.permit2, 0n)
  await withToken(rpc, 'back', wallet, 'approve', devAddresses.permit2, maxUint256)
}

const takesBalance =
  (keeps: (inFlight: number) => bigint): Act =>
  async (rpc, wallet, inFlight) => {
    const friend = devAccount('outsider').address
    const held = await rpc.read<bigint>(contractOf('token'), 'balanceOf', [wallet])
    const taken = held - keeps(inFlight) * (devBondRaw + devFinalFeeRaw)
    await withToken(rpc, 'front', wallet, 'transfer', friend, taken)
    await withToken(rpc, 'back', friend, 'transfer', wallet, taken)
  }

const everySwitch = (deed: Deed, agree?: Deed) => ({
  prepare: setCode(codeOf(switchedOn, deed, agree)),
  attack: turn(1),
  retreat: turn(0),
})
const everyDelegation = {
  prepare: placeBurner,
  attack: setCode(delegated),
  retreat: setCode('0x'),
}
const lastIsShort = (inFlight: number) => (inFlight > 1 ? BigInt(inFlight) - 1n : 0n)

export const hostileKinds: readonly HostileKind[] = [
  {
    name: 'burns where gas has a price',
    questions: 2,
    prepare: setCode(codeOf(gasPrice, () => burns)),
  },
  {
    name: 'burns in one of two blocks',
    questions: 8,
    prepare: setCode(codeOf(someBlocks, () => burns)),
  },
  { name: 'burns when told', questions: 5, ...everySwitch(() => burns) },
  {
    name: 'burns when told, dear and many at once',
    questions: 40,
    ...everySwitch(() => burns, agreesDearly),
  },
  { name: 'reverts late', questions: 5, ...everySwitch(revertsLate) },
  { name: 'delegates to a burner', questions: 5, ...everyDelegation },
  { name: 'delegates to a burner, many at once', questions: 30, ...everyDelegation },
  { name: 'takes its approval back', questions: 7, attack: takesApproval },
  { name: 'takes its balance back', questions: 7, attack: takesBalance(() => 0n) },
  { name: 'is short for the last of a load', questions: 25, attack: takesBalance(lastIsShort) },
]
