/**
 * What has to be true of gateway, journals and chain at the end of a simulated run (R1-R3, R6-R8,
 * R13, R15).
 */
import { type JournaledAuthorization, stateOf } from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import type { Candidate } from '#protocol/candidate'
import { questionOf as questionIn, requestOf } from '../fake-world.js'
import type { Simulation } from './run.js'

const signatureOf = ({ signed }: JournaledAuthorization): string =>
  (JSON.parse(signed.body) as { signature: string }).signature

export async function judge(sim: Simulation, views: readonly JournalView[]): Promise<void> {
  const { gateway, history } = sim
  const ledger = gateway.ledger()
  if (ledger === undefined) return history.fault('the gateway does not run although nothing fails')
  const ids = new Set([...history.told.values(), ...ledger.active().map(({ id }) => id)])
  for (const signature of history.payloads.keys())
    for (const id of history.candidatesOf(signature)) ids.add(id)
  const candidates = new Map<string, Candidate>()
  for (const id of ids) {
    const candidate = await ledger.get(id)
    if (candidate) candidates.set(candidate.signature, candidate)
    else history.fault(`R1: candidate ${id} was known and is lost`)
  }
  acknowledgements(sim, candidates)
  for (const [index, view] of views.entries()) journal(sim, view, candidates, index)
  ends(sim, [...candidates.values()])
}

function acknowledgements(
  { history }: Simulation,
  candidates: ReadonlyMap<string, Candidate>,
): void {
  for (const [signature, id] of history.told) {
    if (candidates.get(signature)?.id !== id)
      history.fault(`R1: the acknowledgement of candidate ${id} is lost`)
  }
  for (const { signature, id } of candidates.values()) {
    if (!history.payloads.has(signature)) history.fault(`R1: candidate ${id} was never sent`)
  }
}

function journal(
  sim: Simulation,
  view: JournalView,
  candidates: ReadonlyMap<string, Candidate>,
  index: number,
): void {
  const { history, time } = sim
  const machine = index === 0 ? 'client0' : 'client1'
  const known = new Map(view.authorizations.map((one) => [signatureOf(one), one]))
  const nonces = new Set<string>()
  for (const one of view.authorizations) {
    const { nonce } = one.signed.terms
    if (nonces.has(nonce)) history.fault(`R6: nonce ${nonce} serves two authorizations`)
    nonces.add(nonce)
    if (one.candidateId !== undefined && candidates.get(signatureOf(one))?.id !== one.candidateId)
      history.fault(
        `R1: the journal has candidate ${one.candidateId} for ${one.id}, which the gateway does not know as that`,
      )
  }
  for (const payload of history.payloads.values()) {
    if (payload.machine !== machine) continue
    const one = known.get(payload.signature)
    if (one === undefined || one.attempts.length === 0) {
      history.fault('R4: a payload was sent, and the journal has no attempt with it')
      continue
    }
    const state = stateOf(one, time.clockOf(machine, () => true).nowMs())
    history.count(`authorizations ${state.kind}`)
    const settled =
      state.kind === 'accepted' ||
      state.kind === 'closed' ||
      state.kind === 'conflict' ||
      !isCurrent(sim, one)
    if (!settled)
      history.fault(
        `R7: ${one.id} is still ${state.kind} although the gateway answers and its round is open`,
      )
    const candidate = candidates.get(payload.signature)
    if (
      state.kind === 'closed' &&
      state.reason === 'refused' &&
      candidate !== undefined &&
      mayLive(candidate)
    )
      history.fault(
        `R7: ${one.id} counts as refused, and candidate ${candidate.id} is ${candidate.progress.status}`,
      )
  }
  for (const { machine: whose, signature, candidateId } of history.kept) {
    if (whose !== machine || known.get(signature)?.candidateId === candidateId) continue
    history.fault(`R1: a user was told of candidate ${candidateId}, and the journal has lost it`)
  }
  secondSignatures(sim, view)
}

/**
 * R7, R8: at each signing nothing else of its question and round may live, as far as the gateway
 * and the wire tell.
 */
function secondSignatures({ history }: Simulation, { authorizations }: JournalView): void {
  const signedAt = ({ signed }: JournaledAuthorization) =>
    history.signings.find(({ digest }) => digest === signed.digest)?.at
  for (const later of authorizations) {
    const at = signedAt(later)
    if (at === undefined) continue
    for (const earlier of authorizations) {
      const before = signedAt(earlier)
      if (before === undefined || before >= at || earlier.signed.round !== later.signed.round)
        continue
      const signature = signatureOf(earlier)
      const state = history.statesOf(signature).findLast((each) => each.at <= at)?.progress
      const sendings =
        history.payloads.get(signature)?.sendings.filter((each) => each.at < at) ?? []
      const isDead = state?.status === 'failed' && !state.failure.retryable
      const mayBeAdmitted = sendings.some(({ told }) => told !== 'refused')
      if (!isDead && (state !== undefined || mayBeAdmitted || sendings.length === 0))
        history.fault(
          `R8: ${later.id} was signed while ${earlier.id} of the same round might live (${state?.status ?? 'unknown'})`,
        )
    }
  }
}

const mayLive = ({ progress }: Candidate) =>
  progress.status !== 'failed' || progress.failure.retryable

function isCurrent({ chain }: Simulation, { signed }: JournaledAuthorization): boolean {
  const { world, head } = chain
  const questionId = signed.questionId as `0x${string}`
  const isOpen = requestOf(world, questionId).state === 1
  const inTime = head.timestamp + 300n < BigInt(signed.terms.deadline)
  return isOpen && inTime && String(questionIn(world, questionId).timestamp) === signed.timestamp
}

function ends(
  { gateway, history, watch, chain }: Simulation,
  candidates: readonly Candidate[],
): void {
  for (const slot of gateway.ledger()?.slots() ?? [])
    history.fault(`R15: nonce ${slot.nonce} is still open although nothing fails`)
  const executed = new Map<string, string>()
  for (const { id, progress, round } of candidates) {
    if (progress.status !== 'executed' && progress.status !== 'failed')
      history.fault(`candidate ${id} stays ${progress.status} although nothing fails`)
    if (progress.status !== 'executed') continue
    if (executed.has(round.key))
      history.fault(`R3: ${executed.get(round.key)} and ${id} of one round are both executed`)
    executed.set(round.key, id)
    const hash = progress.submission.transactionHash
    if (hash === null || chain.truth.receipt(hash)?.status !== 'success')
      history.fault(`R14: candidate ${id} is executed without a receipt`)
  }
  for (const nonces of watch.noncesByRound().values()) {
    history.count('rounds sent')
    history.count('nonces of rounds', nonces.size)
  }
}
