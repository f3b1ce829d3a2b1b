import { isAbsolute, join, resolve } from 'node:path'

export function defaultHome(
  platform: NodeJS.Platform,
  env: Readonly<Record<string, string | undefined>>,
  userFolder: string,
) {
  if (platform === 'darwin') return join(userFolder, 'Library', 'Application Support', 'proposer')
  if (platform === 'win32')
    return join(absolute(env.LOCALAPPDATA) ?? join(userFolder, 'AppData', 'Local'), 'proposer')
  // XDG: relative values are ignored.
  return join(absolute(env.XDG_DATA_HOME) ?? join(userFolder, '.local', 'share'), 'proposer')
}

const absolute = (path: string | undefined) =>
  path !== undefined && isAbsolute(path) ? path : undefined

export const homePaths = {
  config: (home: string) => join(home, 'config.json'),
  trust: (home: string, profile: string) => join(home, 'trust', `${profile}.json`),
  keystores: (home: string) => join(home, 'keystores'),
} as const

export const fromCwd = (cwd: string, path: string) => resolve(cwd, path)
