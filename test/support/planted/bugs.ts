// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are source
/**
 * The bugs of robustness T15, each an edit of the syntax tree and the test that has to fail for it.
 * Planted in the text that a test run loads (`../planted-vitest.js`); nothing in the sources knows
 * of them.
 */
import { bugsOf } from './plant.js'

const storage = 'src/core/storage'
const client = 'src/core/client'

export const plantedBugs = bugsOf({
  'ack before sync': [
    storage,
    'unit/sync-order',
    'R1: as long as the datasync of its bytes has not returned',
    {
      'try { await $handle.datasync() } catch ($error) { throw $fail($$told) }':
        'void $handle.datasync().catch(() => undefined)',
    },
  ],
  'no directory sync': [
    storage,
    'crash/storage',
    'R23: compaction killed or cut off at every single step',
    { 'try { await files.syncDir(folder) } catch ($cause) { throw failedForGood($$told) }': '' },
  ],
  'short write ignored': [
    storage,
    'unit/storage-log',
    'robustness §2: a short write is continued',
    { 'offset += written': 'offset = bytes.length' },
  ],
  'sync retried': [
    storage,
    'unit/storage-log',
    'R10: a failed datasync is never retried',
    {
      'try { await $handle.datasync() } catch ($error) { throw $fail($$told) }':
        'try { await $handle.datasync() } catch { await $handle.datasync() }',
    },
  ],
  'torn rule mid-file': [
    storage,
    'crash/storage-damage',
    'a flipped bit is refused, or costs only what no durable mark covers',
    { 'refuseDurable(reading, reading.badAt, line, raw.offset)': 'undefined' },
  ],
  'early 200 replay': [
    'src/core/gateway/ledger',
    'contract/ledger',
    'R1, R2: a copy in flight is answered only once the first one is durable',
    {
      'let found = met(state, identity, keys, noClaims(0))':
        'let found = met(state, identity, keys, open.claims)',
    },
  ],
  'new nonce on nonce-too-low': [
    'src/core/gateway/executor',
    'unit/node-answers',
    'nothing took the nonce, and the same bytes go out again',
    {
      "if (error.kind !== 'already_known') { $$refused }": `if (error.kind === 'nonce_too_low') {
          const { alive } = look
          const ends = alive.map((one) => progressChange(one, standsInAgain(one.progress, 0)))
          const outcome = { kind: 'foreign', hash: null }
          await executor.ports.ledger.commit([...ends, { kind: 'slot.closed', slotId: slot.id, outcome }], alive)
          return false
        }
        if (error.kind !== 'already_known') { $$refused }`,
    },
  ],
  'stale nonce: the count of transactions outlives its head': [
    'src/core/gateway/executor',
    'unit/short-cuts',
    'R15: a nonce that the key has used elsewhere meanwhile is not signed for again',
    { 'head.of === newest': "head.of !== ''" },
  ],
  'stale bond: what was judged at one head counts for the next': [
    'src/core/gateway/pipeline',
    'unit/short-cuts',
    'a bond that is raised meanwhile',
    { 'known?.at === at': 'known !== undefined' },
  ],
  'stale role: a run counts for every block': [
    'src/core/gateway/executor',
    'unit/short-cuts',
    'the transaction is run at the newest head before a nonce is bound',
    {
      'ports.proven.has(`${hash} ${data}`)':
        "[...ports.proven.keys()].some((key) => key.endsWith(data)) && hash !== '0x'",
    },
  ],
  'own witness: what a node said of a head is not asked again': [
    'src/core/gateway/validation',
    'unit/short-cuts-faults',
    'no balance, and a run that reverts',
    { 'await runs(ports, candidate, latest)': 'runs === undefined' },
  ],
  'wrong gas limit: the usual one is signed untried': [
    'src/core/gateway/executor',
    'unit/short-cuts',
    'is never below what is needed: where it is too low, the node is asked',
    { '(await unlessRefused(run)) === undefined': 'run === undefined' },
  ],
  'old head: a transaction is run one block behind': [
    'src/core/gateway/executor',
    'unit/short-cuts',
    'the transaction is run at the newest head before a nonce is bound',
    {
      'fitTogether(executor, group, latest, unsendable, mayGuess)':
        'fitTogether(executor, group, { ...latest, number: latest.number - 1n }, unsendable)',
    },
  ],
  'nonce burnt before its record': [
    'src/core/gateway/executor',
    'unit/executor',
    'R3: a nonce whose record did not become durable is not spent',
    {
      'Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1)': `((globalThis as { burnt?: number }).burnt = Math.max(
          nonceLatest,
          ledger.highestNonce(signer.address) + 1,
          ((globalThis as { burnt?: number }).burnt ?? -1) + 1,
        ))`,
    },
  ],
  'remote signature unchecked': [
    'src/core/chain',
    'unit/transaction',
    'one that changes nonce is refused',
    {
      'if (changed !== undefined) throw invalid($why)': '',
      'if (account !== address) throw invalid($why)': '',
    },
  ],
  're-sign on timeout': [
    `${client}/journal`,
    'unit/submission',
    'R7: the next process, asked for the same after an unknown outcome',
    {
      'one.supersededBy === undefined && $whose && isOpen(one, nowMs)':
        "one.supersededBy === undefined && $whose && isOpen(one, nowMs) && stateOf(one, nowMs).kind !== 'unknown'",
    },
  ],
  'send before journal': [
    `${client}/propose`,
    'crash/client-journal',
    'R10: a sync that fails before the attempt sends nothing',
    {
      'await journal.append([...copied, start])':
        'void journal.append([...copied, start]).catch(() => undefined)',
    },
  ],
  'stale lock by mtime': [
    storage,
    'unit/stale-lock',
    'R12, R13: a lock is judged by who listens, never by its age',
    {
      'return { ...known, state: await liveness.probe($path) }': `const { statSync } = await import('node:fs')
  const isOld = Date.now() - statSync(epochPath(folder, epoch)).mtimeMs > 60_000
  return { ...known, state: isOld ? 'dead' : 'alive' }`,
    },
  ],
  'client_ref in identity': [
    'src/core/protocol',
    'unit/admission',
    'R22: client_ref, the spelling of the identifier and single or batch form',
    {
      'String(permit.deadline)': 'String(permit.deadline), clientRef: item.client_ref',
      "[...round, proposer, price, '0', amount, nonce, deadline, signature]":
        "[...round, proposer, price, '0', amount, nonce, deadline, signature, (authorization as { clientRef?: string }).clientRef]",
    },
  ],
  'reader truncates': [
    storage,
    'crash/storage-damage',
    'R24: a reader changes nothing',
    {
      'yield* walkAll({ hash, folder, manifest, opened }, walk, { knownKinds, torn: true })': `yield* walkAll({ hash, folder, manifest, opened }, walk, { knownKinds, torn: true })
    const last = opened.at(-1)
    if (!walk.torn || last === undefined) return
    const handle = await ports.files.open(last.path, 'append')
    await handle.truncate(walk.offset)
    await handle.close()`,
    },
  ],
  'trusts typed_data': [
    client,
    'unit/submission',
    'R9: typed_data of a server that names another spender',
    { 'toHex(digest(terms)) === digestOf(terms)': 'digest !== undefined' },
  ],
})
