/** What `positions` and `pnl` read with: whose proposals, and from where. */
import { aggregating } from '#chain/aggregate'
import { createRoundReader } from '#chain/questions'
import type { Signed } from '#client/journal/records'
import type { Position } from '#client/positions/account'
import { isContestedState } from '#client/positions/last-known'
import type { PositionParts } from '#client/positions/positions'
import { contractsOf } from '#client/trust/trust'
import { yieldToEvents } from '#io/serving/load'
import { type Chain, ChainError } from '#ports'
import { givenAddress } from '#protocol/address'
import { FailedError, PendingError } from '#protocol/errors'
import { amountText, visible } from '../terminal/render.js'
import type { Session } from './session.js'

/**
 * The named wallets; else all that signed in this home for the pinned chain, else the account.
 * UsageError `invalid_address`, `no_account`.
 */
export async function stakeWallets(session: Session, named: readonly string[] | undefined) {
  if (named !== undefined) return [...new Set(named.map((one) => givenAddress(one, '--wallet')))]
  const { chain_id } = await session.trust()
  const { authorizations } = await session.journal.load()
  const signed = authorizations.flatMap(({ signed: { chainId, terms } }) =>
    chainId === chain_id ? terms.proposer : [],
  )
  return signed.length === 0 ? [await session.account.address()] : [...new Set(signed)]
}

export const onStakes = <T>(
  session: Session,
  chain: Chain,
  read: (parts: PositionParts) => Promise<T>,
) =>
  session.output.during('reading the logs of the oracle', async (progress) =>
    read({
      chain: aggregating(chain, yieldToEvents),
      trust: await session.trust(),
      view: await session.journal.load(),
      ...{ files: session.files, hash: session.hash, home: session.settings.home.value },
      signal: session.until,
      onProgress: (block, head) => progress.update(`reading logs: block ${block} of ${head}`),
    }),
  )

/** FailedError `proposal_disputed` where one is; else PendingError `positions_unknown` where nobody knows. */
export function failOnDispute(positions: readonly Position[]) {
  const contested = positions.filter(({ state }) => isContestedState(state))
  const [first] = contested
  if (first === undefined) {
    // What nobody knows is not clean.
    const unknown = positions.filter(({ state }) => state === null)
    requireShown(unknown.map((one) => ({ identifier: one.slug ?? one.question_id })))
    return
  }
  const id = first.slug ?? first.question_id
  throw new FailedError(
    'proposal_disputed',
    contested.length === 1
      ? `the proposal for ${id ?? 'a question'} is disputed`
      : `${contested.length} proposals are disputed`,
    id === null ? {} : `\`proposer reconcile ${id}\` says what to do`,
  )
}

/** PendingError `positions_unknown` for proposals of which no log tells. */
export function requireShown(unknown: readonly { readonly identifier: string | null }[]) {
  const [first, ...more] = unknown
  if (first === undefined) return
  const id = first.identifier ?? '<identifier>'
  throw new PendingError(
    'positions_unknown',
    `the node does not show what became of ${more.length === 0 ? `the proposal for ${id}` : `${more.length + 1} proposals`}`,
    `\`proposer reconcile ${id}\` looks at its round; ask another node with --rpc-url`,
  )
}

/**
 * Says which of these authorizations earn less than when they were signed, where a node is
 * configured: version 3 of the oracle lets rewards fall (domain §10). What has become of them is
 * told without it.
 */
export async function noteFallenRewards(session: Session, all: readonly Signed[]) {
  const node = all.some(({ reward }) => reward !== undefined) ? await session.chain() : undefined
  if (node === undefined) return
  const say = (text: string) => session.output.note(`note: ${visible(text)}`)
  try {
    const trust = await session.trust()
    const told = all.filter(
      ({ chainId, reward }) => chainId === trust.chain_id && reward !== undefined,
    )
    const reader = createRoundReader(aggregating(node, yieldToEvents), contractsOf(trust))
    const questions = [...new Set(told.map(({ questionId }) => questionId))]
    const rounds = (await Promise.all(questions.map((id) => reader.readAll(id)))).flat()
    for (const { identifier, questionId, requester, timestamp, reward = '0' } of told) {
      const round = rounds.find(
        (one) =>
          one.questionId === questionId &&
          one.requester === requester &&
          one.timestamp === timestamp,
      )
      const isOut = round?.state === 'requested' || round?.state === 'proposed'
      if (round === undefined || !isOut || round.rewardRaw >= BigInt(reward)) continue
      const amount = (raw: string) => amountText(raw, round.token)
      say(
        `${identifier}: the reward is ${amount(String(round.rewardRaw))} now; it was ${amount(reward)} when this was signed`,
      )
    }
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    say(`whether rewards fell is not known: the node did not answer (${error.kind})`)
  }
}
