/** The wallet's money and its own transactions (contract §6, §9). */
import { coinText } from '#chain/profiles'
import { type Funds, fundsOf, walletFunds } from '#client/funds/funds'
import type { Trust } from '#client/trust/trust'
import {
  approval,
  type DeferredPayout,
  deferredPayouts,
  finishRevocation,
  type OwnTransaction,
  type PlannedTransaction,
  payoutClaim,
  planRevocations,
  planTransactions,
  reconcileText,
  sendTransactions,
  unlimitedRaw,
} from '#client/wallet/transactions'
import type { Chain } from '#ports'
import { givenAddress } from '#protocol/address'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { confirm } from './session/inputs.js'
import { givenAmount, maxFeeWei, pinnedUnits } from './session/question.js'
import { requireChain, type Session, sessionVerb } from './session/session.js'
import { browserFlags, flagged, signerFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { contestedLines, lastKnown } from './terminal/last-known.js'
import { apart, type Rows } from './terminal/output.js'
import { amountText, counted, visible } from './terminal/render.js'
import { type FlagsOf, verb } from './terminal/verb.js'

const transactionFlags = {
  ...browserFlags,
  '--print': 'print the calldata for an external wallet instead of sending',
  '--dry-run': 'show what would be sent and what it may cost; send nothing',
  '--max-fee <amount>':
    "refuse fees above this in all, in the chain's coin (0.5pol); default: 1 coin, and 1000 gwei per gas",
} as const

function printTransactions(
  { output }: Context,
  chain_id: number,
  from: Address,
  transactions: readonly OwnTransaction[],
) {
  const shown = transactions.map(({ to, data, what }) => ({ to, value: '0', data, what }))
  output.show('calldata', { chain_id, from, transactions: shown }, [
    shown.length === 0 && 'nothing to send',
    apart(shown.map((one) => transactionRows({ ...one, chain_id, from }))),
  ])
}

const transactionRows = ({
  chain_id = 0,
  ...one
}: Partial<ReturnType<typeof plannedData>>): Rows => [
  ['purpose', one.what],
  ['chain', String(chain_id)],
  ['from', one.from],
  ['to', one.to],
  ['value', one.value],
  ['data', one.data],
  ['costs at most', one.max_cost_wei && `${coinText(BigInt(one.max_cost_wei), chain_id)} (gas)`],
]

async function sendAfterAsking(
  session: Session,
  flags: FlagsOf<typeof transactionFlags>,
  chain: Chain,
  from: Address,
  transactions: readonly OwnTransaction[],
) {
  if (transactions.length === 0) return []
  const { output } = session
  const { timeoutMs, maxFee, yes } = session.settings
  const { chain_id: chainId } = await session.trust()
  const limitWei = maxFeeWei(maxFee, chainId)
  const planned = await planTransactions(chain, chainId, from, transactions, limitWei)
  const shown = planned.map(plannedData)
  const plan = apart(shown.map(transactionRows))
  if (flags.dryRun) {
    output.show('preview', { dry_run: true, transactions: shown }, [plan])
    return undefined
  }
  const signer = await session.account.signer(planned.length)
  if (signer.address !== from)
    throw new UsageError(
      'wrong_signer',
      `the key is for ${signer.address}, the transaction must come from ${from}`,
      'choose that account with --account, or add --print and send it from its wallet',
    )
  if (signer.signTypedData !== undefined && signer.sendTransaction === undefined)
    throw new UsageError(
      'signer_needs_typed_data',
      'a wallet behind --signer signs proposals only',
      'add --print and send the calldata from the wallet itself, or use --browser or --account',
    )
  const text = plan(output)
  // What a person is asked to agree to is shown even with --quiet.
  if (session.isInteractive && !yes) output.warn(text)
  else output.note(text)
  const these = planned.length === 1 ? 'this transaction' : 'these transactions'
  await confirm(session, `Send ${these}?`, yes)
  const parts = { chain, clock: session.clock, signal: session.until, timeoutMs }
  return output.during('waiting for the transaction to be mined', () =>
    sendTransactions(parts, signer, planned),
  )
}

const plannedData = ({ chainId, from, to, data, what, nonce, ...fees }: PlannedTransaction) => ({
  what,
  chain_id: chainId,
  from,
  to,
  value: '0',
  data,
  nonce,
  gas: String(fees.gas),
  max_fee_per_gas: String(fees.maxFeePerGas),
  max_priority_fee_per_gas: String(fees.maxPriorityFeePerGas),
  max_cost_wei: String(fees.gas * fees.maxFeePerGas),
})

export const revokeCommand = sessionVerb({
  name: 'revoke',
  about: 'cancel the nonces of authorizations on chain, so that their signatures become invalid',
  args: {
    '<journal-id...>': 'journal ids of one account; `proposer journal list --open` shows them',
  },
  flags: { ...transactionFlags, ...signerFlags },
  help: 'A proposal that is executed first stays executed: the outcome of each is read from finalized state and journaled. Only then sign again: `proposer submit <identifier> --outcome <answer>`, or at once with --supersede <journal-id>.',
  examples: [
    'revoke 6208acd7ce14-1 --rpc-url http://127.0.0.1:8545',
    'revoke 6208acd7ce14-1 6208acd7ce14-2 --print',
  ],
  async run(session, flags, { journalId: ids }) {
    const { output, journal, until: signal } = session
    const parts = { ports: session, journal, trust: await session.trust() }
    const chain = flags.print ? await session.chain() : await requireChain(session, 'revoke')
    const { owner, revocations, ...plan } = await planRevocations(parts, ids, chain)
    const transactions = revocations.map(({ transaction }) => transaction)
    for (const id of plan.spent) output.remark(`the nonce of ${id} is already spent`)
    if (flags.print || chain === undefined) {
      printTransactions(session, parts.trust.chain_id, owner, transactions)
      output.remark(
        `once it is mined and final, ${reconcileText(plan.questionIds)} journals the outcome`,
      )
      return
    }
    output.remark('a proposal that is executed before this is mined stays executed')
    const sent = await sendAfterAsking(session, flags, chain, owner, transactions)
    if (sent === undefined) return
    const { timeoutMs } = session.settings
    const { results, error } = await output.during('waiting for the block to be final', () =>
      finishRevocation(
        { ...parts, chain, signal, timeoutMs },
        { owner, revocations, ...plan },
        sent,
      ),
    )
    const items = results.map(({ id, outcome = 'pending' }) => ({ journal_id: id, outcome }))
    const final = error === undefined
    const document = {
      owner,
      transactions: sent.map((one, index) => {
        const { word = '', mask = '', ids: journal_ids = [] } = revocations[index] ?? {}
        return { ...minedData(one), word: String(word), mask: String(mask), journal_ids }
      }),
      results: items,
      final,
    }
    const blocks = [
      [
        ...results.map(
          (one) => [one.id, one.outcome ? outcomeTexts[one.outcome] : 'not final yet'] as const,
        ),
        ...sent.map(({ hash }) => ['transaction', hash] as const),
      ],
    ]
    output.show('revocation', document, blocks, {
      items,
      summary: { results: items.length, final },
    })
    if (error) throw error
  },
})

const minedData = ({ hash, receipt }: Awaited<ReturnType<typeof sendTransactions>>[number]) => ({
  transaction_hash: hash,
  block_number: String(receipt.blockNumber),
})

const outcomeTexts = {
  revoked: 'revoked: its signature can no longer execute',
  executed: 'it was executed first',
  nonce_used: 'its nonce was used or cancelled before',
  expired: 'its deadline has passed',
} as const

const address = (flag: string) => (text: string) => givenAddress(text, flag)

const listVerb = sessionVerb({
  name: 'list',
  about: 'list deferred payouts',
  flags: signerFlags,
  examples: ['payouts list --rpc-url http://127.0.0.1:8545'],
  async run(session) {
    const chain = await requireChain(session, 'payouts list')
    const owner = await session.account.address()
    const payouts = await deferredPayouts(chain, await session.trust(), owner)
    session.output.show('payouts', { payouts: payouts.map(payoutData) }, [
      payouts.length === 0
        ? `No deferred payouts for ${owner}.`
        : apart([
            ...payouts.map(
              (one): Rows => [
                ['deferred', amountText(one.amountRaw, one)],
                ['wallet', one.wallet],
                ['oracle', one.oracle],
              ],
            ),
            'claim: proposer payouts claim',
          ]),
    ])
  },
})

const claimVerb = sessionVerb({
  name: 'claim',
  about: 'claim every deferred payout of the account',
  flags: {
    ...transactionFlags,
    ...signerFlags,
    '--to <address>': {
      about: 'pay it to this address; default: the account',
      parse: address('--to'),
    },
  },
  help: 'A payout was deferred because a transfer failed: where the wallet is still blocked, give another address with --to.',
  examples: [
    'payouts claim',
    'payouts claim --to 0x1111111111111111111111111111111111111111 --print',
  ],
  async run(session, flags) {
    const owner = await session.account.address()
    const { to = owner } = flags
    const { output } = session
    const trust = await session.trust()
    const chain = await requireChain(session, 'payouts claim')
    const payouts = await deferredPayouts(chain, trust, owner)
    const transactions = payouts.map((one) => payoutClaim(one, to))
    if (flags.print) return printTransactions(session, trust.chain_id, owner, transactions)
    const sent = await sendAfterAsking(session, flags, chain, owner, transactions)
    if (sent === undefined) return
    const claims = sent.map((one, index) => ({
      ...(payouts[index] && payoutData(payouts[index])),
      to,
      ...minedData(one),
    }))
    output.show('payout-claims', { claims }, [
      claims.length === 0 && `No deferred payouts for ${owner}: nothing to claim.`,
      apart(
        payouts.map(
          (one, index): Rows => [
            ['claimed', amountText(one.amountRaw, one)],
            ['to', to],
            ['transaction', claims[index]?.transaction_hash],
          ],
        ),
      ),
    ])
  },
})

const payoutData = ({ decimals: _, amountRaw, ...payout }: DeferredPayout) => ({
  ...payout,
  amount: String(amountRaw),
})

export const payoutsCommand = verb({
  name: 'payouts',
  about: 'list and claim payouts that the oracle could not make',
  help: 'The oracle defers a payout whose token transfer fails, such as to a blocked wallet. Only the wallet itself can claim it.',
  examples: ['payouts list', 'payouts claim --to 0x1111111111111111111111111111111111111111'],
  verbs: [listVerb, claimVerb],
})

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
    '--token <address>': { about: 'pinned token, if there are several', parse: address('--token') },
  },
  examples: [
    'funds approve --amount 750usdc',
    'funds approve --amount 750usdc --print',
    'funds approve --amount unlimited',
  ],
  async run(session, flags) {
    const asked = /^(unlimited|max)$/.test(flags.amount ?? '')
      ? undefined
      : flagged('--amount', flags.amount)
    const trust = await session.trust()
    const token = tokenOf(trust, flags.token)
    const given = await givenAmount(asked, async () =>
      (await pinnedUnits(session)).filter(({ address }) => address === token),
    )
    const amountRaw = given?.raw ?? unlimitedRaw
    const owner = await session.account.address()
    const transaction = approval(trust, token, amountRaw)
    if (flags.print) return printTransactions(session, trust.chain_id, owner, [transaction])
    const chain = await requireChain(session, 'funds approve')
    const fundsNow = async () => fundsOf(chain, trust, await session.journal.load(), owner, token)
    const before = await fundsNow()
    const { output } = session
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
    const [sent] = (await sendAfterAsking(session, flags, chain, owner, [transaction])) ?? []
    if (sent === undefined) return
    const after = await fundsNow()
    const done = {
      ...wanted,
      allowance: String(after.allowanceRaw),
      ...minedData(sent),
      allowance_before: lowers ? String(before.allowanceRaw) : undefined,
    }
    output.show('approval', done, [
      [
        ['approved', amountRaw === unlimitedRaw ? 'unlimited' : amountText(amountRaw, after)],
        ['token', `${after.symbol} ${token}`],
        ['transaction', sent.hash],
      ],
    ])
  },
})

export const fundsCommand = sessionVerb({
  name: 'funds',
  about: 'show balance, Permit2 allowance, reserved and free amounts',
  flags: signerFlags,
  examples: ['funds --rpc-url http://127.0.0.1:8545', 'funds approve --amount 750usdc'],
  verbs: [approveVerb],
  async run(session) {
    const trust = await session.trust()
    const chain = await requireChain(session, 'funds')
    const owner = await session.account.address()
    const view = await session.journal.load()
    const { gasWei, tokens: funds } = await walletFunds(chain, trust, view, owner)
    const { output } = session
    const last = await lastKnown(session, session.settings.home.value)
    const tokens = funds.map(fundsData)
    const document = {
      owner,
      chain_id: trust.chain_id,
      permit2: trust.permit2,
      gas_balance: String(gasWei),
      tokens,
    }
    output.show('funds', document, [
      apart([
        ...contestedLines(last),
        [
          ['wallet', owner],
          ['gas', coinText(gasWei, trust.chain_id)],
        ],
        ...funds.map(fundsRows),
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

const allowanceText = ({ allowanceRaw, ...units }: Funds) =>
  allowanceRaw >= practicallyUnlimited ? 'unlimited' : amountText(allowanceRaw, units)

function fundsRows(funds: Funds): Rows {
  const amount = (raw: bigint) => amountText(raw, funds)
  const { claims, allowanceRaw, reservedRaw, balanceRaw, freeRaw, spendableRaw } = funds
  return [
    ['token', `${funds.symbol} ${funds.token}`],
    ['balance', amount(balanceRaw)],
    ['allowance', allowanceText(funds)],
    ['reserved', `${amount(reservedRaw)} by ${counted(claims.length, 'open authorization')}`],
    ['free', amount(freeRaw)],
    [
      'spendable',
      spendableRaw === freeRaw ? null : `${amount(spendableRaw)} (within the allowance)`,
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
  ]
}

/** An approval sets the allowance, it does not add to it. */
function lowersText(amountRaw: bigint, before: Funds) {
  const amount = (raw: bigint) => amountText(raw, before)
  const short =
    amountRaw < before.reservedRaw ? `; open authorizations need ${amount(before.reservedRaw)}` : ''
  return visible(
    `this lowers the allowance, which is ${allowanceText(before)} now, to ${amount(amountRaw)}${short}`,
  )
}

function tokenOf({ tokens }: Trust, named: Address | undefined) {
  const [first] = tokens
  if (named === undefined && first !== undefined && tokens.length === 1) return first
  if (named !== undefined && tokens.includes(named)) return named
  const why = named === undefined ? 'several tokens are pinned' : `${named} is not a pinned token`
  throw new UsageError('token_needed', `${why}: ${tokens.join(', ')}`, 'choose one with --token')
}
