/** `payouts`: what the oracle could not pay out, and fetching it (contract §9, domain §10). */
import { Command } from 'commander'
import { type DeferredPayout, deferredPayouts, payoutClaim } from '../core/client/wallet/payouts.js'
import { givenAddress } from '../core/protocol/address.js'
import { UsageError } from '../core/protocol/errors.js'
import type { Address } from '../core/protocol/schema.js'
import {
  addTransactionFlags,
  printTransactions,
  requireChain,
  sendAfterAsking,
  type TransactionFlags,
} from './own-transactions.js'
import { addSignerFlags, type Session, type SessionFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { amountText, fields } from './terminal/render.js'

export const payoutsCommand = (context: Context): Command =>
  new Command('payouts')
    .description('list and claim payouts that the oracle could not make')
    .addHelpText(
      'after',
      '\nThe oracle defers a payout whose token transfer fails, such as to a blocked wallet. Only the wallet itself can claim it.\n\nExamples:\n  proposer payouts list\n  proposer payouts claim --to 0x1111111111111111111111111111111111111111',
    )
    .addCommand(listCommand(context))
    .addCommand(claimCommand(context))

const collect = (one: string, all: readonly string[] = []) => [...all, one]

interface ListFlags extends SessionFlags {
  readonly wallet?: readonly string[]
}

const listCommand = (context: Context) =>
  addSignerFlags(new Command('list'))
    .description('list deferred payouts')
    .option('--wallet <address>', 'of this wallet; may be repeated; default: the account', collect)
    .addHelpText('after', '\nExample:\n  proposer payouts list --rpc-url http://127.0.0.1:8545')
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const named = flags.wallet?.map((wallet) => givenAddress(wallet, '--wallet'))
      await withSession(context, flags, async (session) => {
        const chain = await requireChain(session, 'payouts list')
        const wallets = named ?? [await session.account.address()]
        const payouts = await deferredPayouts(chain, await session.trust(), wallets)
        const { output } = context
        const none = `No deferred payouts for ${wallets.join(', ')}.`
        output.result('payouts', { payouts: payouts.map(payoutData) }, () =>
          payouts.length === 0
            ? none
            : `${payouts.map((one) => payoutText(one, output.columns)).join('\n\n')}\n\nclaim: proposer payouts claim`,
        )
      })
    })

interface ClaimFlags extends TransactionFlags {
  readonly to?: string
  readonly token?: string
}

const claimCommand = (context: Context) =>
  addSignerFlags(addTransactionFlags(new Command('claim')))
    .description('claim every deferred payout of the account')
    .option('--to <address>', 'pay it to this address; default: the account')
    .option('--token <address>', 'claim this token only')
    .addHelpText(
      'after',
      '\nA payout was deferred because a transfer failed: where the wallet is still blocked, give another address with --to.\n\nExamples:\n  proposer payouts claim\n  proposer payouts claim --to 0x1111111111111111111111111111111111111111 --print',
    )
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<ClaimFlags>()
      const [to, token] = [flags.to, flags.token].map((given, index) =>
        given === undefined ? undefined : givenAddress(given, index === 0 ? '--to' : '--token'),
      )
      await withSession(context, flags, async (session) => {
        const owner = await session.account.address()
        await claim(context, session, flags, { owner, to: to ?? owner, token })
      })
    })

interface Claim {
  readonly owner: Address
  readonly to: Address
  readonly token: Address | undefined
}

async function claim(
  context: Context,
  session: Session,
  flags: ClaimFlags,
  { owner, to, token }: Claim,
): Promise<void> {
  const { output } = context
  const trust = await session.trust()
  if (token !== undefined && !trust.tokens.includes(token))
    throw new UsageError('token_needed', `${token} is not a pinned token`, {
      hint: `name one of ${trust.tokens.join(', ')} with --token`,
    })
  const chain = await requireChain(session, 'payouts claim')
  const payouts = (await deferredPayouts(chain, trust, [owner])).filter(
    (one) => token === undefined || one.token === token,
  )
  const transactions = payouts.map((one) => payoutClaim(one, to))
  if (flags.print === true) return printTransactions(context, trust.chain_id, owner, transactions)
  const sent =
    payouts.length === 0
      ? []
      : await sendAfterAsking(context, session, flags, chain, owner, transactions)
  if (sent === undefined) return
  const claimed = sent.map(({ hash, receipt }, index) => ({
    ...(payouts[index] && payoutData(payouts[index])),
    to,
    transaction_hash: hash,
    block_number: String(receipt.blockNumber),
  }))
  output.result('payout-claims', { claims: claimed }, () =>
    claimed.length === 0
      ? `No deferred payouts for ${owner}: nothing to claim.`
      : payouts
          .map((one, index) =>
            fields(
              [
                ['claimed', amountText(String(one.amountRaw), one)],
                ['to', to],
                ['transaction', claimed[index]?.transaction_hash],
              ],
              output.columns,
            ),
          )
          .join('\n\n'),
  )
}

const payoutData = ({ wallet, oracle, token, symbol, amountRaw }: DeferredPayout) => ({
  wallet,
  oracle,
  token,
  symbol,
  amount: String(amountRaw),
})

const payoutText = (payout: DeferredPayout, columns: number): string =>
  fields(
    [
      ['deferred', amountText(String(payout.amountRaw), payout)],
      ['wallet', payout.wallet],
      ['oracle', payout.oracle],
    ],
    columns,
  )
