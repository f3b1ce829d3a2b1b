/** The gateways that fuzzed calls go to, and everything that was ever really signed for them. */
import { priceOf, toBatchItem } from '#protocol/proposal'
import type { BatchItem, SignedProposal } from '#protocol/schema'
import { advanced, makeQuestion, signedBody, type Wallet } from '../fake-view.js'
import { openFront } from '../front.js'

type Question = ReturnType<typeof makeQuestion>

export interface Signed {
  readonly question: Question
  readonly single: SignedProposal
  readonly item: BatchItem
}

export type Fronts = Awaited<ReturnType<typeof openFronts>>

/**
 * What an authorization says, in one text: two bodies with the same key are the same payload
 * (robustness R22).
 */
export function keyOf(
  questionId: string | undefined,
  proposal: Partial<SignedProposal> | Partial<BatchItem>,
): string {
  const { proposer, permit, signature } = proposal
  const price =
    'outcome' in proposal && proposal.outcome
      ? priceOf[proposal.outcome]
      : (proposal as Partial<BatchItem>).proposed_price
  return [questionId, proposer, price, permit?.amount, permit?.nonce, permit?.deadline, signature]
    .map(String)
    .join('|')
}

const changed = { deadline: '1800090000' }

export async function openFronts() {
  const open = await openFront({ wallets: 24 })
  const questions = [
    makeQuestion('first', { slug: 'first-question' }),
    makeQuestion('second'),
    makeQuestion('paused', { paused: true, slug: 'paused-question' }),
    makeQuestion('proposed', { state: 'proposed' }),
  ]
  for (const question of questions) open.view.put(question)
  const unseen = makeQuestion('unseen', { slug: 'unseen-question' })
  open.view.unseen.set(unseen.questionId, unseen)
  const moving = makeQuestion('moving', { slug: 'moving-question' })
  open.view.put(moving)

  const signed: Signed[] = []
  const add = async (wallet: Wallet, question: Question, outcome: 'p1' | 'p2' = 'p2') => {
    const single = await signedBody(wallet, question, outcome, changed)
    const proposer = wallet.address
    const signature = single.signature as `0x${string}`
    const item = toBatchItem(question.questionId, {
      proposer,
      price: priceOf[outcome],
      ...single.permit,
      signature,
    })
    signed.push({ question, single, item })
    return single
  }
  for (const [at, wallet] of open.wallets.entries()) {
    const question = [...questions, unseen][at % 5] as Question
    await add(wallet, question)
    if (at % 3 === 0) await add(wallet, question, 'p1')
  }
  const [early, spender, contract] = open.wallets.slice(-3) as [Wallet, Wallet, Wallet]
  const old = await add(early, moving)
  await open.post(`/v1/proposals/${moving.questionId}`, old)
  open.view.put(advanced(moving, '1799500000'))
  const spent = await add(spender, unseen)
  open.view.usedNonces.add(`${spender.address}|${spent.permit.nonce}`)
  const byCode = await add(contract, unseen)
  open.view.wallets.set(contract.address, byCode.signature as `0x${string}`)

  const candidateIds = open.ledger.active().map(({ id }) => id)
  const idOf = new Map<string, string>()
  for (const { questionId, slug } of [...questions, unseen, moving]) {
    idOf.set(questionId, questionId)
    if (slug !== undefined) idOf.set(slug, questionId)
  }
  const poor = await openFront({ config: { budget: { per_ip_items: 40 } } })
  const closed = await openFront({ config: { admission: { enabled: false } } })
  return {
    open,
    poor,
    closed,
    signed,
    signedKeys: new Set(signed.map(({ question, single }) => keyOf(question.questionId, single))),
    identifiers: [...idOf.keys()],
    candidateIds,
    idOf,
  }
}
