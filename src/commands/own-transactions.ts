/**
 * What `funds approve` and `revoke` share: showing a small transaction of the wallet's own, asking,
 * printing or sending it.
 */

import type { Command } from 'commander'
import { coinText } from '../core/chain/profiles.js'
import {
  type OwnTransaction,
  type PlannedTransaction,
  planTransactions,
  type SentTransaction,
  sendTransactions,
} from '../core/client/wallet/transactions.js'
import type { Chain } from '../core/ports.js'
import { UsageError } from '../core/protocol/errors.js'
import type { Address } from '../core/protocol/schema.js'
import { maxFeeWei } from './session/amounts.js'
import { confirm } from './session/inputs.js'
import { addBrowserFlags, type Session, type SessionFlags } from './session/session.js'
import type { Context } from './terminal/context.js'
import { fields } from './terminal/render.js'

export interface TransactionFlags extends SessionFlags {
  readonly print?: boolean
  readonly dryRun?: boolean
}

/** Flags of the verbs that send a transaction, beside those of signing. */
export function addTransactionFlags(command: Command): Command {
  return addBrowserFlags(command)
    .option('--print', 'print the calldata for an external wallet instead of sending')
    .option('--dry-run', 'show what would be sent and what it may cost; send nothing')
    .option(
      '--max-fee <amount>',
      "refuse fees above this in all, in the chain's coin (0.5pol); default: 1 coin, and 1000 gwei per gas",
    )
}

/** The chain's node. UsageError `no_rpc_url` where none is named. */
export async function requireChain(session: Session, what: string): Promise<Chain> {
  const chain = await session.chain()
  if (chain) return chain
  throw new UsageError('no_rpc_url', `${what} needs a node, and none is configured`, {
    hint: 'give --rpc-url <url>, or set PROPOSER_RPC_URL',
  })
}

/** `--print`: what a wallet outside sends, without asking anybody for gas or fees. */
export function printTransactions(
  context: Context,
  chainId: number,
  from: Address,
  transactions: readonly OwnTransaction[],
): void {
  const { output } = context
  const shown = transactions.map(({ to, data, what }) => ({ to, value: '0', data, what }))
  output.result('calldata', { chain_id: chainId, from, transactions: shown }, () =>
    shown.length === 0
      ? 'nothing to send'
      : shown
          .map(({ to, value, data, what }) =>
            fields(
              [
                ['purpose', what],
                ['chain', String(chainId)],
                ['from', from],
                ['to', to],
                ['value', value],
                ['data', data],
              ],
              output.columns,
            ),
          )
          .join('\n\n'),
  )
}

/**
 * Plans, shows, asks and sends. `undefined` with --dry-run, which only shows. UsageError
 * `wrong_signer`, `confirmation_needed`, and as `maxFeeWei`, `planTransactions` and `sendTransactions`.
 */
export async function sendAfterAsking(
  context: Context,
  session: Session,
  flags: TransactionFlags,
  chain: Chain,
  from: Address,
  transactions: readonly OwnTransaction[],
): Promise<readonly SentTransaction[] | undefined> {
  const { output } = context
  const { chain_id: chainId } = await session.trust()
  const maxFee = maxFeeWei(session.settings.maxFee, chainId)
  const planned = await planTransactions(chain, chainId, from, transactions, maxFee)
  if (flags.dryRun === true) {
    output.result('preview', { dry_run: true, transactions: planned.map(plannedData) }, () =>
      planText(planned, output.columns),
    )
    return undefined
  }
  const signer = await session.account.signer()
  if (signer.address !== from) {
    throw new UsageError(
      'wrong_signer',
      `the key is for ${signer.address}, the transaction must come from ${from}`,
      {
        hint: 'choose that account with --account, or add --print and send it from its wallet',
      },
    )
  }
  if (signer.signTypedData !== undefined && signer.sendTransaction === undefined) {
    throw new UsageError(
      'signer_needs_typed_data',
      'a wallet behind --signer signs proposals only',
      {
        hint: 'add --print and send the calldata from the wallet itself, or use --browser or --account',
      },
    )
  }
  session.account.expect?.(planned.length)
  const text = planText(planned, output.columns)
  // What a person is asked to agree to is shown even with --quiet.
  if (context.isInteractive && !session.settings.yes) output.warn(text)
  else output.note(text)
  await confirm(
    context,
    planned.length === 1 ? 'Send this transaction?' : 'Send these transactions?',
    session.settings.yes,
  )
  const progress = output.progress('waiting for the transaction to be mined')
  const { timeoutMs } = session.settings
  try {
    return await sendTransactions(
      { chain, clock: context.clock, signal: session.signal, timeoutMs },
      signer,
      planned,
    )
  } finally {
    progress.stop()
  }
}

const plannedData = ({
  chainId,
  from,
  to,
  data,
  what,
  nonce,
  gas,
  maxFeePerGas,
  maxPriorityFeePerGas,
}: PlannedTransaction) => ({
  what,
  chain_id: chainId,
  from,
  to,
  value: '0',
  data,
  nonce,
  gas: String(gas),
  max_fee_per_gas: String(maxFeePerGas),
  max_priority_fee_per_gas: String(maxPriorityFeePerGas),
  max_cost_wei: String(gas * maxFeePerGas),
})

function planText(planned: readonly PlannedTransaction[], columns: number): string {
  return planned
    .map((one) =>
      fields(
        [
          ['purpose', one.what],
          ['chain', String(one.chainId)],
          ['from', one.from],
          ['to', one.to],
          ['data', one.data],
          ['costs at most', `${coinText(one.gas * one.maxFeePerGas, one.chainId)} (gas)`],
        ],
        columns,
      ),
    )
    .join('\n\n')
}
