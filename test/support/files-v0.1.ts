/**
 * The files that version 0.1 left (fixtures/v0.1), copied to where a test may write, with the modes
 * that git does not keep.
 */
import { readFileSync } from 'node:fs'
import { chmod, cp, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../../src/core/io/clock.js'
import type { Clock } from '../../src/core/ports.js'

const source = fileURLToPath(new URL('../../fixtures/v0.1', import.meta.url))

/** `expected.json`: what 0.1 itself said of its files. */
interface Expected {
  readonly made_ms: number
  /** gateway-all-keys.json as its parser understood it. */
  readonly config: object
  /** The calls of `replay --all` in each home, answered 202. */
  readonly replays: readonly { readonly home: string; readonly sent: readonly Sent[] }[]
  /** What each command printed with --json at that time; `<folder>` stands for the copy. */
  readonly commands: readonly {
    readonly argv: readonly string[]
    readonly at_ms: number
    readonly says: object
  }[]
}

export interface Sent {
  readonly method: string
  readonly path: string
  readonly sha256: string
}

export const expected: Expected = JSON.parse(readFileSync(join(source, 'expected.json'), 'utf8'))

/** The dev chain at its last block, as `anvil --load-state` reads it. */
export const chainFile = join(source, 'chain.json.br')

export interface FilesOfV01 {
  readonly folder: string
  remove(): Promise<void>
}

/** A copy of all files, and what removes it. */
export async function filesOfV01(): Promise<FilesOfV01> {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-v0.1-'))
  await cp(source, folder, { recursive: true })
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    await chmod(join(entry.parentPath, entry.name), entry.isDirectory() ? 0o700 : 0o600)
  }
  return { folder, remove: () => rm(folder, { recursive: true, force: true }) }
}

/** A clock that stands at this time. */
export const clockAt = (atMs: number): Clock => ({ ...systemClock, nowMs: () => atMs })

/** A clock that goes on from this time. */
export function clockFrom(atMs: number): Clock {
  const startMs = systemClock.monotonicMs()
  return { ...systemClock, nowMs: () => Math.floor(atMs + systemClock.monotonicMs() - startMs) }
}
