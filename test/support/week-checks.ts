/** What has to hold when the week rests, and when it is over (contract §5; R3, R15). */

import type { Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { actors, contracts } from './week-chain.js'
import {
  factsOf,
  failuresIn,
  failureTable,
  isOpen,
  operatorFaults,
  type Signed,
} from './week-model.js'
import { type ChainProposal, ownProposal } from './week-proposals.js'
import { listedWallets, type WeekWorld } from './week-world.js'

const nameOf = (world: WeekWorld, id: string) =>
  world.signed.find(({ candidateId }) => candidateId === id)?.name ?? id

function signedOf(world: WeekWorld, id: string): Signed {
  const found = world.signed.find(({ candidateId }) => candidateId === id)
  if (found === undefined) throw new Error(`nobody signed candidate ${id}`)
  return found
}

const endings = new Set([
  'round_advanced',
  'superseded',
  'request_not_open',
  'permit_expired',
  'permit_nonce_used',
])
const cheapWei = 10n ** 10n
/**
 * Blocks after which everything that can move has moved: resending waits for up to 30 s, a block
 * takes two.
 */
export const restBlocks = 20

export async function checkWaiting(world: WeekWorld): Promise<readonly string[]> {
  const active = world.gateway.active()
  const operator = await operatorFaults(world.chain)
  const header = await world.chain.request<{ baseFeePerGas: Hex }>('eth_getBlockByNumber', [
    'latest',
    false,
  ])
  const isDear = BigInt(header.baseFeePerGas) > cheapWei
  const reasons: string[] = []
  const stuck: string[] = []
  for (const candidate of active) {
    const why =
      operator.length > 0
        ? 'operator'
        : isDear
          ? 'gas'
          : await reasonToWait(world, candidate, active)
    if (why === undefined)
      stuck.push(`${nameOf(world, candidate.id)} is ${candidate.progress.status} for no reason`)
    else reasons.push(why)
  }
  if (stuck.length > 0)
    throw new Error(
      `${stuck.join('; ')}; the gateway says: ${world.gateway.faults().join('; ') || 'nothing'}`,
    )
  for (const why of reasons) world.count(`waits: ${why}`)
  return reasons
}

async function reasonToWait(
  world: WeekWorld,
  { id, round }: Candidate,
  active: readonly Candidate[],
): Promise<string | undefined> {
  const signed = signedOf(world, id)
  const facts = await factsOf(world.chain, signed, world.registry, world.chain.head().number)
  const against = failuresIn(signed, facts, 0n)
  // These end a waiting candidate, whatever it waits for; everything else is looked at when its
  // turn comes: not before the wait of its wallet is over.
  if ([...against].some((code) => endings.has(code))) return undefined
  if (facts.paused) return 'paused'
  const first = active.find(
    (other) => other.round.key === round.key && other.progress.status === 'selected',
  )
  if (first !== undefined && first.id !== id) return 'stands in'
  // X1: a wallet whose proposals failed on chain waits; by our books, and as the gateway says. Where
  // its wait ended within the rest, it need not have moved yet.
  const failures = [...world.progress].filter(
    ([other, progress]) =>
      progress.status === 'failed' &&
      progress.failure.stage === 'confirmation' &&
      signedOf(world, other).wallet === signed.wallet,
  )
  return failures.length > 1 && world.gateway.heldBack(id, 2n * BigInt(restBlocks)) !== undefined
    ? 'its wallet failed'
    : undefined
}

export async function checkEnds(world: WeekWorld): Promise<void> {
  for (const [id, progress] of world.progress) {
    const signed = signedOf(world, id)
    const status = await world.gateway.status(signed.question.questionId, id)
    world.count(`end ${status.status}${status.failure ? ` ${status.failure.code}` : ''}`)
    if (status.status !== progress.status)
      throw new Error(
        `${signed.name} is shown as ${status.status}, and was last ${progress.status}`,
      )
    if (status.status === 'executed') continue
    if (status.status !== 'failed' || status.failure === null)
      throw new Error(`${signed.name} is ${status.status} at the end`)
    const { code, next_action, retryable, can_resubmit } = status.failure
    const facts = await factsOf(world.chain, signed, world.registry, world.chain.head().number)
    const now = await factsNow(world, signed)
    // Contract §9: a new round that is already open is signed for, not waited for.
    const next =
      code === 'round_advanced' && now ? 'sign_new_authorization' : failureTable[code]?.next
    if (next !== next_action)
      throw new Error(`${signed.name}: ${code} says ${next_action}, contract §5 and §9 ${next}`)
    if (can_resubmit !== now)
      throw new Error(
        `${signed.name}: can_resubmit is ${can_resubmit}, a new submission would be ${now ? '' : 'not '}admitted`,
      )
    const needed = signed.permit.permitted.amount
    if (retryable && failuresIn(signed, facts, needed).size === 0 && !facts.paused)
      throw new Error(`${signed.name} failed with ${code}, was sent again, and would execute now`)
  }
}

async function factsNow(world: WeekWorld, signed: Signed): Promise<boolean> {
  const { timestamp } = await world.roundOf(signed.question)
  const inRound = { ...signed, proposal: { ...signed.proposal, timestamp } }
  return isOpen(
    await factsOf(world.chain, inRound, world.registry, world.chain.head().number),
    timestamp,
  )
}

const key = ({ transactionHash, logIndex }: Pick<ChainProposal, 'transactionHash' | 'logIndex'>) =>
  `${transactionHash} ${logIndex}`

export function checkChain(world: WeekWorld): void {
  const executed = [...world.progress].flatMap(([id, progress]) =>
    progress.status === 'executed'
      ? [{ signed: signedOf(world, id), submission: progress.submission }]
      : [],
  )
  const rounds = executed.map(
    ({ signed }) => `${signed.question.questionId} ${signed.proposal.timestamp}`,
  )
  if (new Set(rounds).size !== rounds.length)
    throw new Error('two candidates of a round are executed')
  const claimed = new Set(
    executed.map(({ submission }) =>
      key({
        transactionHash: submission.transactionHash ?? '0x',
        logIndex: submission.proposalEventIndex ?? -1,
      }),
    ),
  )
  const held = world.signed.filter(({ candidateId }) => candidateId !== undefined)
  const onChain = held.flatMap((signed) => ownProposal(world.proposals, signed) ?? [])
  if (claimed.size !== executed.length) throw new Error('two candidates name one event')
  const missing = onChain.filter((found) => !claimed.has(key(found)))
  if (missing.length > 0 || onChain.length !== claimed.size)
    throw new Error(
      `${onChain.length} proposals by our signatures, ${claimed.size} executed; not claimed: ${missing.map(key).join(', ')}`,
    )
  for (const { transactionHash, sender, nonce } of world.proposals)
    if (sender === actors.executor && nonce === undefined)
      throw new Error(`the executor proposed by itself in ${transactionHash}`)
  const taken = world.proposals.map(
    ({ requester, ancillaryData, timestamp }) => `${requester} ${ancillaryData} ${timestamp}`,
  )
  if (new Set(taken).size !== taken.length) throw new Error('a round holds two proposals')
}

export async function checkNonces(world: WeekWorld): Promise<void> {
  const { chain, gateway } = world
  const slots = [...gateway.slots.values()].sort((one, other) => one.nonce - other.nonce)
  const strange = await Promise.all(world.foreign.map((hash) => minedAt(world, hash)))
  const foreign = new Map(strange.flatMap((mined) => (mined ? [mined] : [])))
  const mined = Number(
    await chain.request<Hex>('eth_getTransactionCount', [actors.executor, 'latest']),
  )
  const bound = new Map(slots.map((slot) => [slot.nonce, slot]))
  for (let nonce = 0; nonce < mined; nonce += 1)
    if (!bound.has(nonce) && !foreign.has(nonce))
      throw new Error(`nonce ${nonce} is mined and bound to no slot`)
  for (const { nonce, attempts, outcome, closedAt } of slots) {
    if (outcome === undefined || closedAt === undefined)
      throw new Error(`the slot of nonce ${nonce} is open at the end`)
    if (nonce >= mined) throw new Error(`nonce ${nonce} was never mined`)
    world.count(`slot ${outcome}`)
    world.count(`attempts ${attempts.length}`)
    const receipts = await Promise.all(attempts.map(({ hash }) => chain.receipt(hash)))
    const found = receipts.filter((receipt) => receipt !== null)
    if (found.length !== (foreign.has(nonce) ? 0 : 1))
      throw new Error(`nonce ${nonce} (${outcome}) has ${found.length} mined transactions of ours`)
    if ((outcome === 'foreign') !== foreign.has(nonce))
      throw new Error(`nonce ${nonce} ended as ${outcome}`)
    const proposed = world.proposals.filter(
      ({ transactionHash }) => transactionHash === found[0]?.transactionHash,
    )
    if ((outcome === 'executed') !== proposed.length > 0)
      throw new Error(`nonce ${nonce} ended as ${outcome} with ${proposed.length} proposals`)
    const block = foreign.get(nonce) ?? BigInt(found[0]?.blockNumber ?? 0)
    if (block > closedAt)
      throw new Error(
        `nonce ${nonce} is mined at ${block}, and its slot ended (${outcome}) when ${closedAt} was final`,
      )
    if (proposed.length > 1) world.count('transactions with several proposals')
  }
}

async function minedAt(
  { chain }: WeekWorld,
  hash: Hex,
): Promise<readonly [nonce: number, block: bigint] | undefined> {
  const receipt = await chain.receipt(hash)
  if (receipt === null) return undefined
  const { nonce } = await chain.request<{ nonce: Hex }>('eth_getTransactionByHash', [hash])
  return [Number(nonce), BigInt(receipt.blockNumber)]
}

export async function checkMoney(world: WeekWorld): Promise<void> {
  const { chain } = world
  const { oracle, token, signedProposer } = contracts
  if ((await chain.read<bigint>(token, 'balanceOf', [signedProposer.address])) !== 0n)
    throw new Error('SignedProposer kept tokens')
  for (const wallet of listedWallets) {
    const bonds = world.proposals.filter(
      ({ proposer, nonce }) => proposer === wallet.address && nonce !== undefined,
    )
    const bondRaw = bonds.reduce((sum, { totalBondRaw }) => sum + totalBondRaw, 0n)
    const moved = await transfers(world, wallet.address)
    const paid = moved.get(oracle.address) ?? 0n
    // By way of SignedProposer: out the permit's amount, back what is above the bond.
    const through = moved.get(signedProposer.address) ?? 0n
    if (through !== -bondRaw)
      throw new Error(`${wallet.name} paid ${-through} for bonds of ${bondRaw}`)
    if (paid < 0n) throw new Error(`${wallet.name} paid the oracle itself`)
  }
}

async function transfers({ chain }: WeekWorld, account: Hex): Promise<ReadonlyMap<string, bigint>> {
  const topic = `0x${'0'.repeat(24)}${account.slice(2)}`
  const transfer = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef'
  const range = { fromBlock: '0x0', toBlock: 'latest', address: contracts.token.address }
  const [out, into] = await Promise.all([
    chain.request<{ topics: Hex[]; data: Hex }[]>('eth_getLogs', [
      { ...range, topics: [transfer, topic] },
    ]),
    chain.request<{ topics: Hex[]; data: Hex }[]>('eth_getLogs', [
      { ...range, topics: [transfer, null, topic] },
    ]),
  ])
  const sums = new Map<string, bigint>()
  const add = (other: Hex | undefined, raw: bigint) => {
    const address = `0x${(other ?? '').slice(26)}`
    sums.set(address, (sums.get(address) ?? 0n) + raw)
  }
  for (const { topics, data } of out) add(topics[2], -BigInt(data))
  for (const { topics, data } of into) add(topics[1], BigInt(data))
  return sums
}
