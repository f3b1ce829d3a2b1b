/**
 * Compares what the gateway says, at the moment it says it, with what the model makes of the chain
 * (contract §2, §5; R2, R3).
 */
import { keccak256 } from 'viem'
import type { Candidate } from '#protocol/candidate'
import { violationsText } from './history/observed-history.js'
import type { Said } from './week-gateway.js'
import { type Facts, factsOf, failuresIn, failureTable, isOpen, type Signed } from './week-model.js'
import { isInRound, ownProposal } from './week-proposals.js'
import type { WeekAnswer, WeekWorld } from './week-world.js'

/**
 * Wallets whose code changes without a trace on chain: what admission remembers of it may be some
 * minutes old.
 */
const changing = new Set(['smart', 'mute'])

/**
 * Fails unless the answer to a submission is one that contract §2 gives for these facts. `before`:
 * earlier items of the same batch.
 */
export function judgeAnswer(
  signed: Signed,
  facts: Facts,
  answer: WeekAnswer,
  active: readonly Candidate[],
  before: readonly Signed[],
): void {
  const expected = expectedAnswers(signed, facts, active, before)
  const got = `${answer.status}${answer.code === undefined ? '' : ` ${answer.code}`}`
  if (!expected.includes(got))
    throw new Error(`${signed.name} was answered ${got}, not ${expected.join(' or ')}`)
  if (answer.status === 200 && answer.candidateId !== signed.candidateId)
    throw new Error(
      `${signed.name} was replayed as ${answer.candidateId}, and admitted as ${signed.candidateId}`,
    )
}

function expectedAnswers(
  signed: Signed,
  facts: Facts,
  active: readonly Candidate[],
  before: readonly Signed[],
): readonly string[] {
  const { wallet, question, proposal, permit } = signed
  if (facts.current === 0n) return ['404 question_not_found']
  const inRound = facts.current === proposal.timestamp
  if (signed.candidateId !== undefined) return [inRound ? '200' : '409 round_advanced']
  if (!wallet.listed) return ['403 proposer_not_eligible']
  const isRival = ({ proposer, round, progress }: Candidate) =>
    proposer === wallet.address &&
    round.questionId === question.questionId &&
    BigInt(round.timestamp) === facts.current &&
    progress.status !== 'executed'
  const inBatch = before.filter((other) => {
    return (
      other.wallet === wallet &&
      other.question === question &&
      other.proposal.timestamp === proposal.timestamp
    )
  })
  const rival = active.some(isRival)
  if (!isOpen(facts, facts.current) && inRound && !rival) return ['409 request_not_open']
  if (permit.permitted.amount < facts.bondRaw && inRound)
    return ['422 permit_amount_below_required_bond']
  if (permit.deadline < facts.seconds + 300n) return ['422 permit_deadline_too_soon']
  const refused = '403 signature_not_authorized'
  const taken =
    rival || inBatch.length > 0
      ? ['409 candidate_conflict']
      : facts.nonceUsed
        ? ['409 permit_nonce_used', '202']
        : ['202']
  if (!inRound) return [refused, '409 request_not_open', '422 permit_amount_below_required_bond']
  if (changing.has(wallet.name)) return [refused, ...taken]
  return facts.accepted ? taken : [refused]
}

export async function judgeSaid(world: WeekWorld): Promise<void> {
  const news = world.gateway.news()
  const slots = world.gateway.newSlots()
  if (news.length === 0 && slots.length === 0) return
  await world.readProposals()
  judgeHistory(world)
  for (const said of news) {
    const signed = world.signed.find(({ candidateId }) => candidateId === said.candidateId)
    // Of an item that was admitted a moment ago: its answer is not read yet, and nothing but
    // validation can have happened.
    if (signed === undefined)
      throw new Error(`the ledger tells of ${said.candidateId}, which nobody was told of`)
    const before = world.progress.get(said.candidateId)?.status
    world.progress.set(said.candidateId, said.progress)
    // From further on it only stands in again, and is looked at before its next slot.
    const isNew = before === undefined || before === 'received' || before === 'failed'
    // What another's transaction has executed goes through all stages at once.
    const isPassing = news.some(
      ({ candidateId, progress }) =>
        candidateId === said.candidateId && progress.status === 'executed',
    )
    if (isNew && !isPassing && said.progress.status === 'validated')
      await judgeSound(world, said.candidateId, said.latest, said.active)
    if (said.progress.status === 'executed') judgeExecuted(world, signed, said)
    if (said.progress.status === 'failed') await judgeFailed(world, signed, said, news)
  }
  for (const { candidateIds, openedAt, active } of slots)
    for (const candidateId of candidateIds) await judgeSound(world, candidateId, openedAt, active)
}

/**
 * The blocks that a decision may rest on: the one that was the head. Behind a slow node the next one
 * or two may come between the reads and the decision.
 */
const decidedAt = ({ gateway }: WeekWorld, head: bigint): readonly bigint[] =>
  gateway.proxy === undefined ? [head] : [head, head - 1n, head - 2n]

async function judgeSound(
  world: WeekWorld,
  candidateId: string,
  latest: bigint,
  active: readonly Candidate[],
): Promise<void> {
  const seen: string[] = []
  for (const block of decidedAt(world, latest)) {
    const against = await standsAgainst(world, candidateId, block, active)
    if (against.length === 0) return
    seen.push(`block ${block}: ${against.join(', ')}`)
  }
  const name = world.signed.find((one) => one.candidateId === candidateId)?.name
  throw new Error(`${name} is found valid at ${latest}, against ${seen.join('; ')}`)
}

/**
 * What a block holds against a candidate: amounts summed over the wallet's earlier candidates, as
 * far as those may still execute (contract §5; robustness §3, "Simulate before reserving").
 */
async function standsAgainst(
  world: WeekWorld,
  candidateId: string,
  latest: bigint,
  active: readonly Candidate[],
): Promise<readonly string[]> {
  const own = active.find(({ id }) => id === candidateId)
  const rivals = active.filter(({ proposer, sequence, progress }) => {
    return (
      own && proposer === own.proposer && sequence <= own.sequence && progress.status !== 'executed'
    )
  })
  let neededRaw = 0n
  for (const { id, amount } of rivals) {
    const facts = await factsAt(world, id, latest)
    if (
      id === candidateId ||
      (isOpen({ ...facts, paused: false }, facts.timestamp) && !facts.nonceUsed)
    )
      neededRaw += BigInt(amount)
  }
  const facts = await factsAt(world, candidateId, latest)
  return [...failuresIn(facts.signed, facts, neededRaw), ...(facts.paused ? ['paused'] : [])]
}

async function factsAt(world: WeekWorld, id: string, block: bigint) {
  const signed = world.signed.find(({ candidateId }) => candidateId === id)
  if (signed === undefined) throw new Error(`nobody signed candidate ${id}`)
  return {
    ...(await factsOf(world.chain, signed, world.registry, block)),
    signed,
    timestamp: signed.proposal.timestamp,
  }
}

const toldOf = new WeakMap<WeekWorld, number>()

function judgeHistory(world: WeekWorld): void {
  const { history } = world.gateway
  for (const {
    transactionHash: hash,
    block,
    requester,
    timestamp,
    ancillaryData,
  } of world.proposals.slice(toldOf.get(world) ?? 0))
    history.add({
      kind: 'mined',
      block: `${block}`,
      hash,
      rounds: [`${requester} ${timestamp} ${keccak256(ancillaryData)}`],
    })
  toldOf.set(world, world.proposals.length)
  if (history.verdict().broken > 0)
    throw new Error(`the history breaks its rules:\n${violationsText(history.verdict())}`)
}

export function checkHistory(world: WeekWorld): void {
  judgeHistory(world)
  const { checked } = world.gateway.history.verdict()
  for (const rule of ['R1', 'R2', 'R3'] as const) {
    world.counts.set(`history ${rule}`, checked[rule])
    if (checked[rule] < world.progress.size)
      throw new Error(
        `the history was asked ${checked[rule]} times about ${rule}, of ${world.progress.size} candidates`,
      )
  }
}

function judgeExecuted(world: WeekWorld, signed: Signed, { progress, finalized }: Said): void {
  if (progress.status !== 'executed') return
  world.say(`  ${signed.name} executed`)
  world.count('executed')
  const { transactionHash, proposalEventIndex } = progress.submission
  const found = ownProposal(world.proposals, signed, finalized)
  if (found === undefined)
    throw new Error(
      `${signed.name} is executed, and finalized state holds no proposal by its signature`,
    )
  if (found.transactionHash !== transactionHash || found.logIndex !== proposalEventIndex)
    throw new Error(
      `${signed.name} names ${transactionHash} #${proposalEventIndex}, the chain ${found.transactionHash} #${found.logIndex}`,
    )
}

async function judgeFailed(
  world: WeekWorld,
  signed: Signed,
  said: Said,
  news: readonly Said[],
): Promise<void> {
  const { progress, latest, finalized } = said
  if (progress.status !== 'failed') return
  const { failure, submission } = progress
  const { code } = failure
  world.say(
    `  ${signed.name} failed: ${failure.stage} ${code}${failure.retryable ? ' (retryable)' : ''}`,
  )
  world.count(`failed ${code}`)
  const row = failureTable[code]
  if (row === undefined) throw new Error(`${code} is no failure code`)
  if (row.retryable !== undefined && row.retryable !== failure.retryable)
    throw new Error(`${code} is said to be retryable: ${failure.retryable}`)
  if (!/^\S+ .*\.$/s.test(failure.detail))
    throw new Error(`${code} has no sentence for people: ${failure.detail}`)
  if (ownProposal(world.proposals, signed, finalized))
    throw new Error(`${signed.name} failed with ${code}, and is on chain`)
  if (code === 'not_selected') {
    const done = world.proposals.some(
      ({ nonce, block, ...found }) =>
        nonce !== undefined &&
        block <= finalized &&
        isInRound({ nonce, block, ...found }, signed.question, signed.proposal.timestamp),
    )
    if (!done) throw new Error(`${signed.name} was not selected, and nobody was`)
    return
  }
  const blocks = await blocksOf(world, said, submission?.transactionHash ?? null)
  const seen: string[] = []
  for (const block of blocks) {
    const facts = await factsOf(world.chain, signed, world.registry, block)
    const found = failuresIn(signed, facts, neededRaw(said, signed, news))
    if (found.has(code) || (code === 'submission_expired' && found.has('permit_expired'))) return
    // A revert that nothing is left of when its block ends: what stood in the way was in the same
    // block.
    if (
      code === 'execution_reverted' &&
      failure.stage === 'confirmation' &&
      failure.retryable &&
      found.size === 0
    )
      return
    seen.push(`block ${block}: ${[...found].join(', ') || 'nothing'}`)
  }
  throw new Error(
    `${signed.name} failed at ${latest} (final ${finalized}) with ${failure.stage} ${code}: ${failure.detail} The chain shows ${seen.join('; ')}`,
  )
}

/**
 * Where the cause has to show: final for what no replay undoes (R14), the head for the rest, the
 * block of the revert for a revert.
 */
async function blocksOf(
  world: WeekWorld,
  { progress, latest, finalized }: Said,
  hash: string | null,
): Promise<readonly bigint[]> {
  const { chain } = world
  if (progress.status !== 'failed') return []
  const { stage, retryable } = progress.failure
  if (stage === 'confirmation' && hash !== null) {
    const receipt = await chain.receipt(hash as `0x${string}`)
    if (receipt === null || receipt.status !== '0x0')
      throw new Error(`${hash} is said to have reverted`)
    return [BigInt(receipt.blockNumber), BigInt(receipt.blockNumber) - 1n]
  }
  return decidedAt(world, retryable ? latest : finalized)
}

/**
 * At most what all the wallet's active authorizations ask for, those that ended at the same time
 * included.
 */
function neededRaw({ active }: Said, signed: Signed, news: readonly Said[]): bigint {
  const amounts = new Map([[signed.candidateId ?? '', signed.permit.permitted.amount]])
  for (const one of [active, ...news.map((other) => other.active)].flat())
    if (one.proposer === signed.wallet.address) amounts.set(one.id, BigInt(one.amount))
  return [...amounts.values()].reduce((sum, amount) => sum + amount, 0n)
}
