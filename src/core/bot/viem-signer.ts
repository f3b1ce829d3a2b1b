/** A signer made of an account of viem's, or of whatever else has these two methods. */
import type { Hex, Signer } from '../ports.js'
import { UsageError } from '../protocol/errors.js'
import { lowercase } from '../protocol/words.js'

/** What is used of a viem account: a local one has `sign`, a wallet's may have typed data alone. */
export interface ViemAccount {
  readonly address: Hex
  readonly sign?: ((parameters: { readonly hash: Hex }) => Promise<Hex>) | undefined
  readonly signTypedData?: ((typedData: never) => Promise<Hex>) | undefined
}

/**
 * Signs digests where the account can, such as `privateKeyToAccount`, else EIP-712 data. For a
 * wallet client give `{ address, signTypedData: (data) => client.signTypedData({ account, ...data }) }`.
 * What comes back is checked before it is kept. UsageError `signer_needs_typed_data` where the
 * account has neither method.
 */
export function signerFromViem({ address, sign, signTypedData }: ViemAccount): Signer {
  const own = lowercase(address)
  if (sign !== undefined) return { address: own, signDigest: (hash) => sign({ hash }) }
  if (signTypedData === undefined)
    throw new UsageError(
      'signer_needs_typed_data',
      `the account ${own} has neither sign nor signTypedData`,
      'give a local account, or an object with address and signTypedData',
    )
  return {
    address: own,
    async signDigest() {
      throw new UsageError(
        'signer_needs_typed_data',
        `the account ${own} signs typed data only`,
        'give an account that has sign',
      )
    },
    signTypedData: (typedData) => signTypedData(typedData as never),
  }
}
