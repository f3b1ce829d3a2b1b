/** The user's preferences, `<home>/config.json` by `conf`; never keys (contract §7). Loaded only where the file exists or is written. */
import Conf from 'conf'
import { UsageError } from '../core/protocol/errors.js'
import { homePaths } from './paths.js'

export type PreferenceTree = { readonly [key: string]: unknown }

export interface Preferences {
  readonly path: string
  all(): PreferenceTree
  /** Dotted keys; `undefined` removes. */
  set(key: string, value: string | undefined): void
}

/** Throws UsageError `config_damaged` (exit 2) for a file that is not a JSON object: `conf` may publish a cut file on a full disk. */
export function openPreferences(home: string): Preferences {
  const path = homePaths.config(home)
  const conf = guarded(
    path,
    () => new Conf<Record<string, unknown>>({ cwd: home, configName: 'config', configFileMode: 0o600, clearInvalidConfig: false }),
  )
  return {
    path,
    all: () => guarded(path, () => conf.store),
    set(key, value) {
      guarded(path, () => {
        if (value === undefined) conf.delete(key)
        else conf.set(key, value)
      })
    },
  }
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
