/**
 * `funds`: what a wallet holds, what its open authorizations may take, what is left; and the
 * approval of Permit2 (contract §6).
 */
import { Command } from 'commander'
import { coinText } from '../core/chain/profiles.js'
import { type Funds, fundsOf, walletFunds } from '../core/client/funds/funds.js'
import {
  type LastPosition,
  type LastPositions,
  lastPositions,
} from '../core/client/positions/last-known.js'
import type { Trust } from '../core/client/trust/trust.js'
import { type DeferredPayout, deferredPayouts } from '../core/client/wallet/payouts.js'
import { approval, unlimitedRaw } from '../core/client/wallet/transactions.js'
import { givenAddress } from '../core/protocol/address.js'
import { UnavailableError, UsageError } from '../core/protocol/errors.js'
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
import { contestedLines } from './terminal/position-text.js'
import { amountText, fields, timeText, visible } from './terminal/render.js'

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
        const place = { files: context.files, home: session.settings.home.value }
        const last = await lastPositions(place, (text) => output.note(`note: ${visible(text)}`))
        // An oracle that does not tell what it owes keeps nothing else back.
        const deferred = await deferredPayouts(chain, trust, [owner]).catch((error: unknown) => {
          if (error instanceof UnavailableError) return undefined
          throw error
        })
        const stakesOf = ({ token }: Funds) => stakeSums(last, deferred, owner, token)
        const result = {
          owner,
          chain_id: trust.chain_id,
          permit2: trust.permit2,
          gas_balance: String(gasWei),
          tokens: funds.map((one) => ({ ...fundsData(one), ...stakesOf(one) })),
        }
        output.result('funds', result, () =>
          [
            ...contestedLines(last, output.columns),
            fields(
              [
                ['wallet', owner],
                ['gas', coinText(gasWei, trust.chain_id)],
              ],
              output.columns,
            ),
            ...funds.map((one) => fundsText(one, stakesOf(one), output.columns)),
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

/** Raw units at the oracle: as the chain was last read, but for what it owes now. */
interface StakeSums {
  readonly bonded: string | null
  readonly disputed: string | null
  readonly claimable: string | null
  /** RFC 3339: the oldest reading that these sums stand on. */
  readonly positions_as_of: string | null
}

function stakeSums(
  last: LastPositions,
  payouts: readonly DeferredPayout[] | undefined,
  owner: Address,
  token: Address,
): StakeSums {
  const own = [...last.values()].filter((one) => one.wallet === owner && one.token === token)
  const sum = (...states: readonly LastPosition['state'][]) =>
    own
      .filter(({ state }) => states.includes(state))
      .reduce((raw, { bond, final_fee }) => raw + BigInt(bond ?? 0) + BigInt(final_fee ?? 0), 0n)
  const [first = null] = own.map(({ as_of }) => as_of).sort()
  const claimable = payouts?.reduce(
    (raw, one) => (one.token === token ? raw + one.amountRaw : raw),
    0n,
  )
  return {
    bonded: first === null ? null : String(sum('open', 'awaiting_settlement')),
    disputed: first === null ? null : String(sum('disputed', 'voting')),
    claimable: claimable === undefined ? null : String(claimable),
    positions_as_of: first,
  }
}

function fundsText(funds: Funds, stakes: StakeSums, columns: number): string {
  const amount = (raw: bigint) =>
    amountText(String(raw), { symbol: funds.symbol, decimals: funds.decimals })
  const { claims, allowanceRaw, reservedRaw, balanceRaw } = funds
  const short =
    reservedRaw > balanceRaw
      ? `short of ${amount(reservedRaw - balanceRaw)} for open authorizations`
      : undefined
  const lacking =
    allowanceRaw < reservedRaw
      ? 'the allowance does not cover open authorizations: `proposer funds approve`'
      : undefined
  const asOf = stakes.positions_as_of === null ? '' : ` (${timeText(stakes.positions_as_of)})`
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
      ['bonded', stakes.bonded && `${amount(BigInt(stakes.bonded))} at the oracle${asOf}`],
      ['disputed', stakes.disputed && `${amount(BigInt(stakes.disputed))}${asOf}`],
      [
        'claimable',
        stakes.claimable === '0'
          ? undefined
          : stakes.claimable === null
            ? 'not known: the node does not say what the oracle owes'
            : `${amount(BigInt(stakes.claimable))}: \`proposer payouts claim\``,
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
    hint: 'choose one with --token',
  })
}
