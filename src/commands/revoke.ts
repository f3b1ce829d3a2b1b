/**
 * `revoke`: cancels the Permit2 nonces of authorizations that have not executed (contract §6,
 * robustness §7 no. 13).
 */
import { Command } from 'commander'
import {
  finishRevocation,
  planRevocations,
  type RevocationResult,
  reconcileText,
} from '../core/client/wallet/revoke.js'
import {
  addTransactionFlags,
  printTransactions,
  requireChain,
  sendAfterAsking,
  type TransactionFlags,
} from './own-transactions.js'
import { addSignerFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { fields } from './terminal/render.js'

export const revokeCommand = (context: Context): Command =>
  addSignerFlags(addTransactionFlags(new Command('revoke')))
    .description(
      'cancel the nonces of authorizations on chain, so that their signatures become invalid',
    )
    .argument(
      '<journal-id...>',
      'journal ids of one account; `proposer journal list --open` shows them',
    )
    .addHelpText(
      'after',
      '\nA proposal that is executed first stays executed: the outcome of each is read from finalized state and journaled. Only then sign again: `proposer submit <identifier> --outcome <answer>`, or at once with --supersede <journal-id>.\n\nExamples:\n  proposer revoke 6208acd7ce14-1 --rpc-url http://127.0.0.1:8545\n  proposer revoke 6208acd7ce14-1 6208acd7ce14-2 --print',
    )
    .action(async (ids: string[], _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<TransactionFlags>()
      await withSession(context, flags, async (session) => {
        const { output } = context
        const trust = await session.trust()
        const parts = { ports: session.ports, journal: session.journal, trust }
        const chain =
          flags.print === true ? await session.chain() : await requireChain(session, 'revoke')
        const plan = await planRevocations(parts, ids, chain)
        const transactions = plan.revocations.map(({ transaction }) => transaction)
        for (const id of plan.spent) output.note(`note: the nonce of ${id} is already spent`)
        if (flags.print === true || chain === undefined) {
          printTransactions(context, trust.chain_id, plan.owner, transactions)
          output.note(
            `note: once it is mined and final, ${reconcileText(plan.questionIds)} journals the outcome`,
          )
          return
        }
        output.note('note: a proposal that is executed before this is mined stays executed')
        const sent =
          transactions.length === 0
            ? []
            : await sendAfterAsking(context, session, flags, chain, plan.owner, transactions)
        if (sent === undefined) return
        const progress = output.progress('waiting for the block to be final')
        const { timeoutMs } = session.settings
        const finished = await finishRevocation(
          { ...parts, chain, signal: session.signal, timeoutMs },
          plan,
          sent,
        ).finally(() => progress.stop())
        const result = {
          owner: plan.owner,
          transactions: sent.map(({ hash, receipt }, index) => ({
            transaction_hash: hash,
            block_number: String(receipt.blockNumber),
            word: String(plan.revocations[index]?.word ?? ''),
            mask: String(plan.revocations[index]?.mask ?? ''),
            journal_ids: plan.revocations[index]?.ids ?? [],
          })),
          results: finished.results.map(({ id, outcome }) => ({
            journal_id: id,
            outcome: outcome ?? 'pending',
          })),
          final: finished.error === undefined,
        }
        if (output.mode === 'ndjson') {
          for (const one of result.results) output.line(one)
          output.result(
            'revocation',
            { summary: { results: result.results.length, final: result.final } },
            () => '',
          )
        } else {
          output.result('revocation', result, () =>
            fields(
              [
                ...finished.results.map((one) => [one.id, outcomeText(one)] as const),
                ...sent.map(({ hash }) => ['transaction', hash] as const),
              ],
              output.columns,
            ),
          )
        }
        if (finished.error) throw finished.error
      })
    })

const outcomeTexts = {
  revoked: 'revoked: its signature can no longer execute',
  executed: 'it was executed first',
  nonce_used: 'its nonce was used or cancelled before',
  expired: 'its deadline has passed',
} as const

const outcomeText = ({ outcome }: RevocationResult): string =>
  outcome === undefined ? 'not final yet' : outcomeTexts[outcome]
