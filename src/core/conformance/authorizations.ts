/**
 * What the checks sign, by which wallet and for which question. All of it is journaled like any
 * other authorization (R4, R6, R8). But for the checks that want an execution, each is for an
 * amount that no wallet holds. SignedProposer pulls the whole permit.amount (domain §2), so that it
 * is admitted, fails in validation, and never executes, whoever gets hold of it. Those that name
 * too little name one raw unit. No such amount comes from an answer: the bond is the gateway's
 * word, and one that lies about it would choose what is signed.
 */

import { domainOf, roundRef } from '../chain/round.js'
import {
  type JournaledAuthorization,
  offersFor,
  openFor,
} from '../client/journal/authorizations.js'
import { chainChecks, type Form } from '../client/journal/records.js'
import { draftOf, signDrafts } from '../client/propose/sign.js'
import { requestOf } from '../client/propose/terms.js'
import { contractsOf, type QuestionContext } from '../client/trust/trust.js'
import type { Signer } from '../ports.js'
import { ProposerError } from '../protocol/errors.js'
import { priceOf } from '../protocol/proposal.js'
import { toHex, witnessRound } from '../protocol/witness.js'
import { type Bench, outcomeFor } from './bench.js'
import { lifeSeconds, NotSeen } from './rule.js'

/** More than any token has, and the sum of a few is still a uint256. */
export const unexecutableRaw = 2n ** 128n
/**
 * All that a check of the bond risks where the gateway admits it, or has reported a bond that is
 * none.
 */
export const leastRaw = 1n

export interface Pair {
  readonly wallet: Signer
  readonly context: QuestionContext
}

export interface ProbeTerms {
  readonly price?: string
  readonly amountRaw?: bigint
  readonly deadlineSeconds?: bigint
  readonly form?: Form
  readonly clientRef?: string
  readonly supersede?: string
}

export type Fits = (context: QuestionContext) => boolean

export type BareBench = Omit<Bench, 'admissions'>

function checkRisk({ may, maxAmountRaw }: BareBench, amountRaw: bigint): void {
  if (amountRaw <= leastRaw || amountRaw >= unexecutableRaw) return
  if (!may.execute)
    throw new NotSeen(
      `a wallet can pay ${amountRaw} raw units: such a proposal is signed with --allow-execution only`,
    )
  if (maxAmountRaw === undefined || amountRaw <= maxAmountRaw) return
  throw new NotSeen(`${amountRaw} raw units are more than --max-amount ${maxAmountRaw}`)
}

const wantedOf = ({ trust }: BareBench, { wallet, context }: Pair) => ({
  questionId: context.question_id,
  proposer: wallet.address,
  chainId: trust.chain_id,
})

/** Wallets and questions that no open authorization holds (R8); NotSeen where there are fewer. */
export async function freePairs(
  bench: BareBench,
  count: number,
  fits: Fits,
  order: 'first' | 'last',
): Promise<readonly Pair[]> {
  const { wallets, journal, ports } = bench
  if (wallets.length === 0) throw new NotSeen('no key of an eligible wallet was given')
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const contexts = (await bench.open()).filter(fits)
  const all = wallets.flatMap((wallet) => contexts.map((context) => ({ wallet, context })))
  const free = all.filter((pair) => {
    const wanted = wantedOf(bench, pair)
    const open = openFor(view.byQuestion(wanted.questionId), wanted, nowMs)
    return open.length === 0 && offersFor(view.offers, wanted, nowMs).length === 0
  })
  const taken = order === 'first' ? free.slice(0, count) : free.slice(-count)
  if (taken.length === count) return taken
  throw new NotSeen(
    `${count} more of questions and wallets without an open authorization are required: add --question`,
  )
}

/** Reserves a nonce and signs, journaled; NotSeen where the question is held meanwhile. */
export async function signWith(
  bench: BareBench,
  pair: Pair,
  terms: ProbeTerms = {},
): Promise<JournaledAuthorization> {
  const { ports, journal, trust } = bench
  const { wallet, context } = pair
  const request = requestOf(context)
  const contracts = contractsOf(trust)
  const witness = witnessRound(domainOf(contracts), request, context.bond.token)
  const price = terms.price ?? priceOf[outcomeFor(context)]
  const amountRaw = terms.amountRaw ?? unexecutableRaw
  checkRisk(bench, amountRaw)
  const deadlineSeconds = terms.deadlineSeconds ?? bench.nowSeconds() + lifeSeconds
  return journal.exclusive(async (view) => {
    const wanted = wantedOf(bench, pair)
    const open = openFor(view.byQuestion(wanted.questionId), wanted, ports.clock.nowMs())
    const rival = open.find(({ id }) => id !== terms.supersede)
    if (rival !== undefined) throw new NotSeen(`${rival.id} now holds the question`)
    const nonce = journal.nextNonce()
    const digest = toHex(
      witness.digest({
        price,
        amount: String(amountRaw),
        nonce: String(nonce),
        deadline: String(deadlineSeconds),
      }),
    )
    const round = roundRef(contracts, wanted.questionId, request, witness.ancillaryHash)
    const prepared = {
      context,
      price,
      amountRaw,
      nonce,
      deadlineSeconds,
      round,
      digest,
      unchecked: chainChecks,
    }
    const intent = { identifier: context.question_id, proposer: wallet.address, ...terms }
    const { draft, reserving } = draftOf({ journal, trust }, intent, prepared, view)
    await journal.append(reserving)
    const form = terms.form ?? 'single'
    const [signing] = await signDrafts({ ports, journal }, [draft], wallet, form)
    if (signing === undefined) throw new Error('a draft was not signed')
    if (signing instanceof ProposerError) throw signing
    return signing
  })
}
