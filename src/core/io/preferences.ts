/** `<home>/config.json`; never keys (contract §7). */
import type Conf from 'conf'
import { jsonOf } from '#protocol/capped'
import { UsageError } from '#protocol/errors'
import { objectOf } from '#protocol/json'
import { errorCode } from '#storage/failures'
import { readPlain } from './files.js'
import { homePaths } from './home.js'

export type PreferenceTree = { readonly [key: string]: unknown }

export interface Preferences {
  readonly tree: PreferenceTree
  set(key: string, value: string | undefined): Promise<void>
}

/** `conf` may publish a cut file on a full disk. */
export async function openPreferences(home: string): Promise<Preferences> {
  const path = homePaths.config(home)
  const text = await textOf(path)
  return {
    tree: text === undefined ? {} : treeOf(path, text),
    async set(key, value) {
      const ConfOfHome = await loadConf()
      const conf = new ConfOfHome<Record<string, unknown>>({
        cwd: home,
        configName: 'config',
        configFileMode: 0o600,
        clearInvalidConfig: false,
      })
      removeMisshapen(conf, key)
      if (value === undefined) conf.delete(key)
      else conf.set(key, value)
    },
  }
}

/**
 * A package of `conf` sends each signal to this process again, where it would count as the second
 * Ctrl-C (R26).
 */
async function loadConf() {
  const before = new Set(processListeners().map(([, listener]) => listener))
  const { default: loaded } = await import('conf')
  for (const [event, listener] of processListeners())
    if (!before.has(listener)) process.off(event, listener)
  return loaded
}

type Listener = (...args: unknown[]) => void

const processListeners = () =>
  process
    .eventNames()
    .flatMap((event) =>
      process.rawListeners(event).map((listener) => [event, listener as Listener] as const),
    )

/** Where a parent of the key holds no object, conf stores nothing. */
function removeMisshapen(conf: Conf<Record<string, unknown>>, key: string) {
  const parts = key.split('.')
  for (let depth = 1; depth < parts.length; depth++) {
    const parent = parts.slice(0, depth).join('.')
    const held: unknown = conf.get(parent)
    if (held !== undefined && !objectOf(held)) conf.delete(parent)
  }
}

async function textOf(path: string) {
  try {
    return new TextDecoder().decode(await readPlain(path))
  } catch (error) {
    const code = errorCode(error) ?? 'unknown'
    if (code === 'ENOENT') return undefined
    throw new UsageError('config_unreadable', `${path} cannot be read (${code})`, {
      cause: error,
      hint: 'check the file and its rights, or move it away and set your preferences again with `proposer config set`',
    })
  }
}

function treeOf(path: string, text: string) {
  const tree = objectOf(jsonOf(text))
  if (tree) return tree
  throw new UsageError(
    'config_damaged',
    `${path} is not a JSON object`,
    'correct the file, or move it away and set your preferences again with `proposer config set`',
  )
}
