/** Flags that several verbs have: each is declared here, once. */
import { givenAddress } from '#protocol/address'
import { instantMs, spanMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { plainIdentifier } from '#protocol/market-url'
import type { Address } from '#protocol/schema'
import { wideFlag } from '../terminal/table.js'
import type { FlagsOf } from '../terminal/verb.js'
import type { GlobalFlags } from './settings.js'

export const requesterFlag = {
  '--requester <address>': 'requester of the question, if two pinned ones ask the same text',
} as const

/** Of the verbs that sign (contract §7, Proposer key). */
export const signerFlags = {
  '--password-file <file>': 'file with the keystore password',
  '--signer <url>': 'URL of a wallet that signs over JSON-RPC (eth_signTypedData_v4)',
  '--proposer <address>': 'proposer address, if its key is held elsewhere',
} as const

export const browserFlags = {
  '--browser': 'sign with a browser wallet, on a page whose address is printed',
  '--no-launch': "with --browser: do not open the system's browser",
} as const

/** Without an address the word behind --as-owner may be what belongs elsewhere. UsageError. */
function ownerAddress(text: string): Address {
  if (/^0x[0-9a-f]{40}$/i.test(text)) return givenAddress(text, '--as-owner', 'bad_proposer')
  throw new UsageError(
    'bad_proposer',
    `--as-owner ${text} is not the address of an owner`,
    'give the identifier before --as-owner, or another flag behind it',
  )
}

export const safeFlags = {
  '--safe <address>': 'the proposer is this Safe; its owners sign one after the other',
  '--as-owner [address]': {
    about: 'with --safe: sign as an owner, with the key at hand',
    parse: ownerAddress,
  },
} as const

/** Of the verbs that run a whole gateway with --local (contract §7, Executor key). */
export const executorFlags = {
  '--executor-account <name>': 'with --local: keystore of the executor',
  '--executor-password-file <file>': 'with --local: file with its password',
} as const

export const checkFlags = {
  '--require-check': 'refuse to sign where a finding of `check` warns',
  '--require-known': 'refuse to sign where a finding of `check` is unknown',
} as const

export type AccountFlags = FlagsOf<typeof signerFlags & typeof browserFlags & typeof safeFlags>
export type SessionFlags = GlobalFlags &
  AccountFlags &
  FlagsOf<typeof executorFlags> & { readonly requester?: string | undefined }

/** Of every list; `states`: what --state takes. */
export const listFlags = (states: readonly string[]) =>
  ({
    '--state <state>': { about: 'only rows in this state', choices: states },
    '--since <time>': 'only rows since then: an age such as 24h, or a time',
    '--question <id|slug>': { about: 'only rows of this question', parse: plainIdentifier },
    '--limit <number>': 'maximum number of rows, the newest',
    ...wideFlag,
  }) as const

/** Unix milliseconds; 0 without one. UsageError `bad_since` (contract §9, Durations). */
export const sinceMs = (text: string | undefined, nowMs: number): number =>
  flagInstantMs('--since', text, nowMs) ?? 0

export function flagInstantMs(
  flag: string,
  text: string | undefined,
  nowMs: number,
): number | undefined {
  if (text === undefined) return undefined
  const span = spanMs(text)
  if (span !== undefined) return nowMs - span
  if (/^\d{1,12}$/.test(text)) return Number(text) * 1_000
  const at = instantMs(text)
  if (at !== undefined) return at
  throw new UsageError(
    'bad_since',
    `${flag} ${text} is neither an age nor a time`,
    `give ${flag} 24h or 2h30m, a date, 2026-11-20T05:38:00Z, or Unix seconds`,
  )
}
