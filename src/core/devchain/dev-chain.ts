/** anvil with our contracts, accounts and questions (contract §8). */

import { setTimeout as sleep } from 'node:timers/promises'
import { maxUint256, stringToHex } from 'viem'
import { multicallAddress } from '#chain/aggregate'
import { yesOrNoQuery } from '#chain/contracts'
import { type Implementations, implementationsOf } from '#chain/implementations'
import type { Hex } from '#ports'
import { inGroups } from '#protocol/capped'
import { UnavailableError, UsageError } from '#protocol/errors'
import type { Address, OutcomeKey } from '#protocol/schema'
import { type Anvil, startAnvil } from './dev-anvil.js'
import { artifact, exampleQuestion } from './dev-artifacts.js'
import {
  callData,
  contractOf,
  type DevAccount,
  type DevRpc,
  DevRpcError,
  devAccount,
  devAddresses,
  devBondRaw,
  devFinalFeeRaw,
  devOracleVersion,
  devRewardRaw,
  devRpc,
  type OracleVersion,
  oracleContracts,
  placedAt,
  placing,
  quantity,
  receiptsNow,
} from './dev-contracts.js'

export interface DevQuestion {
  readonly question_id: Hex
  readonly slug: string
  readonly outcomes: readonly OutcomeKey[]
}

export type DevDescription = ReturnType<typeof describe>

export interface DevChainOptions {
  readonly port?: number
  readonly chainId?: number
  readonly questions?: number
  readonly proposers?: number
  /** Else PROPOSER_DEV_ORACLE, else `v2`. */
  readonly oracle?: string
}

export interface DevChain extends Anvil {
  readonly chainId: number
  readonly description: DevDescription
}

/** So that the first blocks need not run ahead of the clock. */
const headStartSeconds = 6

/** Blocks take whole set-ups at first, then no more than Polygon's do. */
const setUpGasLimit = 1_000_000_000n
const blockGasLimit = 60_000_000n

const questionsPerTransaction = 10

const transactionsPerCall = 50

/** With its state finalized. */
export async function startDevChain(options: DevChainOptions = {}): Promise<DevChain> {
  const chainId = options.chainId ?? 31337
  const questionCount = wholeNumber('questions', options.questions ?? 12, 0, 10_000)
  const proposerCount = wholeNumber('proposers', options.proposers ?? 4, 1, 100)
  const oracle = devOracleVersion(options.oracle)
  const beganSeconds = Math.floor(Date.now() / 1000) - headStartSeconds
  const anvil = await startAnvil(options.port ?? 0, [
    ...['--chain-id', `${chainId}`, '--block-time', '1', '--slots-in-an-epoch', '1'],
    ...['--prune-history', `${statesKept}`, '--hardfork', 'prague', '--accounts', '0'],
    ...['--gas-limit', `${setUpGasLimit}`, '--timestamp', `${beganSeconds}`],
    '--no-request-size-limit',
  ])
  try {
    const rpc = devRpc(anvil.rpcUrl)
    const accounts = devAccounts(proposerCount)
    const questions = await setUp(rpc, accounts, questionCount, oracle)
    const implementations = await readImplementations(rpc)
    const description = describe(anvil.rpcUrl, chainId, accounts, questions, implementations)
    void boundHistory(rpc, anvil.ended)
    return { ...anvil, chainId, description }
  } catch (error) {
    await anvil.stop()
    throw error
  }
}

function wholeNumber(name: string, value: number, least: number, most: number) {
  if (Number.isInteger(value) && value >= least && value <= most) return value
  throw new UsageError(
    'invalid_option',
    `${name} must be a whole number from ${least} to ${most}, not ${value}.`,
  )
}

function devAccounts(proposerCount: number): DevAccount[] {
  return [
    devAccount('executor'),
    ...Array.from({ length: proposerCount }, (_, index) => devAccount('proposer', index)),
    devAccount('disputer'),
    devAccount('rival'),
    devAccount('outsider'),
    devAccount('admin'),
  ]
}

function describe(
  rpcUrl: string,
  chainId: number,
  accounts: readonly DevAccount[],
  questions: readonly DevQuestion[],
  implementations: Implementations,
) {
  return {
    rpc_url: rpcUrl,
    chain_id: chainId,
    /** trust.json (contract §7). */
    trust: {
      chain_id: chainId,
      permit2: devAddresses.permit2,
      signed_proposer: devAddresses.signedProposer,
      oracles: [devAddresses.oracle],
      requesters: [{ address: devAddresses.adapter, kind: 'uma-ctf-adapter' as const }],
      tokens: [devAddresses.token],
      slugs: Object.fromEntries(questions.map(({ slug, question_id }) => [slug, question_id])),
      implementations,
    },
    accounts,
    questions,
  }
}

const readImplementations = (rpc: DevRpc): Promise<Implementations> =>
  implementationsOf(
    {
      code: (address) => rpc.request('eth_getCode', [address, 'latest']),
      storage: (address, slot) => rpc.request('eth_getStorageAt', [address, slot, 'latest']),
    },
    [devAddresses.oracle, devAddresses.token],
    'latest',
  )

/** Everything in one block; two more finalize it. */
async function setUp(
  rpc: DevRpc,
  accounts: readonly DevAccount[],
  questionCount: number,
  oracle: OracleVersion,
): Promise<DevQuestion[]> {
  await rpc.batch([
    { method: 'anvil_setLoggingEnabled', params: [false] },
    { method: 'anvil_setCode', params: [multicallAddress, artifact('Multicall3').code] },
    { method: 'anvil_setCode', params: [blockHashContract, '0x00'] },
    ...contractNames.flatMap((name) => placing(contractOf(name))),
    ...placing(placedAt(oracleContracts[oracle], devAddresses.oracle)),
    ...accounts.flatMap(({ address }) => [
      { method: 'anvil_setBalance', params: [address, quantity(10_000n * 10n ** 18n)] },
      { method: 'anvil_impersonateAccount', params: [address] },
    ]),
  ])
  await mine(rpc, [
    ...setUpTransactions(accounts, questionCount),
    ...askTransactions(questionCount),
  ])
  // One after the other: anvil works on the calls of a batch side by side.
  await rpc.request('evm_mine', [])
  await rpc.request('evm_mine', [])
  // What one call may use is what a block may.
  const questions = await readQuestions(rpc, questionCount)
  await rpc.request('evm_setBlockGasLimit', [quantity(blockGasLimit)])
  // It lags by the head start until here.
  await rpc.request('anvil_setTime', [Math.floor(Date.now() / 1000)])
  return questions
}

const contractNames = Object.keys(devAddresses).filter(
  (name) => name !== 'oracle',
) as readonly (keyof typeof devAddresses)[]

const holders = (accounts: readonly DevAccount[]) =>
  accounts.filter(({ role }) => role !== 'executor' && role !== 'admin')

const call = (
  from: Address,
  to: keyof typeof devAddresses,
  name: string,
  args: readonly unknown[],
  gas = 1_000_000,
) => ({
  from,
  to: devAddresses[to],
  data: callData(contractOf(to), name, args),
  gas: quantity(gas),
})

function setUpTransactions(accounts: readonly DevAccount[], questionCount: number) {
  const admin = devAccount('admin').address
  const { permit2, token, oracle, signedProposer, adapter, registry, proposers, requesters } =
    devAddresses
  const fundsRaw = 1_000_000_000_000n + 2n * (devBondRaw + devFinalFeeRaw) * BigInt(questionCount)
  const byAdmin: readonly (readonly [keyof typeof devAddresses, string, ...unknown[]])[] = [
    ['token', 'setUp', admin],
    ['proposers', 'setUp', admin],
    ['requesters', 'setUp', admin],
    ['nobody', 'setUp', admin],
    ['everybody', 'setUp', admin],
    ['oracle', 'setUp', admin, proposers, requesters],
    ['oracle', 'setIdentifier', yesOrNoQuery, true],
    // Custom bonds of 100 to 100,000 tokens, as on the live oracle (domain §4).
    ['oracle', 'setCurrency', token, true, devFinalFeeRaw, 100_000_000n, 100_000_000_000n],
    ['signedProposer', 'setUp', admin, permit2],
    ['signedProposer', 'addDelegatedProposer', devAccount('executor').address],
    ['signedProposer', 'addWhitelistAdmin', admin],
    ['adapter', 'setUp', admin, oracle],
    ['registry', 'setUp', admin, adapter, token],
    ['requesters', 'addToWhitelist', adapter],
    // Listed for good; all others within one propose() only.
    ['proposers', 'addToWhitelist', signedProposer],
    ['proposers', 'addToWhitelist', devAccount('rival').address],
    ['proposers', 'transferOwnership', signedProposer],
    ...holders(accounts).map(({ address }) => ['token', 'mint', address, fundsRaw] as const),
    ['token', 'mint', registry, fundsRaw],
    ['token', 'mint', admin, fundsRaw],
    ['token', 'approve', adapter, maxUint256],
    ['token', 'approve', oracle, maxUint256],
  ]
  return [
    ...byAdmin.map(([to, name, ...args]) => call(admin, to, name, args)),
    ...holders(accounts).map(({ address, role }) => {
      const spender = role === 'disputer' || role === 'rival' ? oracle : permit2
      return call(address, 'token', 'approve', [spender, maxUint256])
    }),
  ]
}

function askTransactions(questionCount: number) {
  const admin = devAccount('admin').address
  const questions = Array.from({ length: questionCount }, (_, n) => exampleQuestion(n))
  return inGroups(questions, questionsPerTransaction).map((some) => {
    const slugs = some.map(({ slug }) => slug)
    const texts = some.map(({ text }) => stringToHex(text))
    return call(admin, 'registry', 'ask', [slugs, texts, devBondRaw, devRewardRaw], 40_000_000)
  })
}

async function mine(rpc: DevRpc, transactions: readonly ReturnType<typeof call>[]) {
  // Each sender's order is kept, whatever order a batch is worked on in.
  const nonces = new Map<Address, number>()
  const calls = transactions.map((transaction) => {
    const nonce = nonces.get(transaction.from) ?? 0
    nonces.set(transaction.from, nonce + 1)
    return { method: 'eth_sendTransaction', params: [{ ...transaction, nonce: quantity(nonce) }] }
  })
  const hashes: Hex[] = []
  for (const some of inGroups(calls, transactionsPerCall))
    hashes.push(...((await rpc.batch(some)) as Hex[]))
  // The interval may have mined a part already.
  for (let pending = true; pending; ) {
    await rpc.request('evm_mine', [])
    const receipts = await receiptsNow(rpc, hashes)
    const failed = receipts.findIndex((receipt) => receipt !== null && receipt.status !== '0x1')
    if (failed !== -1)
      throw new UsageError(
        'dev_chain_failed',
        `Transaction ${failed} of the dev chain's set-up reverted.`,
      )
    pending = receipts.includes(null)
  }
}

async function readQuestions(rpc: DevRpc, count: number): Promise<DevQuestion[]> {
  const listed = await rpc.read<readonly { readonly slug: string; readonly questionID: Hex }[]>(
    contractOf('registry'),
    'list',
    [0, count],
  )
  return listed.map(({ slug, questionID: question_id }, n) => {
    return { question_id, slug, outcomes: exampleQuestion(n).outcomes }
  })
}

const statesKept = 1_000

/** EIP-2935: a slot for each of 8,191 blocks in every state. */
const blockHashContract = '0x0000f90827f1c53a10cb7a02335b175320002935'

const blocksBetweenTrims = 256
const lookEveryMs = 1_000
const triesForEmptyBlock = 3

/**
 * Anvil copies its whole state for every block, with one hash for each block there ever was
 * (contract §8). Going back by one block makes it keep the newest 256 alone.
 */
async function boundHistory(rpc: DevRpc, ended: Promise<void>) {
  const over = new AbortController()
  void ended.then(() => over.abort())
  let trimmedAt = 0
  while (!over.signal.aborted) {
    await sleep(lookEveryMs, undefined, { ref: false, signal: over.signal }).catch(() => undefined)
    try {
      const head = await headOf(rpc)
      if (head < trimmedAt + blocksBetweenTrims) continue
      if (await trim(rpc)) trimmedAt = head
    } catch (error) {
      // Busy, ending or wound back by a test: the next look tries again.
      if (!(error instanceof UnavailableError || error instanceof DevRpcError)) throw error
    }
  }
}

const headOf = async (rpc: DevRpc) => Number(await rpc.request<string>('eth_blockNumber', []))

/** `false`: to be tried again. Going back would set the chain's clock to the last block's time. */
async function trim(rpc: DevRpc) {
  const interval = await rpc.request<number | null>('anvil_getIntervalMining', [])
  if (!interval) return false
  // A block mined in between would be taken back, with its transactions.
  await rpc.request('evm_setIntervalMining', [0])
  try {
    if (!(await mineEmptyBlock(rpc))) return false
    const aheadSeconds = await clockLead(rpc, 0)
    await rpc.request('anvil_rollback', [1])
    await clockLead(rpc, aheadSeconds - (await clockLead(rpc, 0)))
    return true
  } finally {
    await rpc.request('evm_setIntervalMining', [interval])
  }
}

/** A block with transactions stays. */
async function mineEmptyBlock(rpc: DevRpc) {
  for (let tries = 0; tries < triesForEmptyBlock; tries += 1) {
    await rpc.request('evm_mine', [])
    const { transactions } = await rpc.request<{ transactions: unknown[] }>(
      'eth_getBlockByNumber',
      ['latest', false],
    )
    if (transactions.length === 0) return true
  }
  return false
}

/** How far the chain's clock is then ahead. */
const clockLead = (rpc: DevRpc, moreSeconds: number) =>
  rpc.request<number>('evm_increaseTime', [Math.max(0, moreSeconds)])
