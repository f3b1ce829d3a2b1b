import type { Ledger, NewCandidate } from '#gateway/ledger/ledger'
import { knownKind } from '#gateway/ledger/state'
import { foldLedger, openLedger } from '#gateway/ledger/writer'
import type { Question } from '#gateway/view/state'
import type { Clock, Hex, Random, Signer } from '#ports'
import type { Candidate, Progress } from '#protocol/candidate'
import type { FailureCode } from '#protocol/codes'
import { identityOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import type { RecordLog } from '#storage/record-log'
import { testHash } from './front.js'
import { type MemoryStore, openMemoryLog } from './memory-log.js'

export interface Wish {
  readonly question: Question
  readonly proposer: Signer
  readonly price?: string
  readonly amount?: string
  readonly nonce: string
  readonly deadline: bigint
  readonly signature?: Hex
}

export async function signedCandidate(
  wish: Wish,
  binding: { chainId: number; spender: Address },
): Promise<NewCandidate> {
  const {
    question,
    proposer,
    price = '1000000000000000000',
    amount = String(question.round.totalBondRaw),
    nonce,
  } = wish
  const terms = { price, amount, nonce, deadline: String(wish.deadline) }
  const digest = toHex(question.witness.digest(terms))
  const signature = wish.signature ?? (await proposer.signDigest(digest))
  const authorization = {
    ...terms,
    questionId: question.questionId,
    proposer: proposer.address,
    signature,
  }
  return {
    identity: identityOf(testHash, binding, authorization),
    round: question.ref,
    proposer: proposer.address,
    ...terms,
    signature,
    digest,
  }
}

export async function admit(ledger: Ledger, candidate: NewCandidate): Promise<Candidate> {
  const admission = await ledger.admit(candidate)
  if (admission.kind !== 'admitted') throw new Error(`not admitted: ${admission.kind}`)
  return admission.candidate
}

export async function openMemoryLedger(
  store: MemoryStore,
  ports: { clock: Clock; random: Random },
  settings: { chainId: number; genesisHash: Hex; allowlist?: readonly Address[] },
  watch: (log: RecordLog) => RecordLog = (log) => log,
): Promise<Ledger> {
  const fold = foldLedger()
  const log = watch(openMemoryLog(store, knownKind, fold.onRecord))
  return openLedger(ports, log, fold.state, { allowlist: [], admissionEnabled: true, ...settings })
}

export async function current(ledger: Ledger, id: string): Promise<Candidate> {
  const candidate = await ledger.get(id)
  if (!candidate) throw new Error(`no candidate ${id}`)
  return candidate
}

export const failed = (
  code: FailureCode,
  retryable = false,
  detail = 'as the test wants it',
): Extract<Progress, { status: 'failed' }> => ({
  status: 'failed',
  validatedAtMs: null,
  selectedAtMs: null,
  submission: null,
  failure: { stage: 'validation', code, detail, retryable },
})
