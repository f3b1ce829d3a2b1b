import { join, resolve } from 'node:path'

/** `profile` has been checked to be a plain name. */
export const homePaths = {
  config: (home: string) => join(home, 'config.json'),
  trust: (home: string, profile: string) => join(home, 'trust', `${profile}.json`),
  keystores: (home: string) => join(home, 'keystores'),
} as const

export const fromCwd = (cwd: string, path: string): string => resolve(cwd, path)
