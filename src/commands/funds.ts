/**
 * `funds`: what a wallet holds, what its open authorizations may take, what is left; and the
 * approval of Permit2 (contract §6).
 */
import { Command } from 'commander'
import { coinText } from '../core/chain/profiles.js'
import { type Funds, fundsOf, walletFunds } from '../core/client/funds/funds.js'
import type { Trust } from '../core/client/trust/trust.js'
import { approval, unlimitedRaw } from '../core/client/wallet/transactions.js'
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
import { flagged, givenAmount, pinnedUnits } from './session/amounts.js'
import { addSignerFlags, type SessionFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { amountText, fields, visible } from './terminal/render.js'

export const fundsCommand = (context: Context): Command =>
  addSignerFlags(new Command('funds'))
    .description('show balance, Permit2 allowance, reserved and free amounts')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer funds --rpc-url http://127.0.0.1:8545\n  proposer funds approve --amount 750usdc',
    )
    .addCommand(approveCommand(context))
    .action(async (_own: unknown, command: Command) => {
      await withSession(context, command.optsWithGlobals<SessionFlags>(), async (session) => {
        const trust = await session.trust()
        const chain = await requireChain(session, 'funds')
        const owner = await session.account.address()
        const view = await session.journal.load()
        const { gasWei, tokens: funds } = await walletFunds(chain, trust, view, owner)
        const { output } = context
        const result = {
          owner,
          chain_id: trust.chain_id,
          permit2: trust.permit2,
          gas_balance: String(gasWei),
          tokens: funds.map(fundsData),
        }
        output.result('funds', result, () =>
          [
            fields(
              [
                ['wallet', owner],
                ['gas', coinText(gasWei, trust.chain_id)],
              ],
              output.columns,
            ),
            ...funds.map((one) => fundsText(one, output.columns)),
          ].join('\n\n'),
        )
      })
    })

function fundsData(funds: Funds) {
  return {
    token: funds.token,
    symbol: funds.symbol,
    decimals: funds.decimals,
    balance: String(funds.balanceRaw),
    allowance: String(funds.allowanceRaw),
    reserved: String(funds.reservedRaw),
    free: String(funds.freeRaw),
    spendable: String(funds.spendableRaw),
    reserved_by: funds.claims.map(({ id, amountRaw }) => ({
      journal_id: id,
      amount: String(amountRaw),
    })),
    block_number: String(funds.blockNumber),
  }
}

/** Nobody counts what wallets mean as "unlimited". */
const practicallyUnlimited = 2n ** 160n

function fundsText(funds: Funds, columns: number): string {
  const amount = (raw: bigint) =>
    amountText(String(raw), { symbol: funds.symbol, decimals: funds.decimals })
  const { claims, allowanceRaw, reservedRaw, balanceRaw } = funds
  const short =
    reservedRaw > balanceRaw
      ? `short of ${amount(reservedRaw - balanceRaw)} for what is open`
      : undefined
  const lacking =
    allowanceRaw < reservedRaw
      ? 'the allowance does not cover what is open: `proposer funds approve`'
      : undefined
  return fields(
    [
      ['token', `${funds.symbol} ${funds.token}`],
      ['balance', amount(balanceRaw)],
      ['allowance', allowanceRaw >= practicallyUnlimited ? 'unlimited' : amount(allowanceRaw)],
      [
        'reserved',
        `${amount(reservedRaw)} by ${claims.length} open ${claims.length === 1 ? 'authorization' : 'authorizations'}`,
      ],
      ['free', amount(funds.freeRaw)],
      [
        'spendable',
        funds.spendableRaw === funds.freeRaw
          ? undefined
          : `${amount(funds.spendableRaw)} (within the allowance)`,
      ],
      ['warning', short],
      ['warning', lacking],
    ],
    columns,
  )
}

interface ApproveFlags extends TransactionFlags {
  readonly amount?: string
  readonly token?: string
}

const approveCommand = (context: Context) =>
  addTransactionFlags(new Command('approve'))
    .description(
      'allow Permit2 to move the token, once per wallet and token; each use still needs a signature',
    )
    .option(
      '--amount <amount|unlimited>',
      'such as 15000usdc; default: unlimited, as wallets commonly give it',
    )
    .option('--token <address>', 'pinned token, if there are several')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer funds approve --amount 750usdc\n  proposer funds approve --amount 750usdc --print\n  proposer funds approve --amount unlimited',
    )
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<ApproveFlags>()
      const isUnlimited =
        flags.amount === undefined || flags.amount === 'unlimited' || flags.amount === 'max'
      // `max` is the older word for it.
      const asked = isUnlimited ? undefined : flagged('--amount', flags.amount)
      await givenAmount(asked)
      await withSession(context, flags, async (session) => {
        const trust = await session.trust()
        const token = tokenOf(trust, flags.token)
        const given = await givenAmount(asked, async () => {
          const units = await pinnedUnits(context, session)
          return units.filter(({ address }) => address === token)
        })
        const amountRaw = given?.raw ?? unlimitedRaw
        const owner = await session.account.address()
        const transaction = approval(trust, token, amountRaw)
        if (flags.print === true)
          return printTransactions(context, trust.chain_id, owner, [transaction])
        const chain = await requireChain(session, 'funds approve')
        const before = await fundsOf(chain, trust, await session.journal.load(), owner, token)
        const { output } = context
        const wanted = { owner, token, spender: trust.permit2, amount: String(amountRaw) }
        const isThere =
          amountRaw === unlimitedRaw
            ? before.allowanceRaw >= practicallyUnlimited
            : before.allowanceRaw === amountRaw
        if (isThere) {
          const there = {
            ...wanted,
            allowance: String(before.allowanceRaw),
            transaction_hash: null,
          }
          output.result(
            'approval',
            there,
            () =>
              `the allowance of ${visible(before.symbol)} already has this value; nothing to do`,
          )
          return
        }
        const lowers = amountRaw < before.allowanceRaw
        if (lowers) output.note(`warning: ${lowersText(amountRaw, before)}`)
        const sent = await sendAfterAsking(context, session, flags, chain, owner, [transaction])
        const [one] = sent ?? []
        if (one === undefined) return
        const after = await fundsOf(chain, trust, await session.journal.load(), owner, token)
        const done = {
          ...wanted,
          allowance: String(after.allowanceRaw),
          transaction_hash: one.hash,
          block_number: String(one.receipt.blockNumber),
          ...(lowers ? { allowance_before: String(before.allowanceRaw) } : {}),
        }
        output.result('approval', done, () =>
          fields(
            [
              [
                'approved',
                amountRaw === unlimitedRaw ? 'unlimited' : amountText(String(amountRaw), after),
              ],
              ['token', `${after.symbol} ${token}`],
              ['transaction', one.hash],
            ],
            output.columns,
          ),
        )
      })
    })

/** An approval sets the allowance, it does not add to it. */
function lowersText(amountRaw: bigint, before: Funds): string {
  const amount = (raw: bigint) =>
    amountText(String(raw), { symbol: before.symbol, decimals: before.decimals })
  const present =
    before.allowanceRaw >= practicallyUnlimited ? 'unlimited' : amount(before.allowanceRaw)
  const short =
    amountRaw < before.reservedRaw ? `; open authorizations need ${amount(before.reservedRaw)}` : ''
  return visible(
    `this lowers the allowance, which is ${present} now, to ${amount(amountRaw)}${short}`,
  )
}

function tokenOf(trust: Trust, named: string | undefined): Address {
  const [first] = trust.tokens
  if (named === undefined && first !== undefined && trust.tokens.length === 1) return first
  const address = named === undefined ? undefined : givenAddress(named, '--token')
  const found = trust.tokens.find((token) => token === address)
  if (found !== undefined) return found
  const why = named === undefined ? 'several tokens are pinned' : `${named} is not a pinned token`
  throw new UsageError('token_needed', `${why}: ${trust.tokens.join(', ')}`, {
    hint: 'name one of them with --token',
  })
}
