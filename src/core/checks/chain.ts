/** What a chain tells of nodes, executor and pinned contracts (contract §6; domain §2, §4, §6). */
import {
  ctfAdapterAbi,
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  typeHashes,
  whitelistAbi,
  witnessTypeString,
} from '#chain/contracts'
import { changedText, implementationOf, isSameCode, oracleVersion } from '#chain/implementations'
import { coinOf, coinText } from '#chain/profiles'
import { latestBlock, lowercase, readContract, unlessRefused } from '#chain/reading'
import { Trust } from '#client/trust/trust-file'
import type { GatewayConfig } from '#gateway/config'
import { feesFor } from '#gateway/executor/transaction'
import { type BlockHeader, type Chain, ChainError, type Hex, type Machine } from '#ports'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import { fewProposals } from '#protocol/vitals'
import { domainSeparator, toHex } from '#protocol/witness'
import { type Finding, fail, listed, note, pass, warn } from './finding.js'
import type { StoreContent } from './store.js'

interface CheckedChain {
  readonly chain: Chain
  readonly head: BlockHeader
  readonly genesisHash: Hex | undefined
}

const nodeFix = 'check chain.rpc_urls: address, key, network'

/** Each by itself: a gateway silently skips those on another chain. URLs are never shown (R5). */
export async function checkNodes(
  machine: Pick<Machine, 'clock' | 'edges'>,
  { chain: section }: GatewayConfig,
) {
  const { rpc_urls: urls, id, max_head_age_seconds: maxHeadAgeSeconds } = section
  const checked = await Promise.all(
    urls.map(async (url, index) => {
      const of = urls.length === 1 ? 'the node' : `node ${index + 1} of ${urls.length}`
      return { url, ...(await checkNode(machine, url, `${of} of chain.rpc_urls`, id)) }
    }),
  )
  const sound = checked.flatMap(({ url, head }) => (head === undefined ? [] : [{ url, head }]))
  // One node that is away leaves a working gateway; one on another chain is a mistake in any case.
  const findings = checked.map(({ finding }) =>
    finding.id === 'node' && finding.result === 'fail' && sound.length > 0
      ? { ...finding, result: 'warn' as const }
      : finding,
  )
  const [first] = sound
  if (first === undefined) return { findings, read: undefined }
  const { head } = first
  try {
    const usable = sound.map(({ url }) => url)
    const chain = await machine.edges.chain(usable, { expectedChainId: id, maxHeadAgeSeconds })
    const genesis = await chain.block(0n)
    const more = await headFindings(machine, chain, section, head)
    return { findings: [...findings, ...more], read: { chain, head, genesisHash: genesis?.hash } }
  } catch (error) {
    return { findings: [...findings, unread(error)], read: undefined }
  }
}

async function checkNode({ edges }: Pick<Machine, 'edges'>, url: string, name: string, id: number) {
  try {
    const node = await edges.chain([url])
    const chainId = await node.chainId()
    if (chainId !== id) {
      const fix = 'correct chain.id, or use the URL of a node on that chain'
      return { finding: fail('chain_id', `${name} is on chain ${chainId}; chain.id is ${id}`, fix) }
    }
    const head = await node.block('latest')
    if (!head) throw new ChainError('unavailable', 'it has no latest block')
    return { head, finding: pass('node', `${name} is on chain ${id}, at block ${head.number}`) }
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    const why = error.message.replace(/^the RPC node: /, '')
    return { finding: fail('node', `${name} cannot be read: ${why}`, nodeFix) }
  }
}

/** A chain that stands, or a clock that is off, keeps a gateway from getting ready (R16). */
async function headFindings(
  { clock }: Pick<Machine, 'clock'>,
  chain: Chain,
  { max_head_age_seconds: most }: GatewayConfig['chain'],
  head: BlockHeader,
) {
  const ageSeconds = Math.round(clock.nowMs() / 1000) - Number(head.timestamp)
  const isFinal = (await chain.block('finalized')) !== null
  const fix = 'use a node that supports the finalized tag'
  return listed([
    ageSeconds <= most
      ? undefined
      : fail(
          'head',
          `the newest block is ${ageSeconds} s old; chain.max_head_age_seconds is ${most}`,
          'the node lags, the chain has stalled or this clock is fast: the gateway waits for a newer head',
        ),
    isFinal ? undefined : fail('finality', 'the node has no finalized block', fix),
  ])
}

/** The whitelists where the contracts are sound. */
export async function checkContracts(
  { chain, head }: CheckedChain,
  { chain: section }: GatewayConfig,
  { allowlist, implementations: pinnedSince }: StoreContent,
): Promise<readonly (Finding | undefined)[]> {
  const { id, permit2, signed_proposer, oracles, requesters, tokens } = section
  const implementations = { ...section.implementations, ...Object.fromEntries(pinnedSince) }
  const contracts = { chain_id: id, permit2, signed_proposer, oracles, requesters, tokens }
  const pins = Trust.parse({ ...contracts, implementations })
  try {
    const checks = await verifyTrust(chain, pins)
    const failed = checks.filter(({ result }) => result === 'fail')
    const managed = oracles.filter(
      (oracle) => !failed.some(({ name }) => name.startsWith(`oracle ${oracle}`)),
    )
    const lists = await Promise.all(
      managed.map((oracle) =>
        whitelistFindings(chain, head.number, oracle, signed_proposer, allowlist),
      ),
    )
    const isPinned = Object.keys(implementations).length > 0
    const unpinned = `no code is pinned, so an upgrade would go unnoticed: ${howToPin}`
    return [
      ...checks.map(contractFinding),
      isPinned ? undefined : note('implementation', unpinned),
      ...lists.flat(),
    ]
  } catch (error) {
    return [unread(error)]
  }
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

const contractFinding = ({ id, name, result, detail }: TrustFinding) =>
  result === 'pass'
    ? pass(id, `${name}: ${detail}`)
    : fail(id, `${name}: ${detail}`, contractFixes[id])

/** SignedProposer has to be on it, and either own it or find the proposer listed (domain §4). */
async function whitelistFindings(
  chain: Chain,
  at: bigint,
  oracle: Address,
  signedProposer: Address,
  allowlist: readonly Address[],
) {
  const list = await whitelistOf(chain, at, oracle)
  const isListed = (account: Address) =>
    readContract(chain, at, list, whitelistAbi, 'isOnWhitelist', [account])
  const name = `the default proposer whitelist ${list} of the oracle ${oracle}`
  try {
    const [isOn, owner] = await Promise.all([
      isListed(signedProposer),
      unlessRefused(readContract(chain, at, list, whitelistAbi, 'owner', [])).then(
        (found) => found && lowercase(found),
      ),
    ])
    const whose = owner === undefined ? '' : `, ${owner},`
    const own = isOn
      ? pass('whitelist', `SignedProposer is on ${name}`)
      : fail(
          'whitelist',
          `SignedProposer is not on ${name}`,
          `have the owner of that list${whose} add ${signedProposer}`,
        )
    if (owner === signedProposer) {
      const detail = `SignedProposer owns ${name}: it adds each proposer for the duration of that call`
      return [own, pass('whitelist_owner', detail)]
    }
    const listings = await Promise.all(allowlist.map(isListed))
    const missing = allowlist.filter((_, index) => listings[index] === false)
    const belongs = `${name} belongs to ${owner ?? 'nobody'}`
    if (missing.length === 0)
      return [own, pass('whitelist_owner', `${belongs}, and every allowlisted wallet is on it`)]
    return [
      own,
      (missing.length === allowlist.length ? fail : warn)(
        'whitelist_owner',
        `${belongs}, not to SignedProposer, so only wallets on it can propose; missing: ${missing.join(', ')}`,
        'have its owner add these wallets or transfer its ownership to SignedProposer (transferOwnership), or remove them from the allowlist',
      ),
    ]
  } catch (error) {
    if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
    const detail = `${name} does not respond like a whitelist: ${error.message}`
    return [fail('whitelist', detail, contractFixes.oracle)]
  }
}

/** Gas of a proposal, and the limit that it needs (domain §8: measured and computed). */
const gasUsed = 425_000n
const gasNeeded = 530_000n

export async function checkExecutor(
  checked: CheckedChain,
  config: GatewayConfig,
  executor: Address,
) {
  try {
    return [
      await roleFinding(checked, config.chain.signed_proposer, executor),
      await balanceFinding(checked, config, executor),
    ]
  } catch (error) {
    return [unread(error)]
  }
}

/** Nothing is said of a contract that knows no roles: it is no SignedProposer, as found already. */
async function roleFinding(
  { chain, head }: CheckedChain,
  signedProposer: Address,
  executor: Address,
) {
  const args = [roles.delegatedProposer, executor] as const
  const granted = await unlessRefused(
    readContract(chain, head.number, signedProposer, signedProposerAbi, 'hasRole', args),
  )
  if (granted === undefined) return undefined
  if (granted) return pass('role', `the executor ${executor} has DELEGATED_PROPOSER_ROLE`)
  const fix = `have an administrator call addDelegatedProposer(${executor}) on the SignedProposer ${signedProposer}`
  return fail('role', `the executor ${executor} lacks DELEGATED_PROPOSER_ROLE`, fix)
}

async function balanceFinding(
  { chain, head }: CheckedChain,
  { chain: { id }, executor: { max_fee_gwei } }: GatewayConfig,
  executor: Address,
) {
  const [balanceWei, tipWei] = await Promise.all([chain.balance(executor), chain.tip()])
  const fix = `send ${coinOf(id) ?? 'the coin'} on chain ${id} to ${executor}`
  if (balanceWei === 0n)
    return fail('balance', `the executor ${executor} has no balance to pay for gas`, fix)
  const ceilingWei = BigInt(Math.round(max_fee_gwei * 1e9))
  const fees = feesFor(id, head, tipWei, ceilingWei, { kind: 'propose' })
  if (fees === undefined)
    return warn(
      'fee_ceiling',
      `executor.max_fee_gwei is ${max_fee_gwei}, but gas costs ${gwei(head.baseFeePerGas + tipWei)} gwei now`,
      'raise executor.max_fee_gwei, or accept that nothing is sent until gas is cheaper',
    )
  const priceWei = head.baseFeePerGas + fees.maxPriorityFeePerGas
  const proposals = balanceWei / (gasUsed * priceWei)
  const detail = `the executor ${executor} holds ${coinText(balanceWei, id)}, which pays for about ${counted(proposals, 'proposal')} at ${gwei(priceWei)} gwei`
  // A node wants the whole limit payable at the highest price it allows.
  if (balanceWei < gasNeeded * fees.maxFeePerGas)
    return fail('balance', `${detail}, not enough to send one`, fix)
  return proposals < BigInt(fewProposals) ? warn('balance', detail, fix) : pass('balance', detail)
}

function unread(error: unknown) {
  if (!(error instanceof ChainError)) throw error
  return fail('node', `the chain cannot be read: ${error.message}`, nodeFix)
}

const gwei = (wei: bigint) => String(Number(wei / 1_000n) / 1_000_000)

type TrustId = keyof typeof contractFixes

/** Who asks knows the fix. */
export interface TrustFinding extends Finding {
  readonly id: TrustId
  readonly result: 'pass' | 'fail'
  readonly name: string
}

type Outcome = { readonly ok: boolean; readonly detail: string }

const finding = (id: TrustId, name: string, { ok, detail }: Outcome): TrustFinding => ({
  ...{ id, name, result: ok ? 'pass' : 'fail', detail, fix: '' },
})

type Reading = { readonly chain: Chain; readonly at: bigint }

/** ChainError where the node does not answer: that says nothing about the pins. */
export async function verifyTrust(chain: Chain, trust: Trust) {
  const chainId = await chain.chainId()
  const same = compare(String(chainId), String(trust.chain_id))
  const sameChain = finding('chain_id', 'chain id', same)
  // On another chain the same addresses mean nothing: what they hold there is not worth telling.
  if (!same.ok) return [sameChain]
  const reading = { chain, at: (await latestBlock(chain)).number }
  const permit2: Pin = ['permit2', trust.permit2, () => [permit2Check(reading, trust)]]
  const proposer: Pin = [
    'signed proposer',
    trust.signed_proposer,
    () => proposerChecks(reading, trust),
  ]
  const others = [
    ...trust.oracles.map((oracle): Pin => ['oracle', oracle, () => oracleChecks(reading, oracle)]),
    ...trust.requesters.map((requester): Pin => {
      const check = () =>
        requesterCheck(reading, trust, requester, trust.oracles.filter(isAnswering))
      return [`requester (${requester.kind})`, requester.address, check]
    }),
    ...trust.tokens.map((token): Pin => ['token', token, () => [tokenCheck(reading, token)]]),
  ]
  const code = await Promise.all(
    [permit2, proposer, ...others].map((pin) => codeCheck(reading, pin)),
  )
  // What has no code answers nothing: one finding is enough.
  const isAnswering = (address: string) =>
    !code.some(({ name, detail }) => name.endsWith(address) && detail !== hasCode)
  const answering = (pins: readonly Pin[]) => pins.filter(([, address]) => isAnswering(address))
  const answers = await Promise.all([
    ...answering([proposer, permit2, ...others]).flatMap(([, , checks]) => checks()),
    ...answering([permit2, proposer, ...others]).flatMap((pin) =>
      implementationCheck(reading, pin, trust),
    ),
  ])
  return [sameChain, ...code, ...answers]
}

type Pin = readonly [name: string, address: Address, checks: () => readonly Promise<TrustFinding>[]]

const hasCode = 'has code'

async function codeCheck({ chain, at }: Reading, [name, address]: Pin) {
  const present = (await chain.code(address, at)) !== '0x'
  const ok = present || name === 'requester (direct)'
  return finding('code', `${name} ${address}`, { ok, detail: present ? hasCode : 'has no code' })
}

/** Whether it hashes and spends as our signatures do (domain §2). */
const signedAs = {
  PROPOSAL_TYPEHASH: typeHashes.proposal,
  WITNESS_TYPE_STRING: witnessTypeString,
  DELEGATED_PROPOSER_ROLE: roles.delegatedProposer,
} as const

function proposerChecks({ chain, at }: Reading, trust: Trust) {
  const address = trust.signed_proposer
  const names = Object.keys(signedAs) as (keyof typeof signedAs)[]
  const read = (name: keyof typeof signedAs | 'permit2') =>
    readContract(chain, at, address, signedProposerAbi, name, [])
  return [
    ...names.map((name) =>
      answerCheck('signed_proposer', name, async () => compare(await read(name), signedAs[name])),
    ),
    answerCheck('permit2', 'permit2()', async () =>
      compare(lowercase(await read('permit2')), trust.permit2),
    ),
  ]
}

/** It tells Permit2 from anything else at its address, and this chain from another (domain §3.1). */
const permit2Check = ({ chain, at }: Reading, { permit2, chain_id }: Trust) =>
  answerCheck('permit2', `permit2 ${permit2} DOMAIN_SEPARATOR`, async () =>
    compare(
      await readContract(chain, at, permit2, permit2Abi, 'DOMAIN_SEPARATOR', []),
      toHex(domainSeparator(chain_id, permit2)),
    ),
  )

/**
 * Only the managed oracle has a proposer whitelist; SignedProposer works with no other (domain §4).
 */
const oracleChecks = ({ chain, at }: Reading, oracle: Address) => [
  answerCheck('oracle', `oracle ${oracle} defaultProposerWhitelist()`, async () => {
    const list = await whitelistOf(chain, at, oracle)
    return { ok: (await chain.code(list, at)) !== '0x', detail: list }
  }),
  // What an upgrade may bring: version 3 lets rewards and bonds change while a request is open.
  answerCheck('oracle', `oracle ${oracle} version`, async () => ({
    ok: true,
    detail: `managed oracle, version ${await oracleVersion(chain, oracle, at)}`,
  })),
]

const whitelistOf = async (chain: Chain, at: bigint, oracle: Address) =>
  lowercase(await readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', []))

/** A proxy may run other code than when it was pinned (domain §10). */
function implementationCheck({ chain, at }: Reading, [name, address]: Pin, trust: Trust) {
  const pinned = trust.implementations?.[address]
  if (name !== 'oracle' && name !== 'token' && pinned === undefined) return []
  return answerCheck('implementation', `${name} ${address} implementation`, async () => {
    const now = await implementationOf(chain, address, at)
    const { implementation, code_hash } = now
    if (pinned === undefined)
      return { ok: true, detail: `runs ${implementation}, code hash ${code_hash}; not pinned` }
    return isSameCode(now, pinned)
      ? { ok: true, detail: `runs ${implementation}, as pinned` }
      : { ok: false, detail: changedText({ address, pinned, now }) }
  })
}

/**
 * An adapter names its oracle (domain §5.1: older ones ask the classic one). A reporter has no such
 * getter: that it may ask at a pinned oracle is the most that the chain can say (domain §5.2).
 */
function requesterCheck(
  { chain, at }: Reading,
  trust: Trust,
  { address, kind }: Trust['requesters'][number],
  oracles: readonly Address[],
) {
  const name = `requester (${kind}) ${address}`
  if (kind === 'direct') return []
  if (kind !== 'oo-reporter')
    return [
      answerCheck('requester', `${name} optimisticOracle()`, async () => {
        const oracle = lowercase(
          await readContract(chain, at, address, ctfAdapterAbi, 'optimisticOracle', []),
        )
        const ok = trust.oracles.includes(oracle)
        return { ok, detail: ok ? oracle : `${oracle}, which is not among the oracles` }
      }),
    ]
  return [
    answerCheck('requester', `${name} may ask`, async () => {
      const allowed = await Promise.all(
        oracles.map(async (oracle) => {
          const list = await readContract(chain, at, oracle, oracleAbi, 'requesterWhitelist', [])
          return readContract(chain, at, lowercase(list), whitelistAbi, 'isOnWhitelist', [address])
        }),
      )
      const ok = allowed.includes(true)
      return { ok, detail: `on the requester whitelist of ${ok ? 'a' : 'no'} pinned oracle` }
    }),
  ]
}

/** Amounts are signed in raw units: what a unit is must be reported by the token (domain §4). */
function tokenCheck({ chain, at }: Reading, token: Address) {
  return answerCheck('token', `token ${token} decimals()`, async () => {
    const [decimals, symbol] = await Promise.all([
      readContract(chain, at, token, erc20Abi, 'decimals', []),
      readContract(chain, at, token, erc20Abi, 'symbol', []),
    ])
    return { ok: true, detail: `${decimals} decimals, ${symbol.slice(0, 32)}` }
  })
}

async function answerCheck(id: TrustId, name: string, ask: () => Promise<Outcome>) {
  try {
    return finding(id, name, await ask())
  } catch (error) {
    // A revert or an answer of another shape is the finding; a node that is away is not.
    if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
    return finding(id, name, { ok: false, detail: error.message })
  }
}

const compare = (found: string, expected: string) =>
  found === expected
    ? { ok: true, detail: found }
    : { ok: false, detail: `${found}, pinned ${expected}` }
