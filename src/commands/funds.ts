/** `funds`: what a wallet holds, may move and has promised; and the approval of Permit2 (contract §6). */

import { coinText } from '#chain/profiles'
import { type Funds, fundsOf, walletFunds } from '#client/funds/funds'
import { type LastPosition, type LastPositions, lastPositions } from '#client/positions/last-known'
import type { Trust } from '#client/trust/trust'
import {
  approval,
  type DeferredPayout,
  deferredPayouts,
  unlimitedRaw,
} from '#client/wallet/transactions'
import { givenAddress } from '#protocol/address'
import { UnavailableError, UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import {
  printTransactions,
  requireChain,
  sendAfterAsking,
  transactionFlags,
} from './own-transactions.js'
import { flagged, givenAmount, pinnedUnits } from './session/amounts.js'
import { sessionVerb } from './session/session.js'
import { signerFlags } from './session/settings.js'
import { apart, rows } from './terminal/output.js'
import { contestedLines } from './terminal/position-text.js'
import { amountText, counted, timeText, visible } from './terminal/render.js'

/** Nobody counts what wallets mean as "unlimited". */
const practicallyUnlimited = 2n ** 160n

const approveVerb = sessionVerb({
  name: 'approve',
  about:
    'allow Permit2 to move the token, once per wallet and token; each use still needs a signature',
  above: signerFlags,
  flags: {
    ...transactionFlags,
    '--amount <amount|unlimited>':
      'such as 15000usdc; default: unlimited, as wallets commonly give it',
    '--token <address>': 'pinned token, if there are several',
  },
  examples: [
    'funds approve --amount 750usdc',
    'funds approve --amount 750usdc --print',
    'funds approve --amount unlimited',
  ],
  async run(context, session, flags) {
    // `max` is the older word for it.
    const isUnlimited = ['unlimited', 'max', undefined].includes(flags.amount)
    const asked = isUnlimited ? undefined : flagged('--amount', flags.amount)
    await givenAmount(asked)
    const trust = await session.trust()
    const token = tokenOf(trust, flags.token)
    const given = await givenAmount(asked, async () =>
      (await pinnedUnits(context, session)).filter(({ address }) => address === token),
    )
    const amountRaw = given?.raw ?? unlimitedRaw
    const owner = await session.account.address()
    const transaction = approval(trust, token, amountRaw)
    if (flags.print === true)
      return printTransactions(context, trust.chain_id, owner, [transaction])
    const chain = await requireChain(session, 'funds approve')
    const fundsNow = async () => fundsOf(chain, trust, await session.journal.load(), owner, token)
    const before = await fundsNow()
    const { output } = context
    const wanted = { owner, token, spender: trust.permit2, amount: String(amountRaw) }
    const isThere =
      amountRaw === unlimitedRaw
        ? before.allowanceRaw >= practicallyUnlimited
        : before.allowanceRaw === amountRaw
    if (isThere) {
      const there = { ...wanted, allowance: String(before.allowanceRaw), transaction_hash: null }
      return output.show('approval', there, [
        () => `the allowance of ${visible(before.symbol)} already has this value; nothing to do`,
      ])
    }
    const lowers = amountRaw < before.allowanceRaw
    if (lowers) output.note(`warning: ${lowersText(amountRaw, before)}`)
    const [sent] =
      (await sendAfterAsking(context, session, flags, chain, owner, [transaction])) ?? []
    if (sent === undefined) return
    const after = await fundsNow()
    const done = {
      ...wanted,
      allowance: String(after.allowanceRaw),
      transaction_hash: sent.hash,
      block_number: String(sent.receipt.blockNumber),
      ...(lowers ? { allowance_before: String(before.allowanceRaw) } : {}),
    }
    output.show('approval', done, [
      rows([
        [
          'approved',
          amountRaw === unlimitedRaw ? 'unlimited' : amountText(String(amountRaw), after),
        ],
        ['token', `${after.symbol} ${token}`],
        ['transaction', sent.hash],
      ]),
    ])
  },
})

export const fundsCommand = sessionVerb({
  name: 'funds',
  about: 'show balance, Permit2 allowance, reserved and free amounts',
  flags: signerFlags,
  examples: ['funds --rpc-url http://127.0.0.1:8545', 'funds approve --amount 750usdc'],
  verbs: [approveVerb],
  async run(context, session) {
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
    const document = {
      owner,
      chain_id: trust.chain_id,
      permit2: trust.permit2,
      gas_balance: String(gasWei),
      tokens: funds.map((one) => ({ ...fundsData(one), ...stakesOf(one) })),
    }
    output.show('funds', document, [
      apart([
        ...contestedLines(last),
        rows([
          ['wallet', owner],
          ['gas', coinText(gasWei, trust.chain_id)],
        ]),
        ...funds.map((one) => fundsRows(one, stakesOf(one))),
      ]),
    ])
  },
})

const fundsData = ({ token, symbol, decimals, claims, ...funds }: Funds) => ({
  token,
  symbol,
  decimals,
  balance: String(funds.balanceRaw),
  allowance: String(funds.allowanceRaw),
  reserved: String(funds.reservedRaw),
  free: String(funds.freeRaw),
  spendable: String(funds.spendableRaw),
  reserved_by: claims.map(({ id, amountRaw }) => ({ journal_id: id, amount: String(amountRaw) })),
  block_number: String(funds.blockNumber),
})

/** Raw units at the oracle: as the chain was last read (`positions_as_of`), but for what it owes now. */
function stakeSums(
  last: LastPositions,
  payouts: readonly DeferredPayout[] | undefined,
  owner: Address,
  token: Address,
) {
  const own = [...last.values()].filter((one) => one.wallet === owner && one.token === token)
  const sum = (...states: readonly LastPosition['state'][]) =>
    own
      .filter(({ state }) => states.includes(state))
      .reduce((raw, { bond, final_fee }) => raw + BigInt(bond ?? 0) + BigInt(final_fee ?? 0), 0n)
  const [first = null] = own.map(({ as_of }) => as_of).sort()
  const owed = payouts?.filter((one) => one.token === token)
  return {
    bonded: first === null ? null : String(sum('open', 'awaiting_settlement')),
    disputed: first === null ? null : String(sum('disputed', 'voting')),
    claimable: owed ? String(owed.reduce((raw, one) => raw + one.amountRaw, 0n)) : null,
    positions_as_of: first,
  }
}

function fundsRows(funds: Funds, stakes: ReturnType<typeof stakeSums>) {
  const amount = (raw: bigint | string) => amountText(String(raw), funds)
  const { claims, allowanceRaw, reservedRaw, balanceRaw, freeRaw, spendableRaw } = funds
  const { bonded, disputed, claimable, positions_as_of: at } = stakes
  const asOf = at === null ? '' : ` (${timeText(at)})`
  return rows([
    ['token', `${funds.symbol} ${funds.token}`],
    ['balance', amount(balanceRaw)],
    ['allowance', allowanceRaw >= practicallyUnlimited ? 'unlimited' : amount(allowanceRaw)],
    ['reserved', `${amount(reservedRaw)} by ${counted(claims.length, 'open authorization')}`],
    ['free', amount(freeRaw)],
    [
      'spendable',
      spendableRaw === freeRaw ? null : `${amount(spendableRaw)} (within the allowance)`,
    ],
    ['bonded', bonded && `${amount(bonded)} at the oracle${asOf}`],
    ['disputed', disputed && `${amount(disputed)}${asOf}`],
    [
      'claimable',
      claimable === '0'
        ? null
        : claimable === null
          ? 'not known: the node does not say what the oracle owes'
          : `${amount(claimable)}: \`proposer payouts claim\``,
    ],
    [
      'warning',
      reservedRaw > balanceRaw
        ? `short of ${amount(reservedRaw - balanceRaw)} for open authorizations`
        : null,
    ],
    [
      'warning',
      allowanceRaw < reservedRaw
        ? 'the allowance does not cover open authorizations: `proposer funds approve`'
        : null,
    ],
  ])
}

/** An approval sets the allowance, it does not add to it. */
function lowersText(amountRaw: bigint, before: Funds) {
  const amount = (raw: bigint) => amountText(String(raw), before)
  const present =
    before.allowanceRaw >= practicallyUnlimited ? 'unlimited' : amount(before.allowanceRaw)
  const short =
    amountRaw < before.reservedRaw ? `; open authorizations need ${amount(before.reservedRaw)}` : ''
  return visible(
    `this lowers the allowance, which is ${present} now, to ${amount(amountRaw)}${short}`,
  )
}

function tokenOf(trust: Trust, named: string | undefined) {
  const [first] = trust.tokens
  if (named === undefined && first !== undefined && trust.tokens.length === 1) return first
  const address = named === undefined ? undefined : givenAddress(named, '--token')
  const found = trust.tokens.find((token) => token === address)
  if (found !== undefined) return found
  const why = named === undefined ? 'several tokens are pinned' : `${named} is not a pinned token`
  throw new UsageError(
    'token_needed',
    `${why}: ${trust.tokens.join(', ')}`,
    'choose one with --token',
  )
}
