// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are source
/**
 * The bugs of robustness T15, each an edit of one source file and the test that has to fail for it.
 * Planted in the text that a test run loads (`../planted-vitest.js`); nothing in the sources knows
 * of them.
 */
export interface PlantedBug {
  readonly name: string
  /** From the root of the repository. */
  readonly file: string
  /** Each `find` stands exactly once in the file. */
  readonly edits: readonly { readonly find: string; readonly replace: string }[]
  /** The test file, and a part of the title of a test in it that fails for nothing but the bug. */
  readonly caughtBy: { readonly file: string; readonly title: string }
}

export const plantedBugs: readonly PlantedBug[] = [
  {
    name: 'ack before sync',
    file: 'src/core/storage/writer.ts',
    edits: [
      {
        find: '    try {\n      await handle.datasync()\n    } catch (error) {\n      throw fail(error, `${folder} could not be synced`)',
        replace:
          '    try {\n      void handle.datasync().catch(() => undefined)\n    } catch (error) {\n      throw fail(error, `${folder} could not be synced`)',
      },
    ],
    caughtBy: {
      file: 'test/unit/sync-order.test.ts',
      title: 'R1: as long as the datasync of its bytes has not returned',
    },
  },
  {
    name: 'no directory sync',
    file: 'src/core/storage/durable.ts',
    edits: [
      {
        find: '  try {\n    await files.syncDir(folder)\n  } catch (cause) {\n    throw failedForGood(`${folder} could not be synced`, cause)\n  }\n',
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
    file: 'src/core/storage/durable.ts',
    edits: [{ find: '    offset += written\n', replace: '    offset = bytes.length\n' }],
    caughtBy: {
      file: 'test/unit/storage-log.test.ts',
      title: 'robustness §2: a short write is continued',
    },
  },
  {
    name: 'sync retried',
    file: 'src/core/storage/writer.ts',
    edits: [
      {
        find: '    } catch (error) {\n      throw fail(error, `${folder} could not be synced`)\n    }',
        replace: '    } catch {\n      await handle.datasync()\n    }',
      },
    ],
    caughtBy: {
      file: 'test/unit/storage-log.test.ts',
      title: 'R10: a failed datasync is never retried',
    },
  },
  {
    name: 'torn rule mid-file',
    file: 'src/core/storage/walk.ts',
    edits: [
      {
        find: '        if (provesDurable(line, badAt, raw.offset, chain.sequence)) throw damaged(file.path, badAt, brokenBelowMark)\n        continue',
        replace: '        continue',
      },
    ],
    caughtBy: {
      file: 'test/crash/storage-damage.test.ts',
      title: 'a flipped bit is refused, or costs only what no durable mark covers',
    },
  },
  {
    name: 'early 200 replay',
    file: 'src/core/gateway/ledger/store.ts',
    edits: [
      {
        find: '    let found = met(candidate, noClaims(0))',
        replace: '    let found = met(candidate, claims)',
      },
    ],
    caughtBy: {
      file: 'test/unit/replay-in-flight.test.ts',
      title: 'R1, R2: a copy in flight is answered only once the first one is durable',
    },
  },
  {
    name: 'new nonce on nonce-too-low',
    file: 'src/core/gateway/executor/sending.ts',
    edits: [
      {
        find: "        if (error.kind !== 'already_known') {",
        replace: `        if (error.kind === 'nonce_too_low') {
          const { closeChanges } = await import('./slot-changes.js')
          const ends = slotCandidates.map((candidate) => ({ candidate, end: { kind: 'again' as const } }))
          await commitOn(ledger, slotCandidates, closeChanges(slot, { kind: 'foreign', hash: null }, ends, clock.nowMs()))
          return false
        }
        if (error.kind !== 'already_known') {`,
      },
    ],
    caughtBy: {
      file: 'test/unit/executor.test.ts',
      title: 'nonce_too_low: the same bytes again later, never another nonce',
    },
  },
  {
    name: 'nonce burnt before its record',
    file: 'src/core/gateway/executor/executor.ts',
    edits: [
      {
        find: '  const sender = createSender(ports)\n',
        replace: '  const sender = createSender(ports)\n  let burnt = -1\n',
      },
      {
        find: '    bind(Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1), load, heads, nonceLatest)',
        replace:
          '    bind((burnt = Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1, burnt + 1)), load, heads, nonceLatest)',
      },
    ],
    caughtBy: {
      file: 'test/unit/nonce-record.test.ts',
      title: 'R3: a nonce whose record did not become durable is not spent',
    },
  },
  {
    name: 're-sign on timeout',
    file: 'src/core/client/journal/authorizations.ts',
    edits: [
      {
        find: '      one.supersededBy === undefined &&\n      isOpen(one, nowMs),',
        replace:
          "      one.supersededBy === undefined &&\n      isOpen(one, nowMs) &&\n      stateOf(one, nowMs).kind !== 'unknown',",
      },
    ],
    caughtBy: {
      file: 'test/unit/one-signature.test.ts',
      title: 'R7: the next process, asked for the same after an unknown outcome',
    },
  },
  {
    name: 'send before journal',
    file: 'src/core/client/propose/attempt.ts',
    edits: [
      {
        find: "  await journal.append(journal.hasSigned(id) ? [start] : [{ kind: 'signed', data: signed }, start])\n",
        replace:
          "  void journal.append(journal.hasSigned(id) ? [start] : [{ kind: 'signed', data: signed }, start]).catch(() => undefined)\n",
      },
    ],
    caughtBy: {
      file: 'test/crash/client-journal.test.ts',
      title: 'R10: a sync that fails before the attempt sends nothing',
    },
  },
  {
    name: 'stale lock by mtime',
    file: 'src/core/storage/lock.ts',
    edits: [
      {
        find: '  return { ...known, state: await liveness.probe(joinPath(folder, record.socket)) }',
        replace: `  const { statSync } = await import('node:fs')
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
    file: 'src/core/protocol/proposal.ts',
    edits: [
      {
        find: '    deadline: String(item.permit.deadline),\n    signature: item.signature as Hex,',
        replace:
          '    deadline: String(item.permit.deadline),\n    signature: item.signature as Hex,\n    clientRef: item.client_ref,\n  } as Authorization & { clientRef?: string',
      },
      {
        find: '|${nonce}|${deadline}|${signature}`)',
        replace:
          "|${nonce}|${deadline}|${signature}${(authorization as { clientRef?: string }).clientRef ?? ''}`)",
      },
    ],
    caughtBy: {
      file: 'test/unit/admission.test.ts',
      title: 'R22: client_ref, the spelling of the identifier and single or batch form',
    },
  },
  {
    name: 'reader truncates',
    file: 'src/core/storage/reader.ts',
    edits: [
      {
        find: '    yield* walkAll(ports, opened, manifest, walk, { knownKinds: options.knownKinds, torn: true })',
        replace: `    yield* walkAll(ports, opened, manifest, walk, { knownKinds: options.knownKinds, torn: true })
    const last = opened.at(-1)
    if (!walk.torn || last === undefined) return
    const handle = await files.open(last.path, 'append')
    await handle.truncate(walk.offset)
    await handle.close()`,
      },
    ],
    caughtBy: { file: 'test/crash/storage-damage.test.ts', title: 'R24: a reader changes nothing' },
  },
  {
    name: 'trusts typed_data',
    file: 'src/core/client/propose/prepare.ts',
    edits: [
      {
        find: '  if (toHex(theirs.digest(terms)) !== toHex(ours.digest(terms))) {',
        replace: '  if (ours === theirs) {',
      },
    ],
    caughtBy: {
      file: 'test/unit/one-signature.test.ts',
      title: 'R9: typed_data of a server that names another spender',
    },
  },
]

/**
 * The source with the bug in it. Throws RangeError, a sentence, where an edit does not fit the
 * source any more.
 */
export function plant({ name, file, edits }: PlantedBug, source: string): string {
  return edits.reduce((text, { find, replace }) => {
    const parts = text.split(find)
    if (parts.length !== 2)
      throw new RangeError(
        `the planted bug "${name}" no longer fits ${file}: its text stands there ${parts.length - 1} times`,
      )
    return parts.join(replace)
  }, source)
}
