/** Questions as `proposer questions list` shows them (contract §6): found somewhere, then asked on the chain. */
import { titleOf } from '#chain/ancillary'
import { knownToken } from '#chain/profiles'
import type { RegistryEntry, RoundReader } from '#chain/questions'
import type { Round } from '#chain/round'
import { onChain } from '#chain/unavailable'
import type { Hex } from '#ports'
import type { Address, Outcome } from '#protocol/schema'
import type { QuestionContext } from '../trust/trust.js'

export type QuestionSource = 'registry' | 'chain' | 'gamma'

export interface QuestionSeen {
  readonly questionId: Hex
  readonly slug?: string | undefined
  readonly title?: string | undefined
  readonly endsAt?: string | undefined
  readonly reopened?: boolean
  readonly entry?: RegistryEntry | undefined
}

/**
 * Amounts in raw token units. What the source cannot know is null. Titles and labels are outside
 * text (R20).
 */
export interface ListedQuestion {
  readonly question_id: Hex
  readonly slug: string | null
  readonly title: string | null
  readonly outcomes: readonly Pick<Outcome, 'outcome' | 'label'>[]
  readonly bond: string | null
  readonly reward: string | null
  readonly state: string | null
  readonly proposed_by: Address | null
  readonly ends_at: string | null
  readonly round_timestamp: string | null
  readonly source: QuestionSource
  readonly reopened: boolean | null
  readonly requester: string | null
  readonly token: Round['token'] | null
  /** Who says what the source alone cannot: `null` where nobody was asked. */
  readonly confirmed_by: 'chain' | 'gateway' | null
}

const byChain = (seen: QuestionSeen, round: Round, source: QuestionSource): ListedQuestion => ({
  ...unconfirmed(seen, source),
  question_id: round.questionId,
  title: titleOf(round.ancillaryData) ?? seen.title ?? null,
  outcomes: labelled(round.outcomes),
  bond: String(round.totalBondRaw),
  reward: String(round.rewardRaw),
  state: round.paused && round.state === 'requested' ? 'paused' : round.state,
  proposed_by: round.proposer ?? null,
  round_timestamp: round.timestamp,
  reopened: round.isReopened || seen.reopened === true,
  requester: round.requester,
  token: round.token,
  confirmed_by: 'chain',
})

export const byGateway = (candidate: QuestionSeen, context: QuestionContext): ListedQuestion => ({
  ...unconfirmed(candidate, 'registry'),
  title: titleOf(context.request.ancillary_data as Hex) ?? null,
  outcomes: labelled(context.outcomes ?? []),
  bond: context.bond.required_bond,
  state: 'requested',
  round_timestamp: context.request.timestamp,
  requester: context.request.requester,
  token: tokenOf(context),
  confirmed_by: 'gateway',
})

function tokenOf({ token, signing, bond }: QuestionContext) {
  const address = bond.token as Address
  const units = knownToken(signing.chain_id, address) ?? token
  return units === undefined ? null : { ...units, address }
}

export const unconfirmed = (
  { questionId, slug, title, endsAt }: QuestionSeen,
  source: QuestionSource,
): ListedQuestion => ({
  question_id: questionId,
  slug: slug ?? null,
  title: title ?? null,
  outcomes: [],
  bond: null,
  reward: null,
  state: null,
  proposed_by: null,
  ends_at: endsAt ?? null,
  round_timestamp: null,
  source,
  reopened: null,
  requester: null,
  token: null,
  confirmed_by: null,
})

const labelled = (outcomes: Round['outcomes']) =>
  outcomes.filter(({ allowed }) => allowed).map(({ outcome, label }) => ({ outcome, label }))

/** They are soonest answered by another. */
export const reopenedFirst = <T extends { readonly reopened?: boolean | null }>(
  all: readonly T[],
): readonly T[] => [
  ...all.filter(({ reopened }) => reopened === true),
  ...all.filter(({ reopened }) => reopened !== true),
]

const askedAtOnce = 50

/** `unseen`: candidates not asked about, because there were enough. */
export async function onlyWanted(
  reader: RoundReader,
  candidates: readonly QuestionSeen[],
  wanted: {
    readonly source: QuestionSource
    readonly limit: number
    readonly isWanted: (question: ListedQuestion) => boolean
    readonly signal?: AbortSignal
    readonly onProgress?: (asked: number) => void
    readonly onRound?: (round: Round) => void
  },
): Promise<{ readonly questions: readonly ListedQuestion[]; readonly unseen: number }> {
  const found: ListedQuestion[] = []
  const ordered = reopenedFirst(candidates)
  let asked = 0
  while (asked < ordered.length && found.length < wanted.limit) {
    wanted.signal?.throwIfAborted()
    const some = ordered.slice(asked, asked + askedAtOnce)
    const rounds = await onChain(() =>
      Promise.all(some.map(({ questionId, entry }) => reader.read(questionId, entry))),
    )
    for (const [index, round] of rounds.entries()) {
      const candidate = some[index]
      if (round === undefined || candidate === undefined) continue
      const question = byChain(candidate, round, wanted.source)
      if (!wanted.isWanted(question)) continue
      found.push(question)
      wanted.onRound?.(round)
    }
    asked += some.length
    wanted.onProgress?.(asked)
  }
  return {
    questions: reopenedFirst(found.slice(0, wanted.limit)),
    unseen: ordered.length - asked + Math.max(0, found.length - wanted.limit),
  }
}
