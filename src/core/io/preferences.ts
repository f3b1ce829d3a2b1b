/**
 * The user's preferences, `<home>/config.json` by `conf`; never keys (contract §7). Loaded only
 * where the file exists or is written.
 */

import Conf from 'conf'
import { UsageError } from '../protocol/errors.js'
import { readPlain } from './files.js'
import { homePaths } from './home-paths.js'

export type PreferenceTree = { readonly [key: string]: unknown }

export interface Preferences {
  readonly path: string
  all(): PreferenceTree
  /** Dotted keys; `undefined` removes. */
  set(key: string, value: string | undefined): void
}

/**
 * Throws UsageError (exit 2) `config_damaged` for a file that is not a JSON object,
 * `config_unreadable` for one that cannot be read. `conf` may publish a cut file on a full disk.
 */
export async function openPreferences(home: string): Promise<Preferences> {
  const path = homePaths.config(home)
  // conf takes a list, or a bare value, for an object.
  const text = await textOf(path)
  guarded(path, () => requireObject(text))
  const conf = guarded(
    path,
    () =>
      new Conf<Record<string, unknown>>({
        cwd: home,
        configName: 'config',
        configFileMode: 0o600,
        clearInvalidConfig: false,
      }),
  )
  return {
    path,
    all: () => guarded(path, () => conf.store),
    set(key, value) {
      guarded(path, () => {
        removeMisshapen(conf, key)
        if (value === undefined) conf.delete(key)
        else conf.set(key, value)
      })
    },
  }
}

/**
 * A parent of the key that holds no object would keep conf from storing, or from showing, what is
 * set under it.
 */
function removeMisshapen(conf: Conf<Record<string, unknown>>, key: string): void {
  const parts = key.split('.')
  for (let depth = 1; depth < parts.length; depth++) {
    const parent = parts.slice(0, depth).join('.')
    const held: unknown = conf.get(parent)
    if (held !== undefined && !isObject(held)) conf.delete(parent)
  }
}

const isObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** `undefined` where there is none. UsageError `config_unreadable`. */
async function textOf(path: string): Promise<string | undefined> {
  try {
    return new TextDecoder().decode(await readPlain(path))
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
    if (code === 'ENOENT') return undefined
    throw new UsageError('config_unreadable', `${path} cannot be read (${code})`, {
      cause: error,
      hint: 'check the file and its rights, or move it away and set your preferences again with `proposer config set`',
    })
  }
}

/** Throws SyntaxError for a text that holds JSON of another kind. */
function requireObject(text: string | undefined): void {
  if (text !== undefined && !isObject(JSON.parse(text))) throw new SyntaxError('not an object')
}

function guarded<T>(path: string, act: () => T): T {
  try {
    return act()
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new UsageError('config_damaged', `${path} is not a JSON object`, {
      cause: error,
      hint: 'correct the file, or move it away and set your preferences again with `proposer config set`',
    })
  }
}
