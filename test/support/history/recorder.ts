/**
 * Writes down a run's events at its edges, for the history checker (T14): what was written to the
 * logs and when their syncs returned, what the gateway answered, what left a client, what was
 * handed to a node. Wraps edges; changes nothing about them.
 */
import { createHash } from 'node:crypto'
import { keccak256, parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import { isJournalKind, readRecord } from '#client/journal/authorizations'
import type { Chain, Fetch, Files, Hash, Hex } from '#ports'
import { type Authorization, fromBatchItem, fromSingle, identityOf } from '#protocol/proposal'
import type { Address, BatchItem, SignedProposal } from '#protocol/schema'
import type { RecordLog } from '#storage/record-log'
import { senderOf } from '../sender.js'
import type { JournalFact, StoreFact } from './facts.js'
import { createJournalFacts } from './journal-facts.js'
import { createHistory, type History } from './observed-history.js'
import { storeFacts } from './store-facts.js'

export interface HistoryRecorder {
  readonly history: History
  files(files: Files): Files
  store(log: RecordLog): RecordLog
  gateway<Rest extends readonly unknown[]>(
    handle: (request: Request, ...rest: Rest) => Promise<Response>,
  ): (request: Request, ...rest: Rest) => Promise<Response>
  client(fetch: Fetch): Fetch
  chain(chain: Chain): Chain
}

const hash: Hash = { sha256: (data) => createHash('sha256').update(data).digest('hex') }
const submission = /^\/v1\/proposals\/(0x[0-9a-f]{64})$/

async function readRaw(
  raw: TransactionSerializedEIP1559,
): Promise<{ hash: string; sender: string; nonce: number }> {
  return {
    hash: keccak256(raw),
    sender: await senderOf(raw),
    nonce: parseTransaction(raw).nonce ?? 0,
  }
}

export function recordHistory(binding: {
  readonly chainId: number
  readonly spender: Address
}): HistoryRecorder {
  const history = createHistory()
  const runs = new Map<string, ReturnType<typeof createJournalFacts>>()
  const lines = new Map<string, { written: number; synced: number }>()
  const sent = new Map<
    string,
    { readonly hash: string; readonly sender: string; readonly nonce: number }
  >()

  const linesOf = (log: string) => {
    const known = lines.get(log) ?? { written: 0, synced: 0 }
    lines.set(log, known)
    return known
  }

  const write = (log: string, line: number, kind: string, data: unknown) => {
    const facts = factsOf(log, kind, data)
    for (const fact of facts) history.add({ kind: 'written', log, line, fact })
    linesOf(log).written = line
  }

  const factsOf = (
    log: string,
    kind: string,
    data: unknown,
  ): readonly (StoreFact | JournalFact)[] => {
    const token = /\/journal\/([0-9a-f]{12})$/.exec(log)?.[1]
    if (token === undefined) return storeFacts({ kind, data })
    if (!isJournalKind(kind)) return []
    const record = readRecord(kind, data, 0, log)
    const known = runs.get(token) ?? createJournalFacts(hash, token)
    runs.set(token, known)
    return record === undefined ? [] : known(record)
  }

  const synced = (log: string) => {
    const at = linesOf(log)
    at.synced = at.written
    history.add({ kind: 'synced', log, line: at.synced })
  }

  const answered = (
    authorization: Authorization,
    status: number,
    candidate: string | undefined,
  ) => {
    if ((status !== 200 && status !== 202) || candidate === undefined) return
    history.add({
      kind: 'answered',
      status,
      candidate,
      payload: identityOf(hash, binding, authorization),
    })
  }

  return {
    history,
    files: (files) => ({
      ...files,
      async open(path, mode) {
        const handle = await files.open(path, mode)
        const log = /^(.*)\/log-\d+\.jsonl$/.exec(path)?.[1]
        if (log === undefined || mode === 'read') return handle
        // Whoever opens it for writing has made its end durable first, and lost what lay above.
        if (mode === 'append' && linesOf(log).written > linesOf(log).synced) {
          const last = new TextDecoder()
            .decode(await files.read(path))
            .trimEnd()
            .split('\n')
            .at(-1)
          const line =
            last === undefined || last === ''
              ? linesOf(log).synced
              : (JSON.parse(last) as { n: number }).n
          lines.set(log, { written: line, synced: line })
          history.add({ kind: 'reopened', log, line })
        }
        let rest = ''
        return {
          read: (position, length) => handle.read(position, length),
          truncate: (length) => handle.truncate(length),
          size: () => handle.size(),
          close: () => handle.close(),
          async write(buffer, offset, length) {
            const count = await handle.write(buffer, offset, length)
            rest += new TextDecoder().decode(buffer.subarray(offset, offset + count))
            const whole = rest.split('\n')
            rest = whole.pop() ?? ''
            for (const text of whole) {
              const { n, k, d } = JSON.parse(text) as { n: number; k: string; d: unknown }
              write(log, n, k, d)
            }
            return count
          },
          async datasync() {
            await handle.datasync()
            synced(log)
          },
        }
      },
    }),
    store: (log) => ({
      ...log,
      append: (records, onDurable) =>
        log.append(records, (stored) => {
          for (const { sequence, kind, data } of stored) write('store', sequence, kind, data)
          synced('store')
          onDurable?.(stored)
        }),
    }),
    gateway:
      (handle) =>
      async (request, ...rest) => {
        const { pathname } = new URL(request.url)
        const single = request.method === 'POST' ? submission.exec(pathname)?.[1] : undefined
        const isBatch = request.method === 'POST' && pathname === '/propose/batch'
        const sent = single !== undefined || isBatch ? await request.clone().text() : undefined
        const response = await handle(request, ...rest)
        if (sent !== undefined && response.ok) {
          const told = (await response.clone().json()) as {
            candidate_id?: string
            results?: readonly {
              status_code: number
              candidate?: { candidate_id: string } | null
            }[]
          }
          if (single !== undefined)
            answered(
              fromSingle(single as Hex, JSON.parse(sent) as SignedProposal),
              response.status,
              told.candidate_id,
            )
          else
            for (const [index, item] of (
              JSON.parse(sent) as { proposals: BatchItem[] }
            ).proposals.entries()) {
              const { status_code = 0, candidate } = told.results?.[index] ?? {}
              answered(
                fromBatchItem(item.identifier as Hex, item),
                status_code,
                candidate?.candidate_id,
              )
            }
        } else if (response.ok && /\/status\/[^/]+$/.test(pathname)) {
          const { candidate_id } = (await response.clone().json()) as { candidate_id: string }
          history.add({ kind: 'told', candidate: candidate_id })
        }
        return response
      },
    client: (fetch) => async (input, init) => {
      const { method, url } = new Request(input, init)
      const { pathname, origin } = new URL(url)
      const isSubmission =
        method === 'POST' && (submission.test(pathname) || pathname === '/propose/batch')
      if (isSubmission && typeof init?.body === 'string')
        history.add({ kind: 'sent', origin, sha256: hash.sha256(init.body) })
      return fetch(input, init)
    },
    // Tests change a chain's verbs while it is in use, so everything else is looked up when it is
    // called.
    chain: (chain) =>
      new Proxy(chain, {
        get: (target, name) => (name === 'send' ? handOver(target) : Reflect.get(target, name)),
      }),
  }

  function handOver(chain: Chain): Chain['send'] {
    return async (raw) => {
      const known = sent.get(raw) ?? (await readRaw(raw as TransactionSerializedEIP1559))
      sent.set(raw, known)
      history.add({ kind: 'handed', ...known })
      return chain.send(raw)
    }
  }
}
