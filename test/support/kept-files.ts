/**
 * The files that earlier versions left (fixtures/v0.1, fixtures/v0.2), copied to where a test may
 * write, with the modes that git does not keep.
 */
import { readFileSync } from 'node:fs'
import { chmod, cp, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { systemClock } from '#io/clock'
import type { Clock } from '#ports'
import { temporaryFolder } from './folders.js'

export const keptVersions = ['v0.1', 'v0.2'] as const
export type KeptVersion = (typeof keptVersions)[number]

const sourceOf = (version: KeptVersion) => join(import.meta.dirname, '../../fixtures', version)

export interface Expected {
  readonly made_ms: number
  readonly config: object
  readonly replays: readonly { readonly home: string; readonly sent: readonly Sent[] }[]
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

export const expectedOf = (version: KeptVersion): Expected =>
  JSON.parse(readFileSync(join(sourceOf(version), 'expected.json'), 'utf8'))

export async function keptFiles(version: KeptVersion): Promise<string> {
  const folder = temporaryFolder()
  await cp(sourceOf(version), folder, { recursive: true })
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    await chmod(join(entry.parentPath, entry.name), entry.isDirectory() ? 0o700 : 0o600)
  }
  return folder
}

export const clockAt = (atMs: number): Clock => ({ ...systemClock, nowMs: () => atMs })

export function clockFrom(atMs: number): Clock {
  const startMs = systemClock.monotonicMs()
  return { ...systemClock, nowMs: () => Math.floor(atMs + systemClock.monotonicMs() - startMs) }
}
