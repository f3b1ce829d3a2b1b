/** Their key is elsewhere (contract §9): the file holds no secret. */

import * as z from 'zod/mini'
import { UsageError } from '#protocol/errors'
import { Address } from '#protocol/fields'
import { keccak } from '#protocol/keccak'
import { toHex } from '#protocol/witness'
import type { KeySigner } from './key-files.js'

export interface ElsewhereAccount {
  readonly kind: string
  readonly address: Address
  readonly holder: string
  readonly place: Readonly<Record<string, string>>
  open(signal?: AbortSignal): Promise<KeySigner>
}

/** No transaction and no typed data has this digest. */
export const probeDigest = toHex(keccak(new TextEncoder().encode('proposer: does this key sign?')))

type Place = Readonly<Record<string, string>>
type Kind = (
  place: unknown,
  address: Address,
) => Pick<ElsewhereAccount, 'holder' | 'place' | 'open'> | undefined

function kindOf<T extends Place>(
  holder: string,
  shape: z.ZodMiniType<T>,
  open: (place: T, address: Address, signal?: AbortSignal) => Promise<KeySigner>,
): Kind {
  return (place, address) => {
    const { data } = z.safeParse(shape, place)
    return data && { holder, place: data, open: (signal) => open(data, address, signal) }
  }
}

const openKms = async (place: { key: string; region?: string }, address: Address) =>
  (await import('./kms-accounts.js')).openKms(place, address)

const kinds = new Map([
  [
    'pkcs11',
    kindOf(
      'PKCS#11 token',
      z.strictObject({ uri: z.string(), module: z.string(), pin_file: z.string() }),
      async (place, expected, signal) =>
        (await import('./pkcs11.js')).openPkcs11(place, { expected, ...(signal && { signal }) }),
    ),
  ],
  ['aws-kms', kindOf('AWS KMS', z.strictObject({ key: z.string(), region: z.string() }), openKms)],
  ['gcp-kms', kindOf('Google Cloud KMS', z.strictObject({ key: z.string() }), openKms)],
])

const schema = 'proposer.account-file/1'
const AccountFile = z.looseObject({ schema: z.literal(schema), kind: z.string(), address: Address })

export const accountFileText = (kind: string, address: Address, place: Place) =>
  `${JSON.stringify({ schema, kind, address, ...place }, null, 2)}\n`

export function elsewhereAccount(json: unknown, name: string): ElsewhereAccount | undefined {
  if (typeof json !== 'object' || json === null || !('schema' in json)) return undefined
  const file = AccountFile.safeParse(json)
  if (!file.success) throw invalid(name, `it is not as ${schema} has it`)
  const { schema: _schema, kind, address, ...place } = file.data
  const known = kinds.get(kind)
  if (known === undefined) throw invalid(name, `this version knows no kind ${JSON.stringify(kind)}`)
  const found = known(place, address)
  if (found === undefined) throw invalid(name, `it is not as the kind ${kind} has it`)
  return { kind, address, ...found }
}

const invalid = (name: string, why: string) =>
  new UsageError(
    'invalid_account',
    `the file of account ${name} cannot be used: ${why}`,
    'make the account again, or update this program if a newer one made it',
  )
