/**
 * Gas limits without a round trip: what this chain's own estimates said of proposals of the same
 * kind (domain §8). A limit from here is a proposal for one: the transaction is run with it before
 * it is signed, and one that is too low is forgotten.
 */
import type { ProposalCall } from '../validation/validation.js'

/** What of a proposal decides how much gas it needs. */
export type GasItem = Pick<ProposalCall, 'oracle' | 'token' | 'proposer' | 'ancillaryBytes'>

/** Proposals of one kind need about the same. */
type GasKind = Pick<ProposalCall, 'oracle' | 'token'>

export interface GasBook {
  /**
   * Gas that a transaction with these proposals needs at most, without margin; `undefined` where
   * no estimate of this chain covers one of them.
   */
  needed(items: readonly GasItem[]): bigint | undefined
  /** An estimate of the node for a transaction with exactly these proposals, of one kind. */
  learn(items: readonly GasItem[], estimate: bigint): void
  /** What is known of these kinds was too low, or their code is another now. */
  forget(items: readonly GasKind[]): void
  clear(): void
}

/** An estimate as what it says of one proposal among `items`, of `wallets` different proposers. */
interface Learned {
  readonly items: number
  readonly wallets: number
  readonly ancillaryBytes: number
  readonly perItem: bigint
}

/**
 * So much longer a text may be: some 30 gas a byte (domain §8), far within the margin that every
 * limit has.
 */
const slackBytes = 256
/** Estimates kept of one kind; more of them cover hardly more. */
const mostLearned = 16

const kindOf = ({ oracle, token }: GasKind) => `${oracle} ${token}`
const walletsOf = (items: readonly GasItem[]) => new Set(items.map(({ proposer }) => proposer)).size
const longestOf = (items: readonly GasItem[]) =>
  Math.max(...items.map(({ ancillaryBytes }) => ancillaryBytes))

/**
 * Nothing learned. Of many proposals in one transaction each needs less than alone: what one
 * transaction pays once is shared, and slots that were read are warm. So an estimate holds for
 * transactions with as many or more proposals, of no longer text, and of no larger share of
 * different wallets.
 */
export function createGasBook(): GasBook {
  const kinds = new Map<string, Learned[]>()
  const neededEach = (items: readonly GasItem[]): bigint | undefined => {
    const [first] = items
    const wallets = walletsOf(items)
    const longest = longestOf(items)
    const covering = (first ? (kinds.get(kindOf(first)) ?? []) : []).filter(
      (one) =>
        one.items <= items.length &&
        one.ancillaryBytes + slackBytes >= longest &&
        one.wallets * items.length >= wallets * one.items,
    )
    return covering.map(({ perItem }) => perItem).sort(ascending)[0]
  }
  return {
    needed(items) {
      let sum = 0n
      for (const kind of new Set(items.map(kindOf))) {
        const group = items.filter((one) => kindOf(one) === kind)
        const each = neededEach(group)
        if (each === undefined) return undefined
        sum += each * BigInt(group.length)
      }
      return sum
    },
    learn(items, estimate) {
      const [first] = items
      if (first === undefined || items.some((one) => kindOf(one) !== kindOf(first))) return
      const count = BigInt(items.length)
      const learned: Learned = {
        items: items.length,
        wallets: walletsOf(items),
        ancillaryBytes: longestOf(items),
        perItem: (estimate + count - 1n) / count,
      }
      const known = (kinds.get(kindOf(first)) ?? []).filter((one) => !isCovered(one, learned))
      kinds.set(kindOf(first), [learned, ...known].slice(0, mostLearned))
    },
    forget(items) {
      for (const one of items) kinds.delete(kindOf(one))
    },
    clear: () => kinds.clear(),
  }
}

/** The same or a wider use of an older estimate's place: the newer one counts. */
const isCovered = (older: Learned, newer: Learned) =>
  newer.items <= older.items &&
  newer.ancillaryBytes >= older.ancillaryBytes &&
  newer.wallets * older.items >= older.wallets * newer.items &&
  newer.perItem <= older.perItem

const ascending = (one: bigint, other: bigint) => (one < other ? -1 : 1)
