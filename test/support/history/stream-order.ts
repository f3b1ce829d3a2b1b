import type { Claim, JournalFact, RuleReport } from './facts.js'

const expiryMarginMs = 3_600_000

const hasExpired = ({ deadlineSeconds }: Claim, atMs: number): boolean =>
  atMs > deadlineSeconds * 1_000 + expiryMarginMs

export const authorizationKey = ({ chainId, nonce }: Claim): string => `${chainId} ${nonce}`

function reportPair(report: RuleReport, first: string, second: string, wasUnknown: boolean): void {
  const both = `${second} was signed while`
  if (wasUnknown)
    report.broken(
      'R7',
      `${both} the outcome of ${first}, for the same question and round, was unknown`,
    )
  else
    report.broken(
      'R8',
      `${both} ${first}, for the same question and round, was open, and does not supersede it`,
    )
}

const isSame = (one: Claim, other: Claim) => authorizationKey(one) === authorizationKey(other)

const mostRivals = 16

interface Standing {
  readonly claim: Claim
  isSigned: boolean
  pending: number
  uncertain: number
  accepted: number
  refused: number
  hasId: boolean
  isClosed: boolean
  isAbandoned: boolean
  supersededBy: string | undefined
}

export function createStreamOrder({ count, broken }: RuleReport) {
  const standings = new Map<string, Standing>()
  const open = new Map<string, Map<string, Set<Standing>>>()
  const replacedLater = new Map<string, string>()

  const isUnknown = (one: Standing) => !one.hasId && (one.pending > 0 || one.uncertain > 0)
  const isRefused = (one: Standing) =>
    one.refused > 0 && one.accepted === 0 && !one.hasId && !isUnknown(one)
  const isReplaced = ({ supersededBy }: Standing) =>
    supersededBy !== undefined && standings.get(supersededBy)?.isAbandoned !== true

  const roundsOf = ({ chainId, question }: Claim) => {
    const key = `${chainId} ${question}`
    const known = open.get(key) ?? new Map<string, Set<Standing>>()
    open.set(key, known)
    return known
  }
  const roundOf = (claim: Claim) => {
    const rounds = roundsOf(claim)
    const known = rounds.get(claim.round ?? '') ?? new Set()
    rounds.set(claim.round ?? '', known)
    return known
  }

  const rivalsOf = (claim: Claim): readonly Standing[] => {
    const rounds = roundsOf(claim)
    const near =
      claim.round === undefined ? [...rounds.values()] : [rounds.get(claim.round), rounds.get('')]
    const found: Standing[] = []
    for (const bucket of near) {
      for (const one of bucket ?? []) {
        if (one.isClosed || isRefused(one) || hasExpired(one.claim, claim.atMs)) bucket?.delete(one)
        else if (one.claim.id !== claim.supersedes && !isReplaced(one) && !isSame(one.claim, claim))
          found.push(one)
        if (found.length >= mostRivals) return found
      }
    }
    return found
  }

  const enter = (claim: Claim): Standing => {
    count('R8')
    for (const first of rivalsOf(claim))
      reportPair({ count, broken }, first.claim.id, claim.id, isUnknown(first))
    const made: Standing = {
      claim,
      isSigned: false,
      pending: 0,
      uncertain: 0,
      accepted: 0,
      refused: 0,
      hasId: false,
      isClosed: false,
      isAbandoned: false,
      supersededBy: replacedLater.get(claim.id),
    }
    roundOf(claim).add(made)
    standings.set(claim.id, made)
    if (claim.supersedes !== undefined) {
      const replaced = standings.get(claim.supersedes)
      if (replaced) replaced.supersededBy = claim.id
      else replacedLater.set(claim.supersedes, claim.id)
    }
    return made
  }

  const onEnded = ({ id, class: outcome }: Extract<JournalFact, { kind: 'ended' }>) => {
    const one = standings.get(id)
    if (!one) return
    one.pending = Math.max(0, one.pending - 1)
    if (outcome === 'uncertain' || outcome === 'accepted' || outcome === 'refused')
      one[outcome] += 1
  }

  return (fact: JournalFact): void => {
    switch (fact.kind) {
      case 'reserved':
        return
      case 'offered':
        enter(fact.claim)
        return
      case 'signed': {
        const { claim } = fact
        const standing = standings.get(claim.id) ?? enter(claim)
        standing.isSigned = true
        const replaced =
          claim.supersedes === undefined ? undefined : standings.get(claim.supersedes)
        if (replaced) roundOf(replaced.claim).delete(replaced)
        return
      }
      case 'attempt':
        for (const id of fact.ids) {
          const one = standings.get(id)
          if (!one) continue
          one.pending += 1
          if (!one.isClosed && !isReplaced(one)) roundOf(one.claim).add(one)
        }
        return
      case 'ended':
        onEnded(fact)
        return
      case 'acknowledged': {
        const one = standings.get(fact.id)
        if (one) one.hasId = true
        return
      }
      case 'terminal':
      case 'abandoned': {
        const one = standings.get(fact.id)
        const closes = fact.kind === 'terminal' ? fact.closes : one?.isSigned === false
        if (!one || !closes) return
        one.isClosed = true
        one.isAbandoned = fact.kind === 'abandoned'
      }
    }
  }
}
