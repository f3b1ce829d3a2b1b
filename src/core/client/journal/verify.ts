/** Whether a journal is whole, beyond what reading it proves: saved hashes, nonces, identities. */
import { StorageError } from '../../protocol/errors.js'
import { joinPath } from '../../storage/durable.js'
import { newFold } from './fold.js'
import { type JournalPorts, onDisk } from './journal.js'
import type { JournalRecord } from './records.js'
import { listRuns, readRun } from './runs.js'

export interface JournalProof {
  readonly runs: number
  readonly records: number
  readonly authorizations: number
  readonly hashes: number
  readonly nonces: number
}

/**
 * Proves checksums and chains of all runs, the shape of every record, saved hashes and unique
 * nonces and identities; read-only. Rejects with StorageError 74 naming file and offset (R11, R24),
 * or `journal_broken` naming journal ids.
 */
export function verifyJournal(
  ports: Pick<JournalPorts, 'files' | 'hash'>,
  home: string,
): Promise<JournalProof> {
  return onDisk(async () => {
    const folder = joinPath(home, 'journal')
    const tokens = await listRuns(ports.files, folder)
    const fold = newFold()
    const holders = new Map<string, string>()
    const terms = new Map<string, string>()
    const identities = new Map<string, string>()
    const count = { records: 0, hashes: 0 }
    const requireOne = (map: Map<string, string>, key: string, value: string, detail: string) => {
      if ((map.get(key) ?? value) !== value) throw broken(detail.replace('%', map.get(key) ?? ''))
      map.set(key, value)
    }
    const requireHash = (body: string, sha256: string, what: string) => {
      if (ports.hash.sha256(body) !== sha256)
        throw broken(`the bytes saved as ${what} do not have the hash that was recorded with them`)
      count.hashes++
    }
    const check = ({ kind, data }: JournalRecord): void => {
      if (kind === 'nonce.reserved') {
        const { id, proposer, nonce } = data
        const detail = `nonce ${nonce} of ${proposer} is reserved twice, for % and ${id}`
        requireOne(holders, `${proposer} ${nonce}`, id, detail)
      } else if (kind === 'signed') {
        const { id, chainId, questionId, identity } = data
        const { proposer, price, amount, nonce, deadline } = data.terms
        requireHash(data.body, data.sha256, id)
        // Another encoding of a signature, imported under its own id, says the same.
        const says = `${questionId} ${price} ${amount} ${deadline}`
        const detail = `nonce ${nonce} of ${proposer} serves two authorizations, one of them ${id}`
        requireOne(terms, `${chainId} ${proposer} ${nonce}`, says, detail)
        requireOne(identities, id, identity, `two different payloads are saved as ${id}`)
      } else if (kind === 'attempt.start' && data.body !== undefined)
        requireHash(data.body, data.sha256, `attempt ${data.attempt}`)
    }
    for (const token of tokens)
      for (const record of await readRun(ports, joinPath(folder, token))) {
        check(record)
        fold.add(record)
        count.records++
      }
    const { authorizations } = fold.view()
    const nonces = new Set([
      ...holders.keys(),
      ...[...terms.keys()].map((key) => key.replace(/^\d+ /, '')),
    ])
    return {
      runs: tokens.length,
      authorizations: authorizations.length,
      ...count,
      nonces: nonces.size,
    }
  })
}

const broken = (detail: string) =>
  new StorageError('journal_broken', `the journal is broken: ${detail}`, {
    hint: 'sign nothing more from this home until it is explained: see the ids in `proposer journal list`, and report it with what `proposer journal export` prints',
  })
