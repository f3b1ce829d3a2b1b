/**
 * What a gateway, or several that are one, may answer about payloads that exclude each other: those
 * of one proposer with the same round or the same permit nonce. Admission, replay, conflict and
 * status are calls; the executor's work happens between them, as the log tells it.
 */
import { isActive } from '#protocol/candidate'
import type { CandidateState } from '#protocol/schema'
import type { Model, Operation } from './linearizable.js'

export interface Stage {
  readonly status: CandidateState
  readonly detail?: string
}

export interface LoggedPayload {
  readonly identity: string
  readonly proposer: string
  readonly round: string
  readonly nonce: string
  readonly candidate: { readonly id: string; readonly stages: readonly Stage[] } | undefined
}

export type Call =
  | { readonly kind: 'submit'; readonly identity: string }
  | { readonly kind: 'status'; readonly identity: string; readonly id: string }

export type Told =
  | { readonly kind: 'held'; readonly id: string; readonly isNew: boolean; readonly stage: Stage }
  | { readonly kind: 'conflict'; readonly id: string }
  | { readonly kind: 'refused' }
  | { readonly kind: 'missing' }

type State = readonly number[]

export type AdmissionCall = Operation<Call, Told>

export function admissionModel(payloads: readonly LoggedPayload[]): Model<State, Call, Told> {
  const places = new Map(payloads.map(({ identity }, at) => [identity, at]))
  const stagesOf = (at: number) => payloads[at]?.candidate?.stages ?? []
  const with_ = (state: State, at: number, stage: number): State => state.with(at, stage)

  const later = (at: number, from: number, fits: (stage: Stage) => boolean) =>
    stagesOf(at).findIndex((stage, index) => index >= from && fits(stage))

  const rivalsOf = (at: number) =>
    payloads.flatMap((other, index) =>
      index !== at && exclude(payloads[at], other) ? [index] : [],
    )

  function admit(state: State, at: number, fits: (stage: Stage) => boolean): State | undefined {
    const stage = later(at, 0, fits)
    if (state[at] !== -1 || stage === -1) return undefined
    let next: State | undefined = with_(state, at, stage)
    for (const rival of rivalsOf(at)) {
      const reached = state[rival] ?? -1
      if (reached === -1) continue
      const ended = later(rival, reached, ({ status }) => !isActive(status))
      if (ended === -1) return undefined
      next = with_(next, rival, ended)
    }
    return next
  }

  function conflict(state: State, at: number, id: string): State | undefined {
    if (state[at] !== -1) return undefined
    const rival = rivalsOf(at).find((index) => payloads[index]?.candidate?.id === id)
    const reached = rival === undefined ? -1 : (state[rival] ?? -1)
    if (rival === undefined || reached === -1) return undefined
    const stage = later(rival, reached, ({ status }) => isActive(status))
    return stage === -1 ? undefined : with_(state, rival, stage)
  }

  return {
    initial: payloads.map(() => -1),
    key: (state) => state.join(),
    step(state, call, told) {
      const at = places.get(call.identity)
      if (at === undefined) throw new RangeError(`nobody knows the payload ${call.identity}`)
      const reached = state[at] ?? -1
      if (told === undefined) return call.kind === 'submit' ? admit(state, at, () => true) : state
      if (told.kind === 'conflict') return conflict(state, at, told.id)
      if (told.kind !== 'held') return reached === -1 ? state : undefined
      const { id, isNew, stage } = told
      if (payloads[at]?.candidate?.id !== id || (call.kind === 'status' && call.id !== id))
        return undefined
      const fits = (one: Stage) =>
        one.status === stage.status && (stage.detail === undefined || one.detail === stage.detail)
      if (isNew) return admit(state, at, fits)
      const now = reached === -1 ? -1 : later(at, reached, fits)
      return now === -1 ? undefined : with_(state, at, now)
    },
  }
}

const exclude = (one: LoggedPayload | undefined, other: LoggedPayload) =>
  one?.proposer === other.proposer && (one.round === other.round || one.nonce === other.nonce)

export function groupsOf(
  payloads: readonly LoggedPayload[],
): readonly (readonly LoggedPayload[])[] {
  const groups = new Map<string, LoggedPayload[]>()
  for (const payload of payloads) {
    const keys = [`${payload.proposer} r${payload.round}`, `${payload.proposer} n${payload.nonce}`]
    const joined = new Set(keys.flatMap((key) => groups.get(key) ?? []))
    const group = [...joined, payload]
    for (const { proposer, round, nonce } of group) {
      groups.set(`${proposer} r${round}`, group)
      groups.set(`${proposer} n${nonce}`, group)
    }
  }
  return [...new Set(groups.values())]
}
