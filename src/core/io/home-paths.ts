import { join, resolve } from 'node:path'

/**
 * Where things lie under the home folder (contract §7). `profile` has been checked to be a plain
 * name.
 */
export const homePaths = {
  config: (home: string) => join(home, 'config.json'),
  trust: (home: string, profile: string) => join(home, 'trust', `${profile}.json`),
  keystores: (home: string) => join(home, 'keystores'),
} as const

/** A path as the user typed it, made absolute against the folder the command was started in. */
export const fromCwd = (cwd: string, path: string): string => resolve(cwd, path)
