/**
 * Settings as a support bundle tells them: what is in force and where it comes from, no credential
 * among it (contract §6, R5).
 */
import type { Implementations } from '#chain/implementations'
import { webUrl } from '#client/support/secret-scan'
import { profileKeys, type Setting, type Settings, specOf } from '../session/settings.js'

/** A URL as far as it is public. `removed` names the parts that were there and may be secret. */
export interface PublicUrl {
  readonly url: string
  readonly removed: readonly ('user' | 'path' | 'query' | 'fragment')[]
}

/** Scheme, host and port of a URL of the web; what is none shows nothing of itself. */
export function hostOf(text: string): PublicUrl {
  // Of `user:password@host` the user would be the scheme.
  const url = webUrl(text)
  if (url === undefined) return { url: '(not a URL)', removed: [] }
  const { protocol, host, username, password, pathname, search, hash } = url
  const parts = {
    user: username !== '' || password !== '',
    path: pathname.length > 1,
    query: search !== '',
    fragment: hash !== '',
  }
  const removed = (['user', 'path', 'query', 'fragment'] as const).filter((part) => parts[part])
  return { url: `${protocol}//${host}`, removed }
}

/** What else is set is nothing that support asks for. */
const toldKeys = [
  ...(['gateway', 'local', 'account', 'rpc-url', 'trust'] as const),
  ...(['headroom-percent', 'max-amount', 'max-fee'] as const),
]

/** Every one of them that is set. `short` takes the user's own folder out of paths. */
export function settingsPart(settings: Settings, short: (path: string) => string) {
  const row = (
    key: string,
    setting: Setting | undefined,
    shown: (value: string) => string | PublicUrl = (value) => value,
  ) =>
    setting === undefined
      ? []
      : [{ key, value: shown(setting.value), origin: setting.origin, from: setting.from }]
  return [
    ...row('home', settings.home, short),
    ...row('profile', settings.profile),
    ...toldKeys.flatMap((key) => {
      const { isSecret, isPath } = specOf(key) ?? {}
      const shown = isSecret ? hostOf : isPath ? short : undefined
      return row(key, settings[profileKeys[key].flag], shown)
    }),
  ]
}

/** What each contract is pinned to run; the hash of its code could be taken for a secret. */
export const codeOf = (pins: Implementations): Record<string, string> =>
  Object.fromEntries(
    Object.entries(pins).map(([address, { implementation }]) => [address, implementation]),
  )
