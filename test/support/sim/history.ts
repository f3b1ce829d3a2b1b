/**
 * What the outside saw of a simulated run, and what it may hold against client and gateway: an
 * answer for something not durable (R1), two answers for one payload (R2), bytes on the wire that
 * the journal does not have (R4), a signature without a reserved nonce (R6), a second one while the
 * first may live (R7, R8), order that is not by sequence number (R13).
 */
import { createHash } from 'node:crypto'
import type { Ledger } from '#gateway/ledger/ledger'
import type { Hex } from '#ports'
import type { Candidate, Progress } from '#protocol/candidate'
import type { SimFiles } from '../sim-files.js'

export interface Payload {
  readonly signature: string
  readonly machine: string
  readonly sendings: {
    readonly at: number
    told: 'nothing' | 'accepted' | 'refused' | 'deferred' | 'conflict' | 'uncertain'
  }[]
}

export type History = ReturnType<typeof createHistory>

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

export function createHistory() {
  const faults: string[] = []
  const counts = new Map<string, number>()
  const payloads = new Map<string, Payload>()
  const told = new Map<string, string>()
  const admitted = new Map<string, number>()
  const sequences = new Map<string, number>()
  const states = new Map<string, { at: number; progress: Progress }[]>()
  const signatureOf = new Map<string, string>()
  const signings: { machine: string; digest: Hex; at: number }[] = []
  let moment = 0

  const fault = (text: string) => {
    if (!faults.includes(text)) faults.push(text)
  }
  const count = (name: string, by = 1) => counts.set(name, (counts.get(name) ?? 0) + by)
  const durable = (disk: SimFiles, text: string) => disk.holdsDurably(text)

  const payloadsIn = (machine: string, body: string): Payload[] => {
    const parsed = JSON.parse(body) as { signature?: string; proposals?: { signature: string }[] }
    const found = parsed.proposals ?? [{ signature: parsed.signature ?? '' }]
    return found.map(({ signature }) => {
      const known = payloads.get(signature)
      if (known) return known
      const made: Payload = { signature, machine, sendings: [] }
      payloads.set(signature, made)
      return made
    })
  }

  const note = (candidate: Candidate, progress: Progress) => {
    const { id, signature, sequence } = candidate
    const before = sequences.get(id)
    if (before !== undefined && before !== sequence)
      fault(`R13: candidate ${id} had sequence number ${before} and has ${sequence}`)
    if (before === undefined && [...sequences.values()].includes(sequence))
      fault(`R13: sequence number ${sequence} is used twice`)
    sequences.set(id, sequence)
    const other = [...signatureOf].find(([otherId, own]) => own === signature && otherId !== id)
    if (other) fault(`R2: one payload has the candidates ${other[0]} and ${id}`)
    signatureOf.set(id, signature)
    states.set(signature, [...(states.get(signature) ?? []), { at: moment, progress }])
  }

  const selectionFault = (ledger: Ledger, selected: Candidate): string | undefined => {
    const earlier = ledger.active().find(({ round, progress, sequence }) => {
      return (
        round.key === selected.round.key &&
        progress.status === 'validated' &&
        sequence < selected.sequence
      )
    })
    return (
      earlier &&
      `R13: ${selected.sequence} was selected before ${earlier.sequence}, which waits in the same round`
    )
  }

  const slotFault = (ledger: Ledger): string | undefined => {
    const rounds = new Map<string, string>()
    const nonces = new Set<number>()
    for (const slot of ledger.slots()) {
      if (nonces.has(slot.nonce)) return `R3: two slots have nonce ${slot.nonce}`
      nonces.add(slot.nonce)
      for (const id of slot.candidateIds) {
        const round = ledger.byId(id)?.roundKey ?? id
        if (rounds.has(round))
          return `R3: a round has the slots ${rounds.get(round)} and ${slot.id}`
        rounds.set(round, slot.id)
      }
    }
    return undefined
  }

  return {
    faults,
    counts,
    payloads,
    told,
    kept: [] as { machine: string; signature: string; candidateId: string }[],
    signings,
    fault,
    count,
    sent(machine: string, disk: SimFiles, body: string) {
      const found = payloadsIn(machine, body)
      count('submissions sent')
      const at = ++moment
      for (const { sendings } of found) sendings.push({ at, told: 'nothing' })
      const journal = disk.durableLines('"k":"attempt.start"')
      // What is sent alone in a batch call is journaled as the item that it is: what is around it
      // is fixed.
      const bytes = [body, body.slice('{"proposals":['.length, -2)].map(sha256)
      if (!journal.some((line) => bytes.some((hash) => line.includes(hash))))
        fault('R4: a submission was sent whose attempt is not durable in the journal')
      const signed = disk.durableLines('"k":"signed"')
      for (const { signature } of found) {
        if (!signed.some((line) => line.includes(signature)))
          fault('R4: a submission was sent whose bytes are not durable in the journal')
      }
      return found
    },
    answered(disk: SimFiles, list: readonly Payload[], status: number, body: string) {
      if (status !== 200 && status !== 202) return
      const parsed = JSON.parse(body) as {
        candidate_id?: string
        results?: { status_code: number; candidate?: { candidate_id: string } }[]
      }
      const results = parsed.results ?? [
        { status_code: status, candidate: { candidate_id: parsed.candidate_id ?? '' } },
      ]
      for (const [index, { status_code, candidate }] of results.entries()) {
        const payload = list[index]
        if (candidate === undefined || payload === undefined) continue
        const { candidate_id: id } = candidate
        count('acknowledgements told')
        if (!durable(disk, `"id":"${id}"`))
          fault(`R1: ${status_code} was told for candidate ${id}, which is not durable`)
        const before = told.get(payload.signature)
        if (before !== undefined && before !== id)
          fault(`R2: one payload was told to be ${before} and ${id}`)
        told.set(payload.signature, id)
        if (status_code !== 202) continue
        admitted.set(payload.signature, (admitted.get(payload.signature) ?? 0) + 1)
        if (admitted.get(payload.signature) === 2) fault(`R2: candidate ${id} was told 202 twice`)
      }
    },
    toldStatus(disk: SimFiles, body: string) {
      for (const [, id] of body.matchAll(/"candidate_id":"([0-9a-f-]{36})"/g)) {
        count('statuses told')
        if (!durable(disk, `"id":"${id}"`))
          fault(`R1: a status was told of candidate ${id}, which is not durable`)
      }
      for (const [, hash] of body.matchAll(/"transaction_hash":"(0x[0-9a-f]{64})"/g))
        if (hash !== undefined && !durable(disk, hash))
          fault(`R1: a status was told with transaction ${hash}, which is not durable`)
    },
    signed(machine: string, disk: SimFiles, digest: Hex) {
      count('signatures')
      const known = signings.some((one) => one.digest === digest)
      if (known) fault('R6: one digest was signed twice')
      signings.push({ machine, digest, at: ++moment })
      const reserved = new Set(
        disk.durableLines('"k":"nonce.reserved"').map((line) => /"nonce":"(\d+)"/.exec(line)?.[1]),
      )
      const digests = new Set(
        signings.filter((one) => one.machine === machine).map((one) => one.digest),
      )
      if (reserved.size < digests.size)
        fault('R6: a signature was asked for without a reserved nonce of its own')
    },
    async follow(ledger: Ledger, ids: Iterable<string>) {
      for (const id of ids) {
        const candidate = await ledger.get(id)
        if (candidate) note(candidate, candidate.progress)
      }
      ledger.onChange((events) => {
        moment += 1
        for (const event of events) {
          if (event.kind === 'candidate.received') note(event.candidate, event.candidate.progress)
          if (event.kind === 'slot.opened') {
            const found = slotFault(ledger)
            if (found) fault(found)
          }
          if (event.kind !== 'candidate.progress') continue
          const signature = signatureOf.get(event.id)
          if (signature === undefined) {
            fault(`R1: candidate ${event.id} goes on and was never received`)
            continue
          }
          states.get(signature)?.push({ at: moment, progress: event.progress })
          count(`became ${event.progress.status}`)
          const selected =
            event.progress.status === 'selected' && event.progress.submission === null
          const candidate = selected ? ledger.active().find(({ id }) => id === event.id) : undefined
          const found = candidate && selectionFault(ledger, candidate)
          if (found) fault(found)
        }
      })
    },
    candidatesOf: (signature: string) =>
      [...signatureOf].flatMap(([id, own]) => (own === signature ? [id] : [])),
    statesOf: (signature: string) => states.get(signature) ?? [],
  }
}
