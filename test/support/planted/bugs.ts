// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are source
/**
 * The bugs of robustness T15, each an edit of the syntax tree and the test that has to fail for it.
 * Planted in the text that a test run loads (`../planted-vitest.js`); nothing in the sources knows
 * of them.
 */
import type { PlantedBug } from './plant.js'

const storage = 'src/core/storage'
const client = 'src/core/client'

export const plantedBugs: readonly PlantedBug[] = [
  {
    name: 'ack before sync',
    room: storage,
    edits: [
      {
        find: 'try { await $handle.datasync() } catch ($error) { throw $fail($$told) }',
        replace: 'void $handle.datasync().catch(() => undefined)',
      },
    ],
    caughtBy: {
      file: 'test/unit/sync-order.test.ts',
      title: 'R1: as long as the datasync of its bytes has not returned',
    },
  },
  {
    name: 'no directory sync',
    room: storage,
    edits: [
      {
        find: 'try { await files.syncDir(folder) } catch ($cause) { throw failedForGood($$told) }',
        replace: '',
      },
    ],
    caughtBy: {
      file: 'test/crash/storage.test.ts',
      title: 'R23: compaction killed or cut off at every single step',
    },
  },
  {
    name: 'short write ignored',
    room: storage,
    edits: [{ find: 'offset += written', replace: 'offset = bytes.length' }],
    caughtBy: {
      file: 'test/unit/storage-log.test.ts',
      title: 'robustness §2: a short write is continued',
    },
  },
  {
    name: 'sync retried',
    room: storage,
    edits: [
      {
        find: 'try { await $handle.datasync() } catch ($error) { throw $fail($$told) }',
        replace: 'try { await $handle.datasync() } catch { await $handle.datasync() }',
      },
    ],
    caughtBy: {
      file: 'test/unit/storage-log.test.ts',
      title: 'R10: a failed datasync is never retried',
    },
  },
  {
    name: 'torn rule mid-file',
    room: storage,
    edits: [
      { find: 'refuseDurable(reading, reading.badAt, line, raw.offset)', replace: 'undefined' },
    ],
    caughtBy: {
      file: 'test/crash/storage-damage.test.ts',
      title: 'a flipped bit is refused, or costs only what no durable mark covers',
    },
  },
  {
    name: 'early 200 replay',
    room: 'src/core/gateway/ledger',
    edits: [
      {
        find: 'let found = met(state, candidate, noClaims(0))',
        replace: 'let found = met(state, candidate, open.claims)',
      },
    ],
    caughtBy: {
      file: 'test/unit/replay-in-flight.test.ts',
      title: 'R1, R2: a copy in flight is answered only once the first one is durable',
    },
  },
  {
    name: 'new nonce on nonce-too-low',
    room: 'src/core/gateway/executor',
    edits: [
      {
        find: "if (error.kind !== 'already_known') { $$refused }",
        replace: `if (error.kind === 'nonce_too_low') {
          const { closeChanges } = await import('./slot-changes.js')
          const ends = alive.map((candidate) => ({ candidate, end: { kind: 'again' as const } }))
          const mined = { kind: 'foreign' as const, hash: null }
          await ledger.commit(closeChanges(slot, mined, ends, clock.nowMs()), alive)
          return false
        }
        if (error.kind !== 'already_known') { $$refused }`,
      },
    ],
    caughtBy: {
      file: 'test/unit/node-answers.test.ts',
      title: 'nothing took the nonce, and the same bytes go out again',
    },
  },
  {
    name: 'stale nonce: the count of transactions outlives its head',
    room: 'src/core/gateway/validation',
    edits: [{ find: 'if (head === newest) return', replace: 'if (head !== undefined) return' }],
    caughtBy: {
      file: 'test/unit/short-cuts.test.ts',
      title: 'R15: a nonce that the key has used elsewhere meanwhile is not signed for again',
    },
  },
  {
    name: 'stale bond: what was judged at one head counts for the next',
    room: 'src/core/gateway/pipeline',
    edits: [{ find: 'known?.at === at', replace: 'known !== undefined' }],
    caughtBy: {
      file: 'test/unit/short-cuts.test.ts',
      title: 'a bond that is raised meanwhile',
    },
  },
  {
    name: 'stale role: a run counts for every block',
    room: 'src/core/gateway/executor',
    edits: [
      {
        find: 'proven.has(`${hash} ${data}`)',
        replace: "[...proven.keys()].some((key) => key.endsWith(data)) && hash !== '0x'",
      },
    ],
    caughtBy: {
      file: 'test/unit/short-cuts.test.ts',
      title: 'the transaction is run at the newest head before a nonce is bound',
    },
  },
  {
    name: 'own witness: what a node said of a head is not asked again',
    room: 'src/core/gateway/validation',
    edits: [{ find: 'await runs(ports, candidate, latest)', replace: 'runs === undefined' }],
    caughtBy: {
      file: 'test/unit/short-cuts-faults.test.ts',
      title: 'no balance, and a run that reverts',
    },
  },
  {
    name: 'wrong gas limit: the usual one is signed untried',
    room: 'src/core/gateway/executor',
    edits: [{ find: 'await succeeds(run)', replace: 'run !== undefined' }],
    caughtBy: {
      file: 'test/unit/short-cuts.test.ts',
      title: 'is never below what is needed: where it is too low, the node is asked',
    },
  },
  {
    name: 'old head: a transaction is run one block behind',
    room: 'src/core/gateway/executor',
    edits: [
      {
        find: 'fitTogether(executor, group, latest, unsendable, mayGuess)',
        replace:
          'fitTogether(executor, group, { ...latest, number: latest.number - 1n }, unsendable, mayGuess)',
      },
    ],
    caughtBy: {
      file: 'test/unit/short-cuts.test.ts',
      title: 'the transaction is run at the newest head before a nonce is bound',
    },
  },
  {
    name: 'nonce burnt before its record',
    room: 'src/core/gateway/executor',
    edits: [
      {
        find: 'Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1)',
        replace: `((globalThis as { burnt?: number }).burnt = Math.max(
          nonceLatest,
          ledger.highestNonce(signer.address) + 1,
          ((globalThis as { burnt?: number }).burnt ?? -1) + 1,
        ))`,
      },
    ],
    caughtBy: {
      file: 'test/unit/nonce-record.test.ts',
      title: 'R3: a nonce whose record did not become durable is not spent',
    },
  },
  {
    name: 'remote signature unchecked',
    room: 'src/core/gateway/executor',
    edits: [
      { find: 'if (changed !== undefined) throw invalid($why)', replace: '' },
      { find: 'if (account !== address) throw invalid($why)', replace: '' },
    ],
    caughtBy: {
      file: 'test/unit/transaction.test.ts',
      title: 'one that changes nonce is refused',
    },
  },
  {
    name: 're-sign on timeout',
    room: `${client}/journal`,
    edits: [
      {
        find: 'one.supersededBy === undefined && $whose && isOpen(one, nowMs)',
        replace:
          "one.supersededBy === undefined && $whose && isOpen(one, nowMs) && stateOf(one, nowMs).kind !== 'unknown'",
      },
    ],
    caughtBy: {
      file: 'test/unit/one-signature.test.ts',
      title: 'R7: the next process, asked for the same after an unknown outcome',
    },
  },
  {
    name: 'send before journal',
    room: `${client}/propose`,
    edits: [
      {
        find: 'await journal.append([...copied, start])',
        replace: 'void journal.append([...copied, start]).catch(() => undefined)',
      },
    ],
    caughtBy: {
      file: 'test/crash/client-journal.test.ts',
      title: 'R10: a sync that fails before the attempt sends nothing',
    },
  },
  {
    name: 'stale lock by mtime',
    room: storage,
    edits: [
      {
        find: 'return { ...known, state: await liveness.probe($path) }',
        replace: `const { statSync } = await import('node:fs')
  const isOld = Date.now() - statSync(epochPath(folder, epoch)).mtimeMs > 60_000
  return { ...known, state: isOld ? 'dead' : 'alive' }`,
      },
    ],
    caughtBy: {
      file: 'test/unit/stale-lock.test.ts',
      title: 'R12, R13: a lock is judged by who listens, never by its age',
    },
  },
  {
    name: 'client_ref in identity',
    room: 'src/core/protocol',
    edits: [
      {
        find: 'String(permit.deadline)',
        replace: 'String(permit.deadline), clientRef: item.client_ref',
      },
      {
        find: '`${binding.chainId}|${binding.spender}|${questionId}|${proposer}|${price}|0|${amount}|${nonce}|${deadline}|${signature}`',
        replace:
          '`${binding.chainId}|${binding.spender}|${questionId}|${proposer}|${price}|0|${amount}|${nonce}|${deadline}|${signature}|${(authorization as { clientRef?: string }).clientRef}`',
      },
    ],
    caughtBy: {
      file: 'test/unit/admission.test.ts',
      title: 'R22: client_ref, the spelling of the identifier and single or batch form',
    },
  },
  {
    name: 'reader truncates',
    room: storage,
    edits: [
      {
        find: 'yield* walkAll({ hash, folder, manifest, opened }, walk, { knownKinds, torn: true })',
        replace: `yield* walkAll({ hash, folder, manifest, opened }, walk, { knownKinds, torn: true })
    const last = opened.at(-1)
    if (!walk.torn || last === undefined) return
    const handle = await ports.files.open(last.path, 'append')
    await handle.truncate(walk.offset)
    await handle.close()`,
      },
    ],
    caughtBy: { file: 'test/crash/storage-damage.test.ts', title: 'R24: a reader changes nothing' },
  },
  {
    name: 'trusts typed_data',
    room: client,
    edits: [
      {
        find: 'toHex(theirs.digest(terms)) !== digestOf(terms)',
        replace: 'theirs === undefined',
      },
    ],
    caughtBy: {
      file: 'test/unit/one-signature.test.ts',
      title: 'R9: typed_data of a server that names another spender',
    },
  },
]
