/** Nodes, executor and pinned contracts (contract §6; domain §2, §4, §6). */

import {
  ctfAdapterAbi,
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  typeHashes,
  witnessTypeString,
} from '#chain/contracts'
import { changedText, implementationOf, isSameCode, oracleVersion } from '#chain/implementations'
import { coinOf, coinText } from '#chain/profiles'
import { latestBlock, lowercase, readContract, unlessRefused } from '#chain/reading'
import { defaultWhitelist, isOnWhitelist, readRole, whitelistOwner } from '#chain/wallets'
import { Trust } from '#client/trust/trust'
import type { GatewayConfig } from '#gateway/config'
import type { LedgerFacts } from '#gateway/ledger/ledger'
import { gasPrice, usualGas } from '#gateway/status/health'
import { type BlockHeader, type Chain, ChainError, type Hex, type Machine } from '#ports'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import { fewProposals } from '#protocol/vitals'
import { domainSeparator, toHex } from '#protocol/witness'
import { type Finding, fail, note, pass, warn } from './finding.js'

export const nodeFix = 'check chain.rpc_urls: address, key, network'

interface CheckedChain {
  readonly chain: Chain
  readonly head: BlockHeader
  readonly genesisHash: Hex | undefined
}

/** A gateway silently skips those on another chain. URLs are never shown (R5). */
export async function checkNodes(
  { clock, edges }: Pick<Machine, 'clock' | 'edges'>,
  { chain: { rpc_urls: urls, id, max_head_age_seconds: most } }: GatewayConfig,
) {
  const looks = await Promise.all(
    urls.map((url, at) => {
      const of = urls.length === 1 ? 'the node' : `node ${at + 1} of ${urls.length}`
      return lookAtNode(edges, url, `${of} of chain.rpc_urls`, id)
    }),
  )
  const read: (CheckedChain & { readonly isFinal: boolean }) | undefined = looks.find(
    (look) => look.read,
  )?.read
  // One node that is away leaves a working gateway; one on another chain is a mistake in any case.
  const findings = looks.map(({ finding }) =>
    read && finding.id === 'node' && finding.result === 'fail'
      ? { ...finding, result: 'warn' as const }
      : finding,
  )
  if (read === undefined) return { findings, read }
  // Else a gateway does not get ready (R16).
  const age = Math.round(clock.nowMs() / 1000) - Number(read.head.timestamp)
  if (age > most)
    findings.push(
      fail(
        'head',
        `the newest block is ${age} s old; chain.max_head_age_seconds is ${most}`,
        'the node lags, the chain has stalled or this clock is fast: the gateway waits for a newer head',
      ),
    )
  if (!read.isFinal) {
    const fix = 'use a node that supports the finalized tag'
    findings.push(fail('finality', 'the node has no finalized block', fix))
  }
  return { findings, read }
}

async function lookAtNode(edges: Machine['edges'], url: string, name: string, id: number) {
  try {
    const chain = await edges.chain([url])
    const chainId = await chain.chainId()
    if (chainId !== id) {
      const fix = 'correct chain.id, or use the URL of a node on that chain'
      return { finding: fail('chain_id', `${name} is on chain ${chainId}; chain.id is ${id}`, fix) }
    }
    const head = await latestBlock(chain)
    const genesisHash = (await chain.block(0n))?.hash
    const isFinal = (await chain.block('finalized')) !== null
    return {
      finding: pass('node', `${name} is on chain ${id}, at block ${head.number}`),
      read: { chain, head, genesisHash, isFinal },
    }
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    const why = error.message.replace(/^the RPC node: /, '')
    return { finding: fail('node', `${name} cannot be read: ${why}`, nodeFix) }
  }
}

/** ChainError where the node does not answer. */
export async function checkContracts(
  { chain, head: { number: at } }: CheckedChain,
  { chain: section }: GatewayConfig,
  allowlist: readonly Address[],
  pinnedSince: LedgerFacts['implementations'],
): Promise<readonly (Finding | undefined)[]> {
  const { id, permit2, signed_proposer, oracles, requesters, tokens } = section
  const implementations = { ...section.implementations, ...Object.fromEntries(pinnedSince) }
  const contracts = { chain_id: id, permit2, signed_proposer, oracles, requesters, tokens }
  const found = await verifyTrust(chain, Trust.parse({ ...contracts, implementations }))
  const isManaged = (oracle: Address) =>
    !found.some(({ result, name }) => result === 'fail' && name.startsWith(`oracle ${oracle}`))
  const lists = await Promise.all(
    oracles
      .filter(isManaged)
      .map((oracle) => whitelistFindings({ chain, at }, oracle, signed_proposer, allowlist)),
  )
  const unpinned = `no code is pinned, so an upgrade would go unnoticed: ${howToPin}`
  return [
    ...found.map(({ id: is, name, result, detail }) =>
      result === 'pass'
        ? pass(is, `${name}: ${detail}`)
        : fail(is, `${name}: ${detail}`, contractFixes[is]),
    ),
    Object.keys(implementations).length > 0 ? undefined : note('implementation', unpinned),
    ...lists.flat(),
  ]
}

/** A revert or an answer of another shape is a finding; a node that is away is not. */
function refusalIn(error: unknown) {
  if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
  return error.message
}

const howToPin = '`proposer operator trust repin --reason <text>` pins the current code'

const contractFixes = {
  chain_id: 'correct chain.id or chain.rpc_urls',
  code: 'correct that address in the chain section of gateway.json: there is no contract at it on this chain',
  permit2:
    'set chain.permit2 to what SignedProposer.permit2() returns, and make sure that it is the Permit2 you expect',
  signed_proposer:
    'correct chain.signed_proposer: this contract hashes or permits differently from SignedProposer',
  oracle: 'correct chain.oracles: only the managed oracle is supported',
  requester: 'remove this requester from chain.requesters, or add its oracle to chain.oracles',
  token: 'correct chain.tokens: this contract is not a token',
  implementation: 'review the new code, then run `proposer operator trust repin --reason <text>`',
}

/** SignedProposer has to be on it, and either own it or find the proposer listed (domain §4). */
async function whitelistFindings(
  { chain, at }: Reading,
  oracle: Address,
  signedProposer: Address,
  allowlist: readonly Address[],
) {
  const list = await defaultWhitelist(chain, at, oracle)
  const name = `the default proposer whitelist ${list} of the oracle ${oracle}`
  try {
    return await ownerFindings({ chain, at }, list, name, signedProposer, allowlist)
  } catch (error) {
    const detail = `${name} does not respond like a whitelist: ${refusalIn(error)}`
    return [fail('whitelist', detail, contractFixes.oracle)]
  }
}

async function ownerFindings(
  { chain, at }: Reading,
  list: Address,
  name: string,
  signedProposer: Address,
  allowlist: readonly Address[],
) {
  const isListed = (account: Address) => isOnWhitelist(chain, at, list, account)
  const owner = await whitelistOwner(chain, at, list)
  const own = (await isListed(signedProposer))
    ? pass('whitelist', `SignedProposer is on ${name}`)
    : fail(
        'whitelist',
        `SignedProposer is not on ${name}`,
        `have the owner of that list add ${signedProposer}`,
      )
  const id = 'whitelist_owner'
  if (owner === signedProposer)
    return [
      own,
      pass(id, `SignedProposer owns ${name}: it adds each proposer for the duration of that call`),
    ]
  const listings = await Promise.all(allowlist.map(isListed))
  const missing = allowlist.filter((_, index) => listings[index] === false)
  const belongs = `${name} belongs to ${owner ?? 'nobody'}`
  if (missing.length === 0)
    return [own, pass(id, `${belongs}, and every allowlisted wallet is on it`)]
  return [
    own,
    (missing.length === allowlist.length ? fail : warn)(
      id,
      `${belongs}, not to SignedProposer, so only wallets on it can propose; missing: ${missing.join(', ')}`,
      'have its owner add these wallets or transfer its ownership to SignedProposer (transferOwnership), or remove them from the allowlist',
    ),
  ]
}

/** Measured and computed (domain §8). */
const gasNeeded = 530_000n

/** Nothing of the role where the contract knows none: it is no SignedProposer, as found. */
export async function checkExecutor(
  { chain, head }: CheckedChain,
  config: GatewayConfig,
  executor: Address,
) {
  const { id, signed_proposer } = config.chain
  const granted = await unlessRefused(readRole(chain, head.number, signed_proposer, executor))
  const grant = `have an administrator call addDelegatedProposer(${executor}) on the SignedProposer ${signed_proposer}`
  const role = granted
    ? pass('role', `the executor ${executor} has DELEGATED_PROPOSER_ROLE`)
    : fail('role', `the executor ${executor} lacks DELEGATED_PROPOSER_ROLE`, grant)
  const [balanceWei, tipWei] = await Promise.all([chain.balance(executor), chain.tip()])
  const { fees, priceWei } = gasPrice(id, head, tipWei, config.executor.max_fee_gwei)
  const { max_fee_gwei } = config.executor
  const proposals = balanceWei / (usualGas * priceWei)
  const detail = `the executor ${executor} holds ${coinText(balanceWei, id)}, which pays for about ${counted(proposals, 'proposal')} at ${gwei(priceWei)} gwei`
  const fund = `send ${coinOf(id) ?? 'the coin'} on chain ${id} to ${executor}`
  // A node wants the whole limit payable at the highest price it allows.
  const isEnough = balanceWei > 0n && balanceWei >= gasNeeded * (fees?.maxFeePerGas ?? 0n)
  return [
    granted === undefined ? undefined : role,
    fees
      ? undefined
      : warn(
          'fee_ceiling',
          `executor.max_fee_gwei is ${max_fee_gwei}, but gas costs ${gwei(priceWei)} gwei now`,
          'raise executor.max_fee_gwei, or accept that nothing is sent until gas is cheaper',
        ),
    !isEnough
      ? fail('balance', `${detail}, not enough to send one`, fund)
      : proposals < BigInt(fewProposals)
        ? warn('balance', detail, fund)
        : pass('balance', detail),
  ]
}

const gwei = (wei: bigint) => String(Number(wei / 1_000n) / 1_000_000)

type TrustId = keyof typeof contractFixes

/** Who asks knows the fix. */
export interface TrustFinding extends Finding {
  readonly id: TrustId
  readonly result: 'pass' | 'fail'
  readonly name: string
}

type Outcome = readonly [ok: boolean, detail: string]
type Question = readonly [id: TrustId, name: string, ask: () => Promise<Outcome>]
type Reading = { readonly chain: Chain; readonly at: bigint }
type Pinned = Reading & { readonly trust: Trust }
type Pin = readonly [
  role: string,
  address: Address,
  ask: (reading: Pinned, name: string, address: Address) => readonly Question[],
]

const finding = (id: TrustId, name: string, [ok, detail]: Outcome): TrustFinding => ({
  ...{ id, name, result: ok ? 'pass' : 'fail', detail, fix: '' },
})

/** ChainError where the node does not answer. */
export async function verifyTrust(chain: Chain, trust: Trust) {
  const same = compare(String(await chain.chainId()), String(trust.chain_id))
  const sameChain = finding('chain_id', 'chain id', same)
  // There the same addresses mean nothing.
  if (sameChain.result === 'fail') return [sameChain]
  const reading = { chain, trust, at: (await latestBlock(chain)).number }
  const pins: Pin[] = [
    ['permit2', trust.permit2, ofPermit2],
    ['signed proposer', trust.signed_proposer, ofSignedProposer],
    ...trust.oracles.map((oracle): Pin => ['oracle', oracle, ofOracle]),
    ...trust.requesters.map(
      ({ kind, address }): Pin => [`requester (${kind})`, address, requesterKinds[kind]],
    ),
    ...trust.tokens.map((token): Pin => ['token', token, ofToken]),
  ]
  const found = await Promise.all(pins.map((pin) => pinFindings(reading, pin)))
  return [sameChain, ...found.flat()]
}

async function pinFindings(reading: Pinned, [role, address, ask]: Pin) {
  const name = `${role} ${address}`
  const hasCode = (await reading.chain.code(address, reading.at)) !== '0x'
  const isFine = hasCode || role === 'requester (direct)'
  const code = finding('code', name, [isFine, hasCode ? 'has code' : 'has no code'])
  if (!hasCode) return [code]
  const questions = [...ask(reading, name, address), ...ofCode(reading, role, address)]
  const answers = questions.map(async ([id, about, answer]) => {
    try {
      return finding(id, about, await answer())
    } catch (error) {
      return finding(id, about, [false, refusalIn(error)])
    }
  })
  return [code, ...(await Promise.all(answers))]
}

/** As our signatures do (domain §2). */
const signedAs = {
  PROPOSAL_TYPEHASH: typeHashes.proposal,
  WITNESS_TYPE_STRING: witnessTypeString,
  DELEGATED_PROPOSER_ROLE: roles.delegatedProposer,
} as const

const ofSignedProposer: Pin[2] = ({ chain, at, trust }, _name, address) => {
  const names = Object.keys(signedAs) as (keyof typeof signedAs)[]
  const read = (name: keyof typeof signedAs | 'permit2') =>
    readContract(chain, at, address, signedProposerAbi, name, [])
  return [
    ...names.map(
      (name): Question => [
        'signed_proposer',
        name,
        async () => compare(await read(name), signedAs[name]),
      ],
    ),
    ['permit2', 'permit2()', async () => compare(lowercase(await read('permit2')), trust.permit2)],
  ]
}

/** It tells this chain from another, too (domain §3.1). */
const ofPermit2: Pin[2] = ({ chain, at, trust }, name, address) => {
  const separator = async () =>
    compare(
      await readContract(chain, at, address, permit2Abi, 'DOMAIN_SEPARATOR', []),
      toHex(domainSeparator(trust.chain_id, address)),
    )
  return [['permit2', `${name} DOMAIN_SEPARATOR`, separator]]
}

/**
 * Only the managed oracle has a proposer whitelist; SignedProposer works with no other (domain §4).
 */
const ofOracle: Pin[2] = ({ chain, at }, name, oracle) => [
  [
    'oracle',
    `${name} defaultProposerWhitelist()`,
    async () => {
      const list = await defaultWhitelist(chain, at, oracle)
      return [(await chain.code(list, at)) !== '0x', list]
    },
  ],
  // What an upgrade may bring: version 3 lets rewards and bonds change while a request is open.
  [
    'oracle',
    `${name} version`,
    async () => [true, `managed oracle, version ${await oracleVersion(chain, oracle, at)}`],
  ],
]

/** A proxy may run other code by now (domain §10). */
function ofCode({ chain, at, trust }: Pinned, role: string, address: Address): readonly Question[] {
  const pinned = trust.implementations?.[address]
  if (role !== 'oracle' && role !== 'token' && pinned === undefined) return []
  const compared = async (): Promise<Outcome> => {
    const now = await implementationOf(chain, address, at)
    const runs = `runs ${now.implementation}`
    if (pinned === undefined) return [true, `${runs}, code hash ${now.code_hash}; not pinned`]
    const isSame = isSameCode(now, pinned)
    return [isSame, isSame ? `${runs}, as pinned` : changedText({ address, pinned, now })]
  }
  return [['implementation', `${role} ${address} implementation`, compared]]
}

/** Older ones ask the classic oracle (domain §5.1). */
const ofAdapter: Pin[2] = ({ chain, at, trust }, name, address) => {
  const asks = async (): Promise<Outcome> => {
    const oracle = lowercase(
      await readContract(chain, at, address, ctfAdapterAbi, 'optimisticOracle', []),
    )
    const isPinned = trust.oracles.includes(oracle)
    return [isPinned, isPinned ? oracle : `${oracle}, which is not among the oracles`]
  }
  return [['requester', `${name} optimisticOracle()`, asks]]
}

/** Without such a getter no more can be said (domain §5.2). */
const ofReporter: Pin[2] = ({ chain, at, trust }, name, address) => {
  const mayAsk = async (oracle: Address) => {
    const list = await readContract(chain, at, oracle, oracleAbi, 'requesterWhitelist', [])
    return isOnWhitelist(chain, at, lowercase(list), address)
  }
  const asked = async (): Promise<Outcome> => {
    const allowed = await Promise.all(trust.oracles.map((one) => unlessRefused(mayAsk(one))))
    const isAny = allowed.includes(true)
    return [isAny, `on the requester whitelist of ${isAny ? 'a' : 'no'} pinned oracle`]
  }
  return [['requester', `${name} may ask`, asked]]
}

const requesterKinds: Readonly<Record<Trust['requesters'][number]['kind'], Pin[2]>> = {
  'uma-ctf-adapter': ofAdapter,
  'uma-ctf-adapter-negrisk': ofAdapter,
  'oo-reporter': ofReporter,
  direct: () => [],
}

/** Amounts are signed in raw units (domain §4). */
const ofToken: Pin[2] = ({ chain, at }, name, token) => {
  const unit = async (): Promise<Outcome> => {
    const decimals = await readContract(chain, at, token, erc20Abi, 'decimals', [])
    const symbol = await readContract(chain, at, token, erc20Abi, 'symbol', [])
    return [true, `${decimals} decimals, ${symbol.slice(0, 32)}`]
  }
  return [['token', `${name} decimals()`, unit]]
}

const compare = (found: string, expected: string): Outcome =>
  found === expected ? [true, found] : [false, `${found}, pinned ${expected}`]
