/**
 * The look at each head: its logs, what they make due, and whether the code is still what is
 * trusted (contract §9, domain §10).
 */
import {
  changedImplementations,
  changedText,
  type Implementations,
  implementationsOf,
  oracleVersion,
  proxiesOf,
} from '#chain/implementations'
import { unlessRefused } from '#chain/reading'
import { type BlockHeader, ChainError, type ChainLog, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import {
  addSpent,
  followedTopics,
  knownHead,
  meaningOf,
  type News,
  type ViewState,
} from './state.js'

const everyMs = 60_000

export const pinsOf = ({
  implementations,
  ledger,
}: Pick<ViewState, 'implementations' | 'ledger'>): Implementations => ({
  ...implementations,
  ...Object.fromEntries(ledger.implementations),
})

export async function watchCode(state: ViewState) {
  const { code, chain, clock } = state
  const at = state.heads?.latest
  if (at === undefined) return
  const isOld = clock.monotonicMs() - code.lookedAtMs >= everyMs
  const mayBeBack = code.changed.length > 0 && code.lookedAt !== at.hash
  if (!code.isDue && !isOld && !mayBeBack) return
  const isWhole = code.isDue
  code.isDue = false
  try {
    const pins = pinsOf(state)
    const slotsOnly = !isWhole && code.changed.length === 0
    const changed = await changedImplementations(chain, pins, at.number, { slotsOnly })
    if (isWhole) code.versions = await versionsOf(state, at.number)
    Object.assign(code, { changed, lookedAt: at.hash, lookedAtMs: clock.monotonicMs() })
    if (!code.isDue) code.isSuspect = false
  } catch (error) {
    code.isDue ||= isWhole
    throw error
  }
}

async function versionsOf({ chain, contracts }: ViewState, at: bigint) {
  const found = await Promise.all(
    contracts.oracles.map(async (oracle) => {
      const version = await unlessRefused(oracleVersion(chain, oracle, at))
      return version === undefined ? [] : ([[oracle, version]] as const)
    }),
  )
  return new Map(found.flat())
}

export function codeFaults(state: ViewState) {
  const { changed, lookedAt, isSuspect } = state.code
  if (Object.keys(pinsOf(state)).length === 0) return []
  if (lookedAt === undefined) return ['the code of the pinned contracts has not been read yet']
  if (changed.length > 0)
    return changed.map((one) => `${changedText(one)}: the operator must pin it again`)
  return isSuspect ? ['a pinned contract was upgraded: its new code is being read'] : []
}

export async function codeNow(state: ViewState): Promise<Implementations> {
  const { chain, contracts } = state
  const { number } = knownHead(state)
  const pinned = Object.keys(pinsOf(state)) as Address[]
  return implementationsOf(chain, [...contracts.oracles, ...contracts.tokens, ...pinned], number)
}

/** Beyond so many missed blocks everything is due: nodes bound the range of logs. */
const followedBlocks = 128n
/** What fails for good is judged in finalized state (R14, R15). */
const noFinality =
  'the node reports no finalized block, which the gateway requires: use a node that supports the block tag "finalized"'

const wholeLookMs = 30_000

export async function lookAtHead(state: ViewState) {
  const { chain, contracts, heads: before, clock } = state
  const atMs = clock.monotonicMs()
  const isWhole =
    before === undefined ||
    state.wrongChain !== undefined ||
    state.waits() ||
    atMs - state.wholeLookAtMs >= wholeLookMs
  const [told, latest, final] = await Promise.all([
    isWhole ? chain.chainId() : undefined,
    chain.block('latest'),
    isWhole ? finalizedBlock(state) : before?.finalized,
  ])
  // A node on another chain knows no block of ours.
  const chainId = told ?? (latest === null ? await chain.chainId() : undefined)
  if (chainId !== undefined)
    state.wrongChain =
      chainId === contracts.chainId
        ? await otherGenesis(state)
        : `the node is on chain ${chainId}, not on ${contracts.chainId}`
  if (state.wrongChain !== undefined) return false
  const finalized = final ?? null
  if (latest === null) throw new ChainError('unavailable', 'the node has no latest block')
  if (finalized === null) throw new ChainError('unavailable', noFinality)
  if (isWhole) state.wholeLookAtMs = atMs
  // Another node that is behind shows an old head; going back would undo what is known.
  if (
    before !== undefined &&
    latest.number < before.latest.number &&
    state.hashes.get(latest.number) === latest.hash
  )
    return false
  const isNew = before?.latest.hash !== latest.hash
  if (isNew) {
    const news = before ? await newsSince(state, before.latest, latest) : 'lost'
    // Nothing waits from here to the heads: who reads meanwhile sees all of this or nothing.
    applyNews(state, news, latest)
    state.advancedAtMs = clock.monotonicMs()
  }
  const isBehind = before !== undefined && finalized.number < before.finalized.number
  const steady = isBehind ? before.finalized : finalized
  state.heads = { latest, finalized: steady }
  return isNew || before?.finalized.hash !== finalized.hash
}

async function otherGenesis(state: ViewState) {
  const { info } = state.ledger
  if (state.isIdentified) return undefined
  const genesis = info ? await state.chain.block(0n) : null
  if (info && genesis && genesis.hash !== info.genesisHash)
    return `the node's chain begins with block ${genesis.hash}, and the store's with ${info.genesisHash}`
  state.isIdentified = true
  return undefined
}

const finalizedBlock = ({ chain }: ViewState) =>
  chain.block('finalized').catch((error: unknown) => {
    const isUnknown =
      error instanceof ChainError &&
      (error.kind === 'refused' || /block not found|unknown block/i.test(error.message))
    if (isUnknown) return null
    throw error
  })

async function newsSince(state: ViewState, from: BlockHeader, to: BlockHeader): Promise<News> {
  const { chain, contracts } = state
  const distance = to.number - from.number
  if (distance < 1n || distance > followedBlocks) return 'lost'
  const isNext = distance === 1n
  if (isNext && to.parentHash !== from.hash) return 'lost'
  const logs = await logsOf(state, from.number + 1n, to.number, isNext ? to.hash : undefined)
  if (!isNext) {
    // Read after the logs: those of one branch under the head of another would leave a gap.
    const [first, last] = await Promise.all([chain.block(from.number), chain.block(to.number)])
    if (first?.hash !== from.hash) return 'lost'
    if (last?.hash !== to.hash)
      throw new ChainError(
        'unavailable',
        `the node changed its block ${to.number} while its logs were read`,
      )
  }
  return meaningOf(logs, contracts, state.turn)
}

/** A range that a node refuses may be too long for it: it is asked for in halves. */
async function logsOf(
  state: ViewState,
  fromBlock: bigint,
  toBlock: bigint,
  blockHash?: Hex,
): Promise<readonly ChainLog[]> {
  const { oracles, requesters, permit2 } = state.contracts
  const asking = requesters.map(({ address }) => address)
  // Of tokens those alone whose proxies are pinned: a busy token is in the bloom of every block.
  const followed = [...oracles, ...asking, permit2, ...proxiesOf(pinsOf(state))]
  const addresses = [...new Set(followed)]
  const filter = { fromBlock, toBlock, addresses, topics: [followedTopics] }
  try {
    return await state.chain.logs(blockHash ? { ...filter, blockHash } : filter)
  } catch (error) {
    if (!(error instanceof ChainError) || error.kind !== 'refused' || fromBlock === toBlock)
      throw error
    const middle = (fromBlock + toBlock) / 2n
    const first = await logsOf(state, fromBlock, middle)
    return [...first, ...(await logsOf(state, middle + 1n, toBlock))]
  }
}

function applyNews(state: ViewState, news: News, { number, hash }: BlockHeader) {
  const { book, hashes, spent, code } = state
  for (const questionId of book.note(news === 'lost' ? 'all' : news.changed))
    state.unread.add(questionId)
  if (news === 'lost') {
    spent.clear()
    hashes.clear()
    code.isDue = true
  } else {
    if (news.isUpgrade) code.isDue = code.isSuspect = true
    for (const { owner, word, mask } of news.invalidated) addSpent(state, owner, word, mask)
  }
  hashes.set(number, hash)
}
