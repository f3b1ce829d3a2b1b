/**
 * A whole chain for trying and testing: anvil with our contracts, funded accounts and open
 * questions (contract §6 `serve --dev`, `devchain`; §8).
 */
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { maxUint256 } from 'viem'
import { multicallAddress } from '../chain/aggregate.js'
import { yesOrNoQuery } from '../chain/contracts.js'
import { systemFiles } from '../io/files.js'
import type { Address, Hex } from '../ports.js'
import { UsageError } from '../protocol/errors.js'
import { startAnvil } from './dev-anvil.js'
import {
  artifact,
  at,
  callData,
  type DevAccount,
  type DevReceipt,
  type DevRpc,
  type DevTransaction,
  devAccount,
  devAddresses,
  devBondRaw,
  devFinalFeeRaw,
  devRpc,
  transactionParams,
} from './dev-contracts.js'
import { blockHashContract, boundHistory, statesKept } from './dev-history.js'
import { type DevOutcome, exampleQuestion } from './dev-questions.js'

export interface DevQuestion {
  readonly question_id: Hex
  readonly slug: string
  readonly outcomes: readonly DevOutcome[]
}

/** trust.json of contract §7. */
export interface DevTrust {
  readonly chain_id: number
  readonly permit2: Address
  readonly signed_proposer: Address
  readonly oracles: readonly Address[]
  readonly requesters: readonly { readonly address: Address; readonly kind: 'uma-ctf-adapter' }[]
  readonly tokens: readonly Address[]
  readonly slugs: Readonly<Record<string, Hex>>
}

/** The `dev` object of the ready line (contract §6). */
export interface DevDescription {
  readonly rpc_url: string
  readonly chain_id: number
  readonly trust: DevTrust
  readonly accounts: readonly DevAccount[]
  readonly questions: readonly DevQuestion[]
}

export interface DevChainOptions {
  /** 0, the default: a free port. Always on the loopback address. */
  readonly port?: number
  /** 31337 unless given. */
  readonly chainId?: number
  /** Example questions to ask: 12 unless given. */
  readonly questions?: number
  /** Accounts of role `proposer`: 4 unless given. */
  readonly proposers?: number
}

export interface DevChain {
  readonly rpcUrl: string
  readonly chainId: number
  /** Of the chain process. */
  readonly pid: number
  readonly description: DevDescription
  /** Resolves when the chain process is gone, stopped or not. */
  readonly ended: Promise<void>
  /** Ends the chain process and removes its folder; again: the same. */
  stop(): Promise<void>
}

/**
 * Genesis lies this far back, so that the first blocks, and the two that make them final, need not
 * run ahead of the clock.
 */
const headStartSeconds = 6

/** Blocks take whole set-ups at first, then no more than Polygon's do. */
const setUpGasLimit = 1_000_000_000n
const blockGasLimit = 60_000_000n

/** Questions of one set-up transaction: some 15 million gas. */
const questionsPerTransaction = 10

/** Example questions of one HTTP call. */
const transactionsPerCall = 50

/**
 * Starts a dev chain; it is ready, with its state finalized, when the promise resolves, and mines a
 * block every second. Throws UsageError `anvil_missing` (with the command that installs it),
 * `port_in_use`, `invalid_option` or `dev_chain_failed`.
 */
export async function startDevChain(options: DevChainOptions = {}): Promise<DevChain> {
  const chainId = options.chainId ?? 31337
  const questionCount = wholeNumber('questions', options.questions ?? 12, 0, 10_000)
  const proposerCount = wholeNumber('proposers', options.proposers ?? 4, 1, 100)
  const anvil = await startAnvil(options.port ?? 0, [
    ...['--chain-id', String(chainId), '--block-time', '1', '--slots-in-an-epoch', '1'],
    ...['--prune-history', String(statesKept)],
    ...['--hardfork', 'prague', '--accounts', '0', '--gas-limit', String(setUpGasLimit)],
    ...[
      '--timestamp',
      String(Math.floor(Date.now() / 1000) - headStartSeconds),
      '--no-request-size-limit',
    ],
  ])
  try {
    const rpc = devRpc(anvil.rpcUrl)
    const accounts = devAccounts(proposerCount)
    const questions = await setUp(rpc, accounts, questionCount)
    const description = describe(anvil.rpcUrl, chainId, accounts, questions)
    void boundHistory(rpc, anvil.ended)
    return {
      rpcUrl: anvil.rpcUrl,
      chainId,
      pid: anvil.pid,
      description,
      ended: anvil.ended,
      stop: anvil.stop,
    }
  } catch (error) {
    await anvil.stop()
    throw error
  }
}

function wholeNumber(name: string, value: number, least: number, most: number): number {
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
): DevDescription {
  return {
    rpc_url: rpcUrl,
    chain_id: chainId,
    trust: {
      chain_id: chainId,
      permit2: devAddresses.permit2,
      signed_proposer: devAddresses.signedProposer,
      oracles: [devAddresses.oracle],
      requesters: [{ address: devAddresses.adapter, kind: 'uma-ctf-adapter' }],
      tokens: [devAddresses.token],
      slugs: Object.fromEntries(questions.map(({ slug, question_id }) => [slug, question_id])),
    },
    accounts,
    questions,
  }
}

/** Places code, then sets everything up in one block and lets two more finalize it. */
async function setUp(
  rpc: DevRpc,
  accounts: readonly DevAccount[],
  questionCount: number,
): Promise<DevQuestion[]> {
  const quiet = { method: 'anvil_setLoggingEnabled', params: [false] }
  await rpc.batch([
    quiet,
    // As on most chains. Nobody is told: who reads much finds it there.
    { method: 'anvil_setCode', params: [multicallAddress, artifact('Multicall3').code] },
    { method: 'anvil_setCode', params: [blockHashContract, '0x00'] },
    ...Object.entries(placement).map(([name, contract]) => ({
      method: 'anvil_setCode',
      params: [devAddresses[name as keyof typeof devAddresses], artifact(contract).code],
    })),
    ...accounts.flatMap(({ address }) => [
      { method: 'anvil_setBalance', params: [address, `0x${(10_000n * 10n ** 18n).toString(16)}`] },
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
  await rpc.request('evm_setBlockGasLimit', [`0x${blockGasLimit.toString(16)}`])
  // The chain's clock lags by the head start until here.
  await rpc.request('anvil_setTime', [Math.floor(Date.now() / 1000)])
  return readQuestions(rpc)
}

const placement: Readonly<Record<keyof typeof devAddresses, string>> = {
  permit2: 'Permit2',
  token: 'Token',
  oracle: 'ManagedOracle',
  signedProposer: 'SignedProposer',
  adapter: 'CtfAdapter',
  proposers: 'AddressWhitelist',
  requesters: 'AddressWhitelist',
  nobody: 'AddressWhitelist',
  everybody: 'DisabledAddressWhitelist',
  registry: 'DevRegistry',
}

/** Of all accounts but the executor: it pays gas only (domain §1). */
function holders(accounts: readonly DevAccount[]): DevAccount[] {
  return accounts.filter(({ role }) => role !== 'executor' && role !== 'admin')
}

function setUpTransactions(
  accounts: readonly DevAccount[],
  questionCount: number,
): DevTransaction[] {
  const admin = devAccount('admin').address
  const {
    permit2,
    token,
    oracle,
    signedProposer,
    adapter,
    proposers,
    requesters,
    nobody,
    everybody,
    registry,
  } = devAddresses
  const from = (
    sender: Address,
    contract: string,
    to: Address,
    name: string,
    ...args: unknown[]
  ): DevTransaction => ({
    from: sender,
    to,
    data: callData(at(contract, to), name, args),
    gas: 1_000_000n,
  })
  const fundsRaw = 1_000_000_000_000n + 2n * (devBondRaw + devFinalFeeRaw) * BigInt(questionCount)
  return [
    from(admin, 'Token', token, 'setUp', admin),
    from(admin, 'AddressWhitelist', proposers, 'setUp', admin),
    from(admin, 'AddressWhitelist', requesters, 'setUp', admin),
    from(admin, 'AddressWhitelist', nobody, 'setUp', admin),
    from(admin, 'DisabledAddressWhitelist', everybody, 'setUp', admin),
    from(admin, 'ManagedOracle', oracle, 'setUp', admin, proposers, requesters),
    from(admin, 'ManagedOracle', oracle, 'setIdentifier', yesOrNoQuery, true),
    // Custom bonds of 100 to 100,000 tokens, as on the live oracle (domain §4).
    from(
      admin,
      'ManagedOracle',
      oracle,
      'setCurrency',
      token,
      true,
      devFinalFeeRaw,
      100_000_000n,
      100_000_000_000n,
    ),
    from(admin, 'SignedProposer', signedProposer, 'setUp', admin, permit2),
    from(
      admin,
      'SignedProposer',
      signedProposer,
      'addDelegatedProposer',
      devAccount('executor').address,
    ),
    from(admin, 'SignedProposer', signedProposer, 'addWhitelistAdmin', admin),
    from(admin, 'CtfAdapter', adapter, 'setUp', admin, oracle),
    from(admin, 'DevRegistry', registry, 'setUp', admin, adapter, token),
    from(admin, 'AddressWhitelist', requesters, 'addToWhitelist', adapter),
    // Listed for good: SignedProposer itself, and the rival who proposes without it. All others
    // only within one propose().
    from(admin, 'AddressWhitelist', proposers, 'addToWhitelist', signedProposer),
    from(admin, 'AddressWhitelist', proposers, 'addToWhitelist', devAccount('rival').address),
    from(admin, 'AddressWhitelist', proposers, 'transferOwnership', signedProposer),
    ...holders(accounts).map(({ address }) =>
      from(admin, 'Token', token, 'mint', address, fundsRaw),
    ),
    ...holders(accounts).map(({ address, role }) =>
      from(
        address,
        'Token',
        token,
        'approve',
        role === 'disputer' || role === 'rival' ? oracle : permit2,
        maxUint256,
      ),
    ),
  ]
}

function askTransactions(questionCount: number): DevTransaction[] {
  const registry = at('DevRegistry', devAddresses.registry)
  const transactions: DevTransaction[] = []
  for (let first = 0; first < questionCount; first += questionsPerTransaction) {
    const count = Math.min(questionsPerTransaction, questionCount - first)
    const texts = Array.from({ length: count }, (_, index) => exampleQuestion(first + index))
    const args = [
      texts.map(({ slug }) => slug),
      texts.map(({ text }) => textBytes(text)),
      devBondRaw,
    ]
    const data = callData(registry, 'ask', args)
    transactions.push({
      from: devAccount('admin').address,
      to: registry.address,
      data,
      gas: 40_000_000n,
    })
  }
  return transactions
}

/** UTF-8 bytes of a question's text. */
export function textBytes(text: string): Hex {
  return `0x${Buffer.from(text, 'utf8').toString('hex')}`
}

async function mine(rpc: DevRpc, transactions: readonly DevTransaction[]): Promise<void> {
  // Given nonces keep each sender's order, whatever order a batch is worked on in. All senders are
  // new on this chain.
  const nonces = new Map<Address, number>()
  const numbered = transactions.map((transaction) => {
    const nonce = nonces.get(transaction.from) ?? 0
    nonces.set(transaction.from, nonce + 1)
    return { ...transactionParams(transaction), nonce: `0x${nonce.toString(16)}` }
  })
  const hashes: Hex[] = []
  for (let first = 0; first < numbered.length; first += transactionsPerCall) {
    const calls = numbered.slice(first, first + transactionsPerCall)
    const sent = await rpc.batch(
      calls.map((call) => ({ method: 'eth_sendTransaction', params: [call] })),
    )
    hashes.push(...(sent as Hex[]))
  }
  // One block holds it all but for a thousand questions; the interval may have mined a part
  // already.
  for (let pending = true; pending; ) {
    await rpc.request('evm_mine', [])
    const receipts = (await rpc.batch(
      hashes.map((hash) => ({ method: 'eth_getTransactionReceipt', params: [hash] })),
    )) as (DevReceipt | null)[]
    const failed = receipts.findIndex((receipt) => receipt !== null && receipt.status !== '0x1')
    if (failed !== -1)
      throw new UsageError(
        'dev_chain_failed',
        `Transaction ${failed} of the dev chain's set-up reverted.`,
      )
    pending = receipts.includes(null)
  }
}

/** How many registry entries one call reads. */
const registryPage = 200

async function readQuestions(rpc: DevRpc): Promise<DevQuestion[]> {
  const registry = at('DevRegistry', devAddresses.registry)
  const count = Number(await rpc.read<bigint>(registry, 'count', []))
  const questions: DevQuestion[] = []
  for (let first = 0; first < count; first += registryPage) {
    const last = Math.min(count, first + registryPage)
    const page = await rpc.read<readonly { slug: string; questionID: Hex }[]>(registry, 'list', [
      BigInt(first),
      BigInt(last),
    ])
    page.forEach(({ slug, questionID }, index) => {
      questions.push({
        question_id: questionID,
        slug,
        outcomes: exampleQuestion(first + index).outcomes,
      })
    })
  }
  return questions
}

/**
 * Writes what a gateway and a client need to work with this chain into a folder (0700), made if
 * missing: gateway.json, trust.json, questions.json, executor.key and proposer-1.key and on (0600).
 * Paths within are relative (contract §7). The files it wrote, by name.
 */
export async function writeDevFolder(
  folder: string,
  description: DevDescription,
): Promise<readonly string[]> {
  const { trust, accounts } = description
  const { slugs: _, ...contracts } = trust
  const proposers = accounts.filter(({ role }) => role === 'proposer')
  const gateway = {
    store: './gateway-store',
    chain: {
      id: contracts.chain_id,
      rpc_urls: [description.rpc_url],
      permit2: contracts.permit2,
      signed_proposer: contracts.signed_proposer,
      oracles: contracts.oracles,
      requesters: contracts.requesters,
      tokens: contracts.tokens,
    },
    questions: './questions.json',
    slugs: { source: 'registry' },
    admission: { enabled: true, allowlist: proposers.map(({ address }) => address) },
    executor: { enabled: true, key_file: './executor.key' },
  }
  const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`
  const files: [name: string, text: string][] = [
    ['gateway.json', json(gateway)],
    ['trust.json', json(trust)],
    [
      'questions.json',
      json(description.questions.map(({ question_id, slug }) => ({ question_id, slug }))),
    ],
    ...accounts
      .filter(({ role }) => role === 'executor')
      .map((account): [string, string] => ['executor.key', `${account.private_key}\n`]),
    ...proposers.map((account, index): [string, string] => [
      `proposer-${index + 1}.key`,
      `${account.private_key}\n`,
    ]),
  ]
  await systemFiles.makeDir(folder)
  await chmod(folder, 0o700)
  for (const [name, text] of files) {
    const path = join(folder, name)
    await writeFile(path, text, { mode: 0o600 })
    // The mode above is only for a new file.
    await chmod(path, 0o600)
  }
  return files.map(([name]) => name)
}
