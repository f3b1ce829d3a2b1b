/**
 * What this machine knows that could stand at the cursor. It reads names, ids and states, within
 * bounds,
 * and proves nothing. No signature and no URL leaves here (R5).
 */
import { statSync } from 'node:fs'
import { type JournaledAuthorization, stateOf } from '#client/journal/authorizations'
import { newFold } from '#client/journal/fold'
import type { JournalRecord } from '#client/journal/records'
import { homePaths } from '#io/home'
import type { PreferenceTree } from '#io/preferences'
import type { Files } from '#ports'
import {
  type GlobalFlags,
  preferenceTree,
  profileKeys,
  resolveSettings,
} from '../session/settings.js'
import type { Context } from '../terminal/context.js'

export interface Value {
  readonly value: string
  readonly about: string
}

export type Kind =
  | 'accounts'
  | 'profiles'
  | 'keys'
  | 'candidates'
  | 'journal'
  | 'open'
  | 'unsent'
  | 'identifiers'

/** Newest first where time matters. `typed` may only narrow what is looked for. */
export async function valuesOf(
  kind: Kind,
  context: Context,
  flags: GlobalFlags,
  typed: string,
): Promise<readonly Value[]> {
  const { files } = context
  const { home, profile, trust } = await resolveSettings(context, flags)
  switch (kind) {
    case 'accounts':
      return (await jsonNames(files, homePaths.keystores(home.value))).map((value) => ({
        value,
        about: 'keystore',
      }))
    case 'profiles':
      return profiles(files, home.value, await preferenceTree(context, home.value))
    case 'keys':
      return ['profile', ...Object.keys(profileKeys)].map((value) => ({ value, about: 'setting' }))
    case 'identifiers':
      return [
        ...(await slugs(files, trust.value, profile.value)),
        ...questions(await journaled(context, home.value), typed),
      ]
    default:
      return ids(kind, await journaled(context, home.value), context.clock.nowMs())
  }
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null
const decoder = new TextDecoder()

async function jsonNames(files: Files, folder: string): Promise<string[]> {
  if (!(await files.exists(folder))) return []
  return (await files.list(folder))
    .flatMap((name) => /^([^.].*)\.json$/.exec(name)?.[1] ?? [])
    .sort()
}

async function profiles(files: Files, home: string, tree: PreferenceTree): Promise<Value[]> {
  const { profileNames } = await import('#chain/profiles')
  const stored = isRecord(tree.profiles) ? Object.keys(tree.profiles) : []
  const pinned = await jsonNames(files, `${home}/trust`)
  const named = new Map<string, string>(profileNames.map((name) => [name, 'built in']))
  for (const name of [...stored, ...pinned]) if (!named.has(name)) named.set(name, 'yours')
  return [...named].map(([value, about]) => ({ value, about }))
}

async function slugs(files: Files, path: string, profile: string): Promise<Value[]> {
  if (!(await files.exists(path))) return []
  const trust: unknown = JSON.parse(decoder.decode(await files.read(path)))
  const named = isRecord(trust) && isRecord(trust.slugs) ? Object.keys(trust.slugs) : []
  return named.map((value) => ({ value, about: `pinned by ${profile}` }))
}

/** Question ids only for those who begin to type one: beside names they are noise. */
function questions(authorizations: readonly JournaledAuthorization[], typed: string): Value[] {
  return authorizations.flatMap(({ signed }) => [
    { value: signed.identifier, about: 'in the journal' },
    ...(typed.startsWith('0') ? [{ value: signed.questionId, about: signed.identifier }] : []),
  ])
}

function ids(
  kind: 'candidates' | 'journal' | 'open' | 'unsent',
  authorizations: readonly JournaledAuthorization[],
  nowMs: number,
): Value[] {
  return authorizations.flatMap((one) => {
    const state = stateOf(one, nowMs)
    const about = `${one.signed.identifier} ${state.kind === 'closed' ? state.reason : state.kind}`
    const candidate = one.candidateId === undefined ? [] : [{ value: one.candidateId, about }]
    if (kind === 'candidates') return candidate
    const wanted = {
      journal: true,
      open: state.kind !== 'closed',
      unsent: state.kind === 'unknown' || state.kind === 'deferred',
    }[kind]
    return wanted ? [{ value: one.id, about }, ...(kind === 'journal' ? candidate : [])] : []
  })
}

/** A tab key waits for this: so many runs, the newest, of each the end, and together no more. */
const maxRuns = 256
const tailBytes = 256 * 1024
const maxBytes = 16 * 1024 * 1024

/** Newest first. Lines that cannot be read are left to `journal verify`. */
async function journaled(
  { files }: Context,
  home: string,
): Promise<readonly JournaledAuthorization[]> {
  const folder = `${home}/journal`
  if (!(await files.exists(folder))) return []
  const fold = newFold()
  let left = maxBytes
  const runs = (await files.list(folder))
    .filter((name) => /^[0-9a-f]{12}$/.test(name))
    .map((name) => ({ name, atMs: statSync(`${folder}/${name}`).mtimeMs }))
    .sort((one, other) => other.atMs - one.atMs)
  for (const { name: run } of runs.slice(0, maxRuns)) {
    for (const name of (await files.list(`${folder}/${run}`))
      .filter((one) => /^log-\d+\.jsonl$/.test(one))
      .sort()) {
      if (left <= 0) break
      const text = await tailOf(files, `${folder}/${run}/${name}`, Math.min(left, tailBytes))
      left -= text.length
      for (const line of text.split('\n')) addLine(fold, line)
    }
  }
  return [...fold.view().authorizations].reverse()
}

async function tailOf(files: Files, path: string, bytes: number): Promise<string> {
  const handle = await files.open(path, 'read')
  try {
    return decoder.decode(await handle.read(Math.max(0, (await handle.size()) - bytes), bytes))
  } finally {
    await handle.close()
  }
}

function addLine(fold: ReturnType<typeof newFold>, line: string) {
  try {
    const { k: kind, t: timeMs, d: data }: { k: string; t: number; d: unknown } = JSON.parse(line)
    // Its shape is not proven: what the fold cannot take throws.
    fold.add({ kind, data, timeMs } as JournalRecord)
  } catch {
    // a line cut by the bound, torn by a crash, or damaged: this offers what is left
  }
}
