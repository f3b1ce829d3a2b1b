/** `trust pin --receipts`: the keys that the gateway lists, to be compared and pinned (contract §9). */
import { listedReceiptKeys } from '../core/client/gateway/receipt-directory.js'
import type { Trust } from '../core/client/trust/trust-file.js'
import { UsageError } from '../core/protocol/errors.js'
import { openTarget, type SessionFlags } from './session/session.js'
import type { Settings } from './session/settings.js'
import type { Context } from './terminal/context.js'

/** What the gateway says of itself proves nothing, so a note asks for another source. */
export async function listedKeys(
  context: Context,
  settings: Settings,
  flags: SessionFlags,
): Promise<NonNullable<Trust['receipt_keys']>> {
  const target = await openTarget(context, settings, flags, 'read')
  try {
    const { signal } = context
    const { allowHttp } = target
    const keys = await listedReceiptKeys(target.fetch, target.baseUrl, { signal, allowHttp })
    if (keys.length === 0)
      throw new UsageError('no_receipts', 'this gateway signs no receipts: it lists no key', {
        hint: 'ask its operator to set receipts in gateway.json',
      })
    context.output.note(
      'note: compare the key IDs with what the operator told you another way; whoever stands between could have listed a key of their own',
    )
    return Object.fromEntries(
      keys.map(({ kid, x, nbf, exp }) => [
        kid,
        {
          ...({ kty: 'OKP', crv: 'Ed25519', x } as const),
          ...(nbf === undefined ? {} : { nbf }),
          ...(exp === undefined ? {} : { exp }),
        },
      ]),
    )
  } finally {
    await target.close()
  }
}
