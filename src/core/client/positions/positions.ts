/** What became of proposals and their bonds, whoever executed them (contract §9; domain §10). */
import { oracleAbi } from '#chain/contracts'
import { requestPage } from '#chain/profiles'
import { createRoundReader, type RoundReader } from '#chain/questions'
import { readContract, unlessRefused } from '#chain/reading'
import { roundRef } from '#chain/round'
import { type StakeEvent, type StakeResult, type StakeStanding, standingIn } from '#chain/stakes'
import { onChain } from '#chain/unavailable'
import { ChainError, type Hash, type Hex } from '#ports'
import { instant } from '#protocol/candidate'
import { pick } from '#protocol/pick'
import { outcomeOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import { isQuestionId } from '#protocol/words'
import { fundsOf, pinnedHeads } from '../funds/funds.js'
import { type JournaledAuthorization, labelOf } from '../journal/authorizations.js'
import type { JournalView } from '../journal/fold.js'
import type { KeptParts } from '../logs/kept-logs.js'
import { contractsOf, isNamedByText, type Trust } from '../trust/trust.js'
import { keepLastPositions } from './last-known.js'
import { type KnownStake, oracleBegins, readStakes, type StakeAccount } from './stake-facts.js'

export interface PositionParts extends Omit<KeptParts, 'onNote'> {
  readonly trust: Trust
  readonly view: JournalView
  readonly hash: Hash
}

/** Raw units. Null: not known. */
export interface PositionTotals {
  readonly wallet: Address
  readonly token: Address
  readonly free: string | null
  readonly reserved: string | null
  readonly bonded: string | null
  readonly disputed: string | null
  readonly claimable: string | null
  readonly locked: string | null
  /** The same by the logs. */
  readonly deferred: string | null
  readonly net: string | null
}

export interface Positions {
  readonly positions: readonly Position[]
  readonly totals: readonly PositionTotals[]
  readonly notes: readonly string[]
  readonly block_number: string
  readonly block_timestamp: string
  readonly since: readonly { readonly wallet: Address; readonly block_number: string }[]
}

/** `since`: Unix seconds to begin at, instead of the wallet's first signature in this journal. */
async function readStakeAccount(
  parts: PositionParts,
  wallets: readonly Address[],
  { since, withTimes }: { readonly since?: bigint | undefined; readonly withTimes?: boolean },
) {
  const { trust, view } = parts
  const notes: string[] = []
  await pinnedHeads(parts.chain, trust)
  const account = await onChain(() =>
    readStakes(
      {
        ...parts,
        contracts: contractsOf(trust),
        onNote: (text) => notes.push(text),
        earliest(wallet) {
          const ms = view.authorizations.reduce(
            (least, { signed: { chainId, terms }, signedAtMs }) =>
              chainId === trust.chain_id && terms.proposer === wallet
                ? Math.min(least, signedAtMs)
                : least,
            Infinity,
          )
          return ms === Infinity ? undefined : BigInt(Math.floor(ms / 1000))
        },
        since,
        withTimes,
      },
      wallets,
    ),
  )
  const first = oracleBegins(trust.chain_id, account.head)
  if (since !== undefined && account.starts.some(({ from }) => from === first))
    notes.push(`the oracle did not exist before block ${first}`)
  const unplaced = account.stakes.filter(({ stake }) => stake.proposed === undefined).length
  const names = roundNames(trust, view)
  const missing = missingIn(view, trust, wallets, names, account.stakes)
  return { account, entries: entriesOf(account), names, missing, unplaced, notes }
}

export async function readPositions(
  parts: PositionParts,
  wallets: readonly Address[],
  { since }: { readonly since?: bigint } = {},
): Promise<Positions> {
  const { chain, trust } = parts
  const reading = await readStakeAccount(parts, wallets, { since })
  const { account, names, missing, unplaced, notes } = reading
  const { head, stakes, starts } = account
  const reader = createRoundReader(chain, contractsOf(trust))
  const seen = await Promise.all(
    stakes.map(async (known) => {
      const named = names(known)
      const newRound = await newRoundOf(reader, known, named.questionId, head.number)
      return positionOf(trust, known, named, newRound, head.timestamp)
    }),
  )
  if (unplaced > 0)
    notes.push(
      `${unplaced} proposals are known by their dispute or settlement alone: proposed before the first block that was read, or left out by the node`,
    )
  notes.push(...missing.map(missingNote))
  const positions = [...seen, ...missing.map((one) => missingPosition(trust, one))]
  const asOf = instant(Number(head.timestamp) * 1000)
  await keepLastPositions(parts, asOf, positions, (text) => notes.push(text))
  const pairs = pairsOf(trust, reading.entries, wallets)
  return {
    positions,
    totals: await Promise.all(pairs.map((pair) => totalsOf(parts, reading, seen, pair))),
    notes,
    block_number: String(head.number),
    block_timestamp: String(head.timestamp),
    since: starts.map(({ wallet, from }) => ({ wallet, block_number: String(from) })),
  }
}

/** Null: nobody can tell. */
async function newRoundOf(
  reader: RoundReader,
  { stake: { requester, timestamp }, isContested }: KnownStake,
  questionId: Hex | undefined,
  at: bigint,
) {
  if (!isContested || questionId === undefined) return null
  try {
    const round = await reader.read(questionId, { questionId, requester }, at)
    return round === undefined ? null : BigInt(round.timestamp) > BigInt(timestamp)
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    return null
  }
}

/** With pinned tokens, and those that it had to do with. */
const pairsOf = (trust: Trust, entries: readonly Entry[], wallets: readonly Address[]) =>
  wallets.flatMap((wallet) => {
    const own = entries.flatMap((one) => (one.wallet === wallet ? (one.token ?? []) : []))
    return [...new Set([...trust.tokens, ...own])].map((token) => ({ wallet, token }))
  })

async function totalsOf(
  { chain, trust, view }: PositionParts,
  { account, entries, notes }: Awaited<ReturnType<typeof readStakeAccount>>,
  positions: readonly Position[],
  { wallet, token }: ReturnType<typeof pairsOf>[number],
) {
  const args = [token, wallet] as const
  const [funds, owed] = await Promise.all([
    trust.tokens.includes(token) ? fundsOf(chain, trust, view, wallet, token) : undefined,
    onChain(() =>
      Promise.all(
        trust.oracles.map((oracle) =>
          unlessRefused(
            readContract(chain, account.head.number, oracle, oracleAbi, 'deferredPayouts', args),
          ),
        ),
      ),
    ),
  ])
  const { locked, deferred, net } = sumsOf(entries, {}, wallet, token)
  const claimable = rawText(total(owed))
  const inState = (...states: readonly Position['state'][]) =>
    rawText(
      total(
        positions.flatMap(({ state, bond, final_fee, ...one }) => {
          const isOwn = one.wallet === wallet && (one.token ?? token) === token
          if (!isOwn || !states.includes(state)) return []
          return [
            bond === null || final_fee === null ? undefined : BigInt(bond) + BigInt(final_fee),
          ]
        }),
      ),
    )
  if (claimable !== null && deferred !== null && claimable !== deferred)
    notes.push(
      `the oracle owes ${wallet} ${claimable} raw units of ${token} in deferred payouts, but the logs say ${deferred}`,
    )
  return {
    ...{ wallet, token },
    free: rawText(funds?.freeRaw),
    reserved: rawText(funds?.reservedRaw),
    bonded: inState('open', 'awaiting_settlement'),
    disputed: inState('disputed', 'voting'),
    ...{ claimable, locked, deferred, net },
  }
}

/** Raw units: `amount` into the wallet, `net` earned. Null: not known. */
export async function readPnl(parts: PositionParts, wallets: readonly Address[], span: Span) {
  const reading = await readStakeAccount(parts, wallets, { withTimes: true })
  const { account, entries, names, unplaced, notes } = reading
  const { from = 0, to = Infinity } = span
  const missing = reading.missing.filter(({ signedAtMs }) => signedAtMs < to * 1000)
  notes.push(...missing.map(missingNote))
  const isBounded = from > 0 || to < Infinity
  const untimed = entries.filter(({ seconds }) => seconds === undefined).length
  if (untimed > 0 && isBounded)
    notes.push(`the time of ${untimed} movements is not known: sums of a span are not either`)
  if (unplaced > 0)
    notes.push('proposals from before the first block that was read have no bond among the rows')
  const isWithin = ({ seconds }: Entry) =>
    !isBounded || (seconds !== undefined && seconds >= from && seconds < to)
  const pnl = {
    rows: entries.filter(isWithin).map((entry) => {
      const { questionId, slug } = entry.of === undefined ? {} : names(entry.of)
      return {
        at: timeOf(entry.seconds),
        kind: entry.kind,
        question_id: questionId ?? null,
        slug: slug ?? null,
        wallet: entry.wallet,
        token: entry.token ?? null,
        amount: rawText(entry.amountRaw),
        net: rawText(entry.netRaw),
        result: entry.result,
        transaction_hash: entry.transaction,
        log_index: entry.index,
      }
    }),
    totals: pairsOf(parts.trust, entries, wallets).map(({ wallet, token }) => {
      const isPartial = missing.some(
        ({ signed }) => signed.terms.proposer === wallet && (signed.token ?? token) === token,
      )
      return sumsOf(entries, span, wallet, token, isPartial)
    }),
    notes,
    block_number: String(account.head.number),
  }
  return { pnl, missing }
}

interface Standing {
  readonly state: StakeStanding['state'] | 'deferred' | undefined
  readonly result: StakeResult | null
}

function standingOf({ stake, round }: KnownStake, hasNewRound: boolean, now: bigint): Standing {
  if (round === undefined) return { state: undefined, result: null }
  const standing = standingIn(round, hasNewRound, now)
  const isWaiting = stake.deferred !== undefined && stake.claimed === undefined
  return standing.state === 'settled' && isWaiting ? { ...standing, state: 'deferred' } : standing
}

function payoutRaw({ stake: { settled } }: KnownStake, result: StakeResult | null) {
  if (settled === undefined || result === null) return undefined
  return result === 'lost' ? 0n : BigInt(settled.payout)
}

/**
 * A movement. `amountRaw` went into the wallet; `lockedRaw` and `deferredRaw`: how much more the
 * oracle holds; `netRaw` was earned. `undefined`: not known.
 */
interface Entry extends Pick<StakeEvent, 'block' | 'index' | 'transaction' | 'wallet' | 'seconds'> {
  readonly kind: 'bond' | 'payout' | 'deferred' | 'claimed' | 'lost'
  readonly token: Address | undefined
  readonly of?: KnownStake
  readonly result: StakeResult | null
  readonly amountRaw: bigint | undefined
  readonly lockedRaw: bigint | undefined
  readonly deferredRaw: bigint | undefined
  readonly netRaw: bigint | undefined
}

const still = { result: null, amountRaw: 0n, lockedRaw: 0n, deferredRaw: 0n, netRaw: 0n } as const

function entriesOf({ stakes, others, claims }: Pick<StakeAccount, 'stakes' | 'others' | 'claims'>) {
  const entries: Entry[] = stakes.flatMap(entriesOfStake)
  for (const { deferred } of others) {
    const raw = BigInt(deferred.amount)
    const { currency: token } = deferred
    entries.push({ ...still, ...deferred, kind: 'deferred', token, deferredRaw: raw, netRaw: raw })
  }
  for (const claim of claims) {
    const raw = BigInt(claim.amount)
    const { currency: token } = claim
    entries.push({ ...still, ...claim, kind: 'claimed', token, amountRaw: raw, deferredRaw: -raw })
  }
  return entries.sort((a, b) => a.block - b.block || a.index - b.index)
}

function entriesOfStake(of: KnownStake) {
  const { stake, terms, token } = of
  const { proposed, settled, deferred } = stake
  const paid = terms && BigInt(terms.bond) + BigInt(terms.finalFee)
  const less = paid && -paid
  const entries: Entry[] = []
  if (proposed !== undefined) {
    const seconds = proposed.seconds ?? (terms && Number(terms.proposedAt))
    const money = { ...still, amountRaw: less, lockedRaw: paid }
    entries.push({ ...proposed, ...money, kind: 'bond', token, of, seconds })
  }
  if (settled !== undefined) {
    const { result } = standingOf(of, false, 0n)
    const payout = payoutRaw(of, result)
    const money = {
      ...still,
      [deferred === undefined ? 'amountRaw' : 'deferredRaw']: payout,
      // What was paid in before the reading began was never counted as locked.
      lockedRaw: proposed === undefined ? 0n : less,
      netRaw: payout === undefined || paid === undefined ? undefined : payout - paid,
    }
    const kind = result === 'lost' ? 'lost' : deferred === undefined ? 'payout' : 'deferred'
    entries.push({ ...settled, ...money, kind, token, of, result })
  }
  return entries
}

interface Span {
  readonly from?: number | undefined
  readonly to?: number | undefined
}

/**
 * `rewards` came back beyond what was paid in, `moved` into the wallet; from the beginning on,
 * `net − locked − deferred` is what was moved (domain §10). `isPartial`: movements are missing.
 */
function sumsOf(
  entries: readonly Entry[],
  { from = 0, to = Infinity }: Span,
  wallet: Address,
  token: Address,
  isPartial = false,
) {
  const own = entries.filter((one) => one.wallet === wallet && (one.token ?? token) === token)
  const isBounded = from > 0 || to < Infinity
  const isUnknown =
    isPartial ||
    own.some(
      ({ token: of, seconds, of: known }) =>
        of === undefined ||
        (isBounded && seconds === undefined) ||
        // The node left the log of the end out.
        (known !== undefined &&
          known.stake.settled === undefined &&
          (known.round?.state ?? 'settled') === 'settled'),
    )
  const before = own.filter(({ seconds = 0 }) => seconds < to)
  const within = before.filter(({ seconds = 0 }) => !isBounded || seconds >= from)
  const sum = (some: readonly Entry[], of: (one: Entry) => bigint | undefined) =>
    isUnknown ? null : rawText(total(some.map(of)))
  const count = (result: StakeResult) => within.filter((one) => one.result === result).length
  const earned = (isWanted: (raw: bigint) => boolean) =>
    sum(within, ({ netRaw }) => (isWanted(netRaw ?? 0n) ? netRaw : netRaw && 0n))
  return {
    ...{ wallet, token },
    proposed: within.filter(({ kind }) => kind === 'bond').length,
    ...{ undisputed: count('undisputed'), won: count('won'), lost: count('lost') },
    rewards: earned((raw) => raw > 0n),
    bonds_lost: earned((raw) => raw < 0n),
    net: earned(() => true),
    moved: sum(within, ({ amountRaw }) => amountRaw),
    locked: sum(before, ({ lockedRaw }) => lockedRaw),
    deferred: sum(before, ({ deferredRaw }) => deferredRaw),
  }
}

const total = (parts: readonly (bigint | undefined)[]) =>
  parts.reduce((sum, one) => (sum === undefined || one === undefined ? undefined : sum + one), 0n)

const rawText = (raw: bigint | undefined) => (raw === undefined ? null : String(raw))

/** Amounts in raw units, `_at` in RFC 3339, other times in Unix seconds. Null: not known, or none. */
export interface Position {
  readonly question_id: Hex | null
  readonly slug: string | null
  readonly title: string | null
  readonly wallet: Address
  readonly outcome: string | null
  readonly label: string | null
  readonly price: string | null
  readonly token: Address | null
  readonly bond: string | null
  readonly final_fee: string | null
  readonly state: NonNullable<Standing['state']> | null
  readonly result: Standing['result']
  readonly late: boolean
  readonly executed_at: string | null
  readonly disputable_until: string | null
  readonly disputed_at: string | null
  readonly disputed_by: Address | null
  readonly new_round: boolean | null
  readonly settled_at: string | null
  readonly payout: string | null
  readonly reward: string | null
  readonly transaction_hash: Hex | null
  readonly event_index: number | null
  readonly round_timestamp: string | null
  readonly requester: Address | null
  readonly oracle: Address | null
  readonly journal_id: string | null
  readonly url: string | null
}

/** In the order of the document. */
const unknownPosition: Readonly<Record<keyof Position, null | false>> = {
  ...{ question_id: null, slug: null, title: null, wallet: null, outcome: null, label: null },
  ...{ price: null, token: null, bond: null, final_fee: null, state: null, result: null },
  ...{ late: false, executed_at: null, disputable_until: null, disputed_at: null },
  ...{ disputed_by: null, new_round: null, settled_at: null, payout: null, reward: null },
  ...{ transaction_hash: null, event_index: null, round_timestamp: null, requester: null },
  ...{ oracle: null, journal_id: null, url: null },
}

const positionWith = (
  known: { readonly [K in keyof Position]?: Position[K] | undefined } & Pick<Position, 'wallet'>,
) => {
  const fields: object = { ...unknownPosition, ...known }
  const all = Object.entries(fields).map(([key, value]) => [key, value ?? null])
  return Object.fromEntries(all) as Position
}

/** By the round that was signed for, and the pinned slugs. */
function roundNames(trust: Trust, { authorizations }: JournalView) {
  const contracts = contractsOf(trust)
  const byRound = new Map<string, JournaledAuthorization>()
  for (const one of authorizations) {
    const { round, terms } = one.signed
    const key = `${round} ${terms.proposer}`
    const known = byRound.get(key)
    if (known === undefined || executedOf(known) === undefined) byRound.set(key, one)
  }
  const slugs = new Map(Object.entries(trust.slugs).map(([slug, id]) => [id, slug]))
  return ({ stake }: KnownStake) => {
    const round = roundRef(contracts, stake.text, stake, stake.text).key
    const authorization = byRound.get(`${round} ${stake.wallet}`)
    const { questionId: signedFor, identifier } = authorization?.signed ?? {}
    const kind = contracts.requesters.find(({ address }) => address === stake.requester)?.kind
    const questionId = signedFor ?? (isNamedByText(kind) ? stake.text : undefined)
    const slug =
      identifier === undefined || isQuestionId(identifier)
        ? slugs.get(questionId ?? '0x')
        : identifier
    return { questionId, slug, authorization }
  }
}
type Names = ReturnType<typeof roundNames>

const executedOf = ({ terminals }: JournaledAuthorization) =>
  terminals.find(({ outcome }) => outcome === 'executed')

/** UMA's settler waits 8,100 s (domain §10). */
const lateAfterSeconds = 3n * 3_600n

const timeOf = (seconds: number | string | undefined) =>
  seconds === undefined || !(Number(seconds) < 8.64e12) ? null : instant(Number(seconds) * 1000)

/** Only a vote that is known is told as one. */
function positionOf(
  trust: Trust,
  known: KnownStake,
  { questionId, slug, authorization }: ReturnType<Names>,
  newRound: boolean | null,
  nowSeconds: bigint,
): Position {
  const { state, result } = standingOf(known, newRound ?? true, nowSeconds)
  const { stake, terms, price, disputableUntil, disputer } = known
  const { proposed, disputed, settled } = stake
  const isDisputed = disputer !== undefined
  return positionWith({
    ...pick(stake, 'wallet', 'requester', 'oracle'),
    ...pick(known, 'title', 'price', 'token'),
    ...{ question_id: questionId, slug, state, result, journal_id: authorization?.id },
    outcome: price && outcomeOf(price),
    label: known.label ?? (authorization && labelOf(authorization.signed)),
    bond: terms?.bond,
    final_fee: terms?.finalFee,
    late:
      state === 'awaiting_settlement' &&
      !isDisputed &&
      nowSeconds >= BigInt(disputableUntil ?? 0) + lateAfterSeconds,
    executed_at: timeOf(proposed?.seconds ?? terms?.proposedAt),
    disputable_until: disputableUntil,
    disputed_at: timeOf(disputed?.seconds),
    disputed_by: disputer,
    new_round: known.isContested ? newRound : null,
    settled_at: timeOf(settled?.seconds),
    payout: rawText(payoutRaw(known, result)),
    reward: isDisputed && terms?.isRefunded ? '0' : terms?.reward,
    transaction_hash: proposed?.transaction,
    event_index: proposed?.index,
    round_timestamp: stake.timestamp,
    url: proposed && requestPage(trust.chain_id, proposed.transaction, proposed.index),
  })
}

function missingIn(
  { authorizations }: JournalView,
  trust: Trust,
  wallets: readonly Address[],
  names: Names,
  stakes: readonly KnownStake[],
): readonly JournaledAuthorization[] {
  const shown = new Set(stakes.map((known) => names(known).authorization?.id))
  const places = new Set(
    stakes.flatMap(({ stake: { proposed } }) =>
      proposed === undefined ? [] : `${proposed.transaction} ${proposed.index}`,
    ),
  )
  const rounds = new Set(
    stakes.map(({ stake }) => `${stake.wallet} ${stake.text} ${stake.timestamp}`),
  )
  return authorizations.filter((one) => {
    const executed = executedOf(one)
    const { terms, chainId, questionId, timestamp } = one.signed
    if (executed === undefined || chainId !== trust.chain_id) return false
    if (!wallets.includes(terms.proposer) || shown.has(one.id)) return false
    // Records of 0.1, and of payloads signed elsewhere, do not name their round.
    const { transaction_hash: hash, event_index: index } = executed
    return (
      !places.has(`${hash} ${index}`) && !rounds.has(`${terms.proposer} ${questionId} ${timestamp}`)
    )
  })
}

const missingNote = ({ id, signed }: JournaledAuthorization) =>
  `${id} is executed by this journal, and no log of the chain shows it; \`proposer reconcile ${signed.questionId}\` looks at its round`

function missingPosition(trust: Trust, one: JournaledAuthorization): Position {
  const { signed, id } = one
  const { terms, identifier } = signed
  const { transaction_hash: hash, event_index: index } = executedOf(one) ?? {}
  return positionWith({
    ...pick(signed, 'token', 'requester'),
    ...{ question_id: signed.questionId, wallet: terms.proposer, price: terms.price },
    slug: isQuestionId(identifier) ? null : identifier,
    outcome: outcomeOf(terms.price),
    label: labelOf(signed),
    transaction_hash: hash,
    event_index: index,
    round_timestamp: signed.timestamp,
    journal_id: id,
    url: hash == null || index == null ? null : requestPage(trust.chain_id, hash, index),
  })
}
