/** The wallet's own transactions: `funds approve`, `revoke`, `payouts` (contract §6, §9). */

import { coinText } from '#chain/profiles'
import { finishRevocation, planRevocations, reconcileText } from '#client/wallet/revoke'
import {
  type DeferredPayout,
  deferredPayouts,
  type OwnTransaction,
  type PlannedTransaction,
  payoutClaim,
  planTransactions,
  sendTransactions,
} from '#client/wallet/transactions'
import type { Chain } from '#ports'
import { givenAddress } from '#protocol/address'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { maxFeeWei } from './session/amounts.js'
import { confirm } from './session/inputs.js'
import { type Session, sessionVerb } from './session/session.js'
import { browserFlags, signerFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { apart, rows } from './terminal/output.js'
import { amountText } from './terminal/render.js'
import { type FlagsOf, verb } from './terminal/verb.js'

export const transactionFlags = {
  ...browserFlags,
  '--print': 'print the calldata for an external wallet instead of sending',
  '--dry-run': 'show what would be sent and what it may cost; send nothing',
  '--max-fee <amount>':
    "refuse fees above this in all, in the chain's coin (0.5pol); default: 1 coin, and 1000 gwei per gas",
} as const
type TransactionFlags = FlagsOf<typeof transactionFlags>

export async function requireChain(session: Session, what: string) {
  const chain = await session.chain()
  if (chain) return chain
  throw new UsageError(
    'no_rpc_url',
    `${what} needs a node, and none is configured`,
    'give --rpc-url <url>, or set PROPOSER_RPC_URL',
  )
}

/** `--print`: what a wallet outside sends, without asking anybody for gas or fees. */
export function printTransactions(
  { output }: Context,
  chainId: number,
  from: Address,
  transactions: readonly OwnTransaction[],
) {
  const shown = transactions.map(({ to, data, what }) => ({ to, value: '0', data, what }))
  output.show('calldata', { chain_id: chainId, from, transactions: shown }, [
    shown.length === 0 && 'nothing to send',
    apart(shown.map((one) => transactionRows({ ...one, chainId, from }))),
  ])
}

/** `value` of what is not sent from here, what it costs of what is. */
const transactionRows = ({
  what,
  chainId,
  from,
  to,
  value,
  data,
  gas,
  maxFeePerGas,
}: OwnTransaction &
  Pick<PlannedTransaction, 'chainId' | 'from'> &
  Partial<PlannedTransaction> & { readonly value?: string }) =>
  rows([
    ['purpose', what],
    ['chain', String(chainId)],
    ['from', from],
    ['to', to],
    ['value', value],
    ['data', data],
    [
      'costs at most',
      gas === undefined || maxFeePerGas === undefined
        ? null
        : `${coinText(gas * maxFeePerGas, chainId)} (gas)`,
    ],
  ])

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
) {
  const { output } = context
  const { timeoutMs, maxFee, yes } = session.settings
  const { chain_id: chainId } = await session.trust()
  const limitWei = maxFeeWei(maxFee, chainId)
  const planned = await planTransactions(chain, chainId, from, transactions, limitWei)
  const plan = apart(planned.map((one) => transactionRows(one)))
  if (flags.dryRun === true) {
    output.show('preview', { dry_run: true, transactions: planned.map(plannedData) }, [plan])
    return undefined
  }
  const signer = await session.account.signer()
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
  session.account.expect?.(planned.length)
  const text = plan(output)
  // What a person is asked to agree to is shown even with --quiet.
  if (context.isInteractive && !yes) output.warn(text)
  else output.note(text)
  const these = planned.length === 1 ? 'this transaction' : 'these transactions'
  await confirm(context, `Send ${these}?`, yes)
  const progress = output.progress('waiting for the transaction to be mined')
  const parts = { chain, clock: context.clock, signal: session.signal, timeoutMs }
  return sendTransactions(parts, signer, planned).finally(() => progress.stop())
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
  async run(context, session, flags, { journalId: ids }) {
    const { output } = context
    const { ports, journal, signal } = session
    const parts = { ports, journal, trust: await session.trust() }
    const chain =
      flags.print === true ? await session.chain() : await requireChain(session, 'revoke')
    const { owner, revocations, ...plan } = await planRevocations(parts, ids, chain)
    const transactions = revocations.map(({ transaction }) => transaction)
    for (const id of plan.spent) output.note(`note: the nonce of ${id} is already spent`)
    if (flags.print === true || chain === undefined) {
      printTransactions(context, parts.trust.chain_id, owner, transactions)
      output.note(
        `note: once it is mined and final, ${reconcileText(plan.questionIds)} journals the outcome`,
      )
      return
    }
    output.note('note: a proposal that is executed before this is mined stays executed')
    const sent =
      transactions.length === 0
        ? []
        : await sendAfterAsking(context, session, flags, chain, owner, transactions)
    if (sent === undefined) return
    const progress = output.progress('waiting for the block to be final')
    const { timeoutMs } = session.settings
    const { results, error } = await finishRevocation(
      { ...parts, chain, signal, timeoutMs },
      { owner, revocations, ...plan },
      sent,
    ).finally(() => progress.stop())
    const items = results.map(({ id, outcome = 'pending' }) => ({ journal_id: id, outcome }))
    const final = error === undefined
    const document = {
      owner,
      transactions: sent.map(({ hash, receipt }, index) => ({
        transaction_hash: hash,
        block_number: String(receipt.blockNumber),
        word: String(revocations[index]?.word ?? ''),
        mask: String(revocations[index]?.mask ?? ''),
        journal_ids: revocations[index]?.ids ?? [],
      })),
      results: items,
      final,
    }
    const blocks = [
      rows([
        ...results.map(
          (one) => [one.id, one.outcome ? outcomeTexts[one.outcome] : 'not final yet'] as const,
        ),
        ...sent.map(({ hash }) => ['transaction', hash] as const),
      ]),
    ]
    output.show('revocation', document, blocks, {
      items,
      summary: { results: items.length, final },
    })
    if (error) throw error
  },
})

const outcomeTexts = {
  revoked: 'revoked: its signature can no longer execute',
  executed: 'it was executed first',
  nonce_used: 'its nonce was used or cancelled before',
  expired: 'its deadline has passed',
} as const

const address = (flag: string) => (text: string) => givenAddress(text, flag)
const wallets = (text: string, before: readonly Address[] = []) => [
  ...before,
  givenAddress(text, '--wallet'),
]

const listVerb = sessionVerb({
  name: 'list',
  about: 'list deferred payouts',
  flags: {
    ...signerFlags,
    '--wallet <address>': {
      about: 'of this wallet; may be repeated; default: the account',
      parse: wallets,
    },
  },
  examples: ['payouts list --rpc-url http://127.0.0.1:8545'],
  async run(context, session, { wallet }) {
    const chain = await requireChain(session, 'payouts list')
    const owners = wallet ?? [await session.account.address()]
    const payouts = await deferredPayouts(chain, await session.trust(), owners)
    context.output.show('payouts', { payouts: payouts.map(payoutData) }, [
      payouts.length === 0
        ? `No deferred payouts for ${owners.join(', ')}.`
        : apart([
            ...payouts.map((one) =>
              rows([
                ['deferred', amountText(String(one.amountRaw), one)],
                ['wallet', one.wallet],
                ['oracle', one.oracle],
              ]),
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
    '--token <address>': { about: 'claim this token only', parse: address('--token') },
  },
  help: 'A payout was deferred because a transfer failed: where the wallet is still blocked, give another address with --to.',
  examples: [
    'payouts claim',
    'payouts claim --to 0x1111111111111111111111111111111111111111 --print',
  ],
  async run(context, session, flags) {
    const owner = await session.account.address()
    const { to = owner, token } = flags
    const { output } = context
    const trust = await session.trust()
    if (token !== undefined && !trust.tokens.includes(token))
      throw new UsageError(
        'token_needed',
        `${token} is not a pinned token`,
        `name one of ${trust.tokens.join(', ')} with --token`,
      )
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
    const claims = sent.map(({ hash, receipt }, index) => ({
      ...(payouts[index] && payoutData(payouts[index])),
      to,
      transaction_hash: hash,
      block_number: String(receipt.blockNumber),
    }))
    output.show('payout-claims', { claims }, [
      claims.length === 0 && `No deferred payouts for ${owner}: nothing to claim.`,
      apart(
        payouts.map((one, index) =>
          rows([
            ['claimed', amountText(String(one.amountRaw), one)],
            ['to', to],
            ['transaction', claims[index]?.transaction_hash],
          ]),
        ),
      ),
    ])
  },
})

const payoutData = ({ wallet, oracle, token, symbol, amountRaw }: DeferredPayout) => ({
  wallet,
  oracle,
  token,
  symbol,
  amount: String(amountRaw),
})

export const payoutsCommand = verb({
  name: 'payouts',
  about: 'list and claim payouts that the oracle could not make',
  help: 'The oracle defers a payout whose token transfer fails, such as to a blocked wallet. Only the wallet itself can claim it.',
  examples: ['payouts list', 'payouts claim --to 0x1111111111111111111111111111111111111111'],
  verbs: [listVerb, claimVerb],
})
