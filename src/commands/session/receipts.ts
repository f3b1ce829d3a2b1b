/** Receipts of the gateway that a session speaks with (contract §9). */
import { receiptKeysOf, type Trust } from '#client/trust/trust-file'
import { systemEd25519 } from '#io/ed25519'
import { ProposerError } from '#protocol/errors'
import type { ReceiptChecks } from '#protocol/kept-receipt'
import type { ReceiptKey } from '#protocol/receipt'
import type { Context } from '../terminal/context.js'

/**
 * A trust file that cannot be read is told, and keeps nothing from being sent: saved bytes must
 * stay
 * replayable (R7).
 */
export async function receiptChecksOf(
  { hash, output }: Context,
  trust: () => Promise<Trust>,
): Promise<ReceiptChecks> {
  const told = new Set<string>()
  return {
    hash,
    ed25519: systemEd25519,
    keys: await pinnedKeys(output, trust),
    onUnproven(code, detail) {
      if (told.has(code)) return
      told.add(code)
      output.warning(
        code,
        `the gateway's answer is not proven: ${detail}. It counts as it is: do not sign again because of it. The journal keeps it (\`proposer journal show <journal-id> --verify\`)`,
      )
    },
  }
}

async function pinnedKeys(
  output: Context['output'],
  trust: () => Promise<Trust>,
): Promise<readonly ReceiptKey[]> {
  try {
    return receiptKeysOf(await trust())
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    if (error.code !== 'no_trust')
      output.warning('receipts_unchecked', `receipts are not checked: ${error.detail}`)
    return []
  }
}
