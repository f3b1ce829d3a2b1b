/**
 * `serve --check` on the chain: nodes, contracts, whitelists, and what the executor may and can do
 * (domain §2, §4, §6, §8).
 */
import { oracleAbi, roles, signedProposerAbi, whitelistAbi } from '../../core/chain/contracts.js'
import { lowercase, readContract } from '../../core/chain/reading.js'
import { Trust } from '../../core/client/trust/trust-file.js'
import type { GatewayConfig } from '../../core/gateway/config.js'
import { feesFor } from '../../core/gateway/executor/transaction.js'
import {
  type Address,
  type BlockHeader,
  type Chain,
  ChainError,
  type Hex,
} from '../../core/ports.js'
import type { Context } from '../terminal/context.js'
import { counted } from '../terminal/render.js'
import { type TrustCheck, verifyTrust } from '../trust-verify.js'
import { type Finding, fault, right, warning } from './findings.js'

export interface NodesChecked {
  readonly findings: readonly Finding[]
  /** Over the nodes that can be used; absent where there is none. */
  readonly chain: Chain | undefined
  readonly head: BlockHeader | undefined
  readonly genesisHash: Hex | undefined
}

/**
 * Each node by itself, because a gateway silently leaves aside those that are on another chain.
 * URLs are never shown (R5).
 */
export async function checkNodes(
  context: Context,
  { chain: section }: GatewayConfig,
): Promise<NodesChecked> {
  const { rpc_urls: urls, id } = section
  const looked = await Promise.all(
    urls.map(async (url, index) => {
      const name =
        urls.length === 1
          ? 'the node of chain.rpc_urls'
          : `node ${index + 1} of ${urls.length} of chain.rpc_urls`
      try {
        const node = await context.edges.chain([url])
        const chainId = await node.chainId()
        if (chainId !== id) {
          const hint = 'correct chain.id, or take the URL of a node of that chain'
          return {
            url,
            finding: fault('chain_id', `${name} is on chain ${chainId}, chain.id is ${id}`, hint),
          }
        }
        const head = await node.block('latest')
        if (!head) throw new ChainError('unavailable', 'it knows no latest block')
        return {
          url,
          head,
          finding: right('node', `${name} is on chain ${id}, at block ${head.number}`),
        }
      } catch (error) {
        if (!(error instanceof ChainError)) throw error
        const why = error.message.replace(/^the RPC node: /, '')
        return {
          url,
          finding: fault(
            'node',
            `${name} cannot be read: ${why}`,
            'look at chain.rpc_urls: address, key, network',
          ),
        }
      }
    }),
  )
  const sound = looked.flatMap(({ url, head }) => (head === undefined ? [] : [{ url, head }]))
  // One node that is away leaves a working gateway; one on another chain is a mistake in any case.
  const findings = looked.map(({ finding }) =>
    finding.result === 'fault' && finding.check === 'node' && sound.length > 0
      ? { ...finding, result: 'warning' as const }
      : finding,
  )
  const [first] = sound
  if (first === undefined)
    return { findings, chain: undefined, head: undefined, genesisHash: undefined }
  const chain = await context.edges.chain(
    sound.map(({ url }) => url),
    { expectedChainId: id, maxHeadAgeSeconds: section.max_head_age_seconds },
  )
  try {
    const genesis = await chain.block(0n)
    const more = await headFindings(context, chain, section, first.head)
    return { findings: [...findings, ...more], chain, head: first.head, genesisHash: genesis?.hash }
  } catch (error) {
    return {
      findings: [...findings, unread(error)],
      chain: undefined,
      head: undefined,
      genesisHash: undefined,
    }
  }
}

/** A chain that stands, or a clock that is off, keeps a gateway from getting ready (R16). */
async function headFindings(
  { clock }: Context,
  chain: Chain,
  section: GatewayConfig['chain'],
  head: BlockHeader,
): Promise<readonly Finding[]> {
  const ageSeconds = Math.round(clock.nowMs() / 1000) - Number(head.timestamp)
  const findings: Finding[] = []
  if (ageSeconds > section.max_head_age_seconds) {
    const hint =
      'the node lags, the chain stands still or this clock is fast: the gateway waits until the head is newer'
    findings.push(
      fault(
        'head',
        `the newest block is ${ageSeconds} s old, chain.max_head_age_seconds is ${section.max_head_age_seconds}`,
        hint,
      ),
    )
  }
  if ((await chain.block('finalized')) === null) {
    const hint = 'use a node that knows the finalized tag'
    findings.push(fault('finality', 'the node knows no finalized block', hint))
  }
  return findings
}

/**
 * The configured contracts, each with what it should be; and the whitelists, where the contracts
 * are sound.
 */
export async function checkContracts(
  chain: Chain,
  { chain: section }: GatewayConfig,
  head: BlockHeader,
  allowlist: readonly Address[],
): Promise<readonly Finding[]> {
  const { id, permit2, signed_proposer, oracles, requesters, tokens } = section
  try {
    const checks = await verifyTrust(
      chain,
      Trust.parse({ chain_id: id, permit2, signed_proposer, oracles, requesters, tokens }),
    )
    const findings = checks.map(contractFinding)
    const managed = oracles.filter(
      (oracle) => !checks.some(({ ok, name }) => !ok && name.startsWith(`oracle ${oracle}`)),
    )
    const lists = await Promise.all(
      managed.map((oracle) =>
        whitelistFindings(
          chain,
          head.number,
          oracle as Address,
          signed_proposer as Address,
          allowlist,
        ),
      ),
    )
    return [...findings, ...lists.flat()]
  } catch (error) {
    return [unread(error)]
  }
}

const contractHints: Record<TrustCheck['check'], string> = {
  chain_id: 'correct chain.id or chain.rpc_urls',
  code: 'correct that address in the chain section of gateway.json; no contract is there on this chain',
  permit2:
    'set chain.permit2 to what SignedProposer.permit2() answers, and make sure that it is the Permit2 you mean',
  signed_proposer:
    'correct chain.signed_proposer: this contract hashes or permits otherwise than SignedProposer does',
  oracle: 'correct chain.oracles: only the managed oracle can be served',
  requester:
    'leave this requester out of chain.requesters, or add the oracle that it asks to chain.oracles',
  token: 'correct chain.tokens: this contract is no token',
}

const contractFinding = ({ check, name, ok, detail }: TrustCheck): Finding =>
  ok ? right(check, `${name}: ${detail}`) : fault(check, `${name}: ${detail}`, contractHints[check])

/**
 * The default whitelist of an oracle: SignedProposer has to be on it, and either own it or find the
 * proposer listed (domain §4). Without ownership a wallet that is not listed never executes: told
 * by name, and a fault where that is everybody.
 */
async function whitelistFindings(
  chain: Chain,
  at: bigint,
  oracle: Address,
  signedProposer: Address,
  allowlist: readonly Address[],
): Promise<readonly Finding[]> {
  const list = lowercase(
    await readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', []),
  )
  const isListed = (account: Address) =>
    readContract(chain, at, list, whitelistAbi, 'isOnWhitelist', [account])
  const name = `the default proposer whitelist ${list} of the oracle ${oracle}`
  try {
    const [listed, owner] = await Promise.all([isListed(signedProposer), ownerOf(chain, at, list)])
    const own = listed
      ? right('whitelist', `SignedProposer is on ${name}`)
      : fault(
          'whitelist',
          `SignedProposer is not on ${name}`,
          `have the owner of that list${owner === undefined ? '' : `, ${owner},`} add ${signedProposer}`,
        )
    if (owner === signedProposer)
      return [
        own,
        right(
          'whitelist_owner',
          `SignedProposer owns ${name}: it lists each proposer for its own call`,
        ),
      ]
    const marks = await Promise.all(
      allowlist.map(async (account) => ({ account, listed: await isListed(account) })),
    )
    const missing = marks.flatMap((mark) => (mark.listed ? [] : [mark.account]))
    const whose = owner === undefined ? 'nobody' : owner
    if (missing.length === 0)
      return [
        own,
        right(
          'whitelist_owner',
          `${name} belongs to ${whose}, and every allowlisted wallet is on it`,
        ),
      ]
    const hint =
      'have its owner list these wallets, or hand its ownership to SignedProposer (transferOwnership); or take them off the allowlist'
    const detail = `${name} belongs to ${whose}, not to SignedProposer, so that only wallets on it can propose; not on it: ${missing.join(', ')}`
    return [
      own,
      missing.length === allowlist.length
        ? fault('whitelist_owner', detail, hint)
        : warning('whitelist_owner', detail, hint),
    ]
  } catch (error) {
    if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
    return [
      fault(
        'whitelist',
        `${name} does not answer as a whitelist: ${error.message}`,
        contractHints.oracle,
      ),
    ]
  }
}

/** A list without an owner is owned by nobody. */
async function ownerOf(chain: Chain, at: bigint, list: Address): Promise<Address | undefined> {
  try {
    return lowercase(await readContract(chain, at, list, whitelistAbi, 'owner', []))
  } catch (error) {
    if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
    return undefined
  }
}

/**
 * Gas that a single proposal uses, and the limit that it needs, with Polygon's storage prices
 * (domain §8: measured and computed).
 */
const gasUsed = 425_000n
const gasNeeded = 530_000n
/** Fewer than this and the next busy hour may empty the executor. */
const fewProposals = 50n

/**
 * Whether the executor may propose, and for how many proposals its coins last at the gas price of
 * now.
 */
export async function checkExecutor(
  chain: Chain,
  { chain: section, executor: settings }: GatewayConfig,
  head: BlockHeader,
  executor: Address,
): Promise<readonly Finding[]> {
  try {
    const role = await roleFinding(chain, head, section.signed_proposer as Address, executor)
    const [balanceWei, tipWei] = await Promise.all([chain.balance(executor), chain.tip()])
    if (balanceWei === 0n) {
      return [
        ...role,
        fault(
          'balance',
          `the executor ${executor} holds nothing to pay gas with`,
          `send the coin of chain ${section.id} to ${executor}`,
        ),
      ]
    }
    const ceilingWei = BigInt(Math.round(settings.max_fee_gwei * 1e9))
    const fees = feesFor(section.id, head, tipWei, ceilingWei, { kind: 'propose' })
    if (fees === undefined) {
      const detail = `executor.max_fee_gwei is ${settings.max_fee_gwei}, and gas costs ${gwei(head.baseFeePerGas + tipWei)} gwei now`
      return [
        ...role,
        warning(
          'fee_ceiling',
          detail,
          'raise executor.max_fee_gwei, or accept that nothing is sent until gas is cheaper',
        ),
      ]
    }
    const priceWei = head.baseFeePerGas + fees.maxPriorityFeePerGas
    const proposals = balanceWei / (gasUsed * priceWei)
    const detail = `the executor ${executor} holds ${coins(balanceWei)} of the chain's coin, which pays for about ${counted(proposals, 'proposal')} at ${gwei(priceWei)} gwei`
    const hint = `send the coin of chain ${section.id} to ${executor}`
    // A node takes a transaction only where the whole limit could be paid at the highest price it
    // allows.
    if (balanceWei < gasNeeded * fees.maxFeePerGas)
      return [...role, fault('balance', `${detail}, too few to send one`, hint)]
    return [
      ...role,
      proposals < fewProposals ? warning('balance', detail, hint) : right('balance', detail),
    ]
  } catch (error) {
    return [unread(error)]
  }
}

/** Nothing is said of a contract that knows no roles: it is told as no SignedProposer already. */
async function roleFinding(
  chain: Chain,
  head: BlockHeader,
  signedProposer: Address,
  executor: Address,
): Promise<readonly Finding[]> {
  try {
    const asked = [roles.delegatedProposer, executor] as const
    const granted = await readContract(
      chain,
      head.number,
      signedProposer,
      signedProposerAbi,
      'hasRole',
      asked,
    )
    if (granted) return [right('role', `the executor ${executor} has DELEGATED_PROPOSER_ROLE`)]
    const hint = `have an administrator call addDelegatedProposer(${executor}) on the SignedProposer ${signedProposer}`
    return [fault('role', `the executor ${executor} lacks DELEGATED_PROPOSER_ROLE`, hint)]
  } catch (error) {
    if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
    return []
  }
}

function unread(error: unknown): Finding {
  if (!(error instanceof ChainError)) throw error
  return fault(
    'node',
    `the chain cannot be read: ${error.message}`,
    'look at chain.rpc_urls: address, key, network',
  )
}

/** Six decimals are enough to look at. */
const decimals = (value: bigint, unit: bigint): string =>
  String(Number((value * 1_000_000n) / unit) / 1_000_000)
const gwei = (wei: bigint): string => decimals(wei, 10n ** 9n)
const coins = (wei: bigint): string => decimals(wei, 10n ** 18n)
