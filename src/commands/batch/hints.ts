/** Commands in hints, so that pasting them does what this one did (contract §6). */

import { publicUrl, shellWord } from '../terminal/render.js'
import type { BatchFlags } from './parts.js'

/** Where a command looks and whom it asks; what is a URL may be a credential (R5). */
const target = [
  ['gateway', 'url'],
  ['local', 'text'],
  ['profile', 'text'],
  ['home', 'text'],
  ['account', 'text'],
  ['rpcUrl', 'url'],
  ['trust', 'text'],
] as const

/** What else decides which bytes a batch signs and sends. */
const ofBatch = [
  ['format', 'text'],
  ['proposer', 'text'],
  ['passwordFile', 'text'],
  ['signer', 'url'],
  ['headroom', 'text'],
  ['maxAmount', 'text'],
  ['maxSpend', 'text'],
  ['context', 'text'],
  ['fit', 'switch'],
  ['executorAccount', 'text'],
  ['executorPasswordFile', 'text'],
] as const

/** A path as a word of a command; one that begins with a dash would read as a flag. */
const fileWord = (path: string): string =>
  shellWord(path.startsWith('-') && path !== '-' ? `./${path}` : path)

type Flag = readonly [name: string, kind: 'url' | 'text' | 'switch']

function words(given: Readonly<Record<string, unknown>>, flags: readonly Flag[]): string {
  return flags
    .flatMap(([name, kind]) => {
      const value = given[name]
      const flag = `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
      if (kind === 'switch') return value === true ? [` ${flag}`] : []
      if (typeof value !== 'string') return []
      if (kind === 'text') return [` ${flag} ${shellWord(value)}`]
      // What may be a credential has to be typed again: better than on the screen, and in every log
      // of it.
      return [
        ` ${flag} ${publicUrl(value) === value.replace(/\/$/, '') ? shellWord(value) : '<url>'}`,
      ]
    })
    .join('')
}

/**
 * What finishes this input, for a hint, in backticks: gateway, home and their like are added to
 * every hint where it is printed.
 */
export const goOnCommand = (
  verb: 'batch submit' | 'run',
  path: string,
  flags: BatchFlags,
): string => {
  const resume = verb === 'run' ? '' : ' --resume'
  const text = `proposer ${verb} ${fileWord(path)}${resume}${words({ ...flags }, ofBatch)}`
  return `\`${text}\`${path === '-' ? ' and the same rows on stdin' : ''}`
}

export const submitCommandText = (path: string, flags: BatchFlags): string =>
  `proposer batch submit ${fileWord(path)}${words({ ...flags }, target)}`
