import { afterAll, beforeAll, expect, test } from 'vitest'
import { topics } from '../../src/core/chain/contracts.js'
import { findProposed } from '../../src/core/chain/propose.js'
import { resolveRound } from '../../src/core/chain/questions.js'
import type { Contracts } from '../../src/core/chain/round.js'
import type { Ledger } from '../../src/core/gateway/ledger/ledger.js'
import { createPipeline, type Pipeline } from '../../src/core/gateway/pipeline/pipeline.js'
import { createChainView, type LiveView } from '../../src/core/gateway/view/view.js'
import { systemClock, systemRandom } from '../../src/core/io/clock.js'
import { type DevChain, startDevChain } from '../../src/core/io/dev/dev-chain.js'
import { signerFromKey } from '../../src/core/io/keys.js'
import { createChain } from '../../src/core/io/rpc.js'
import type { Chain, ChainReceipt, Hex, Signer } from '../../src/core/ports.js'
import type { Candidate } from '../../src/core/protocol/candidate.js'
import { fromHex } from '../../src/core/protocol/witness.js'
import { admit, current, openMemoryLedger, signedCandidate } from '../support/candidates.js'
import { newMemoryStore } from '../support/memory-log.js'

let dev: DevChain
let chain: Chain & { close(): Promise<void> }
let contracts: Contracts
let ledger: Ledger
let view: LiveView
let pipeline: Pipeline
let executor: Signer

beforeAll(async () => {
  dev = await startDevChain({ questions: 6, proposers: 2 })
  chain = createChain([dev.rpcUrl])
  const { trust } = dev.description
  contracts = {
    chainId: trust.chain_id,
    permit2: trust.permit2,
    signedProposer: trust.signed_proposer,
    oracles: trust.oracles,
    requesters: trust.requesters,
    tokens: trust.tokens,
  }
  executor = signerOf('executor')
  const genesis = await chain.block(0n)
  if (!genesis) throw new Error('no genesis block')
  const ports = { clock: systemClock, random: systemRandom }
  ledger = await openMemoryLedger(newMemoryStore(), ports, { chainId: contracts.chainId, genesisHash: genesis.hash })
  const entries = dev.description.questions.map(({ question_id, slug }) => ({ questionId: question_id, slug }))
  view = createChainView({ clock: systemClock, chain }, contracts, ledger, { maxHeadAgeSeconds: 30, entries })
  await view.start()
  const config = {
    pipeline: { enabled: true },
    executor: { enabled: true, max_fee_gwei: 1000 },
    chain: { confirmations: 'finalized' },
  } as const
  pipeline = createPipeline({ ports, ledger, view, chain, signer: executor, contracts, config })
  pipeline.start()
}, 60_000)

afterAll(async () => {
  await pipeline?.stop()
  await view?.stop()
  await chain?.close()
  await dev?.stop()
})

function signerOf(role: string, n = 0): Signer {
  const account = dev.description.accounts.filter((one) => one.role === role)[n]
  if (!account) throw new Error(`no account ${role} ${n}`)
  return signerFromKey(fromHex(account.private_key))
}

function questionIdOf(n: number): Hex {
  const question = dev.description.questions[n]
  if (!question) throw new Error(`no question ${n}`)
  return question.question_id
}

async function submit(n: number, proposer: Signer, nonce: string, more: { price?: string; amount?: string } = {}): Promise<Candidate> {
  const question = await view.question(questionIdOf(n))
  if (!question) throw new Error('the question is unknown')
  const binding = { chainId: contracts.chainId, spender: contracts.signedProposer }
  return admit(ledger, await signedCandidate({ question, proposer, nonce, deadline: view.nowSeconds() + 3600n, ...more }, binding))
}

/** Waits for the ledger to say that the candidate has come to its end. */
async function ended(id: string): Promise<Candidate> {
  return new Promise((resolve, reject) => {
    const look = () => {
      current(ledger, id).then((candidate) => {
        if (candidate.progress.status === 'executed' || candidate.progress.status === 'failed') resolve(candidate)
      }, reject)
    }
    ledger.onChange(look)
    look()
  })
}

async function receiptOf(candidate: Candidate): Promise<ChainReceipt> {
  if (candidate.progress.status !== 'executed') throw new Error(`not executed: ${JSON.stringify(candidate.progress)}`)
  const receipt = await chain.receipt(candidate.progress.submission.transactionHash ?? '0x')
  if (!receipt) throw new Error('no receipt')
  return receipt
}

test('contract §5: a received candidate is validated, selected, executed, and its event index is that of ProposePrice in the block', async () => {
  const proposer = signerOf('proposer')
  const candidate = await submit(0, proposer, '1')
  const done = await ended(candidate.id)
  const receipt = await receiptOf(done)
  const found = findProposed(receipt.logs, candidate)
  expect(found?.log.topics[0]).toBe(topics.proposePrice)
  expect(done.progress).toMatchObject({ status: 'executed', submission: { status: 'indexed', proposalEventIndex: found?.log.logIndex } })
  const round = await resolveRound(chain, contracts, questionIdOf(0))
  expect(round?.state).toBe('proposed')
}, 60_000)

test('R3: of two candidates for one round one transaction is sent, and the other ends as not_selected', async () => {
  const first = await submit(1, signerOf('proposer', 0), '2')
  const second = await submit(1, signerOf('proposer', 1), '3', { price: '0' })
  const [done, standIn] = await Promise.all([ended(first.id), ended(second.id)])
  expect(done.progress.status).toBe('executed')
  expect(standIn.progress).toMatchObject({ status: 'failed', failure: { code: 'not_selected', stage: 'selection' } })
}, 60_000)

test('contract §5: a wallet without the funds fails with insufficient_balance and the figures', async () => {
  const candidate = await submit(2, signerOf('proposer', 1), '4', { amount: '900000000000000000' })
  const done = await ended(candidate.id)
  expect(done.progress).toMatchObject({ status: 'failed', failure: { code: 'insufficient_balance', retryable: true, stage: 'validation' } })
}, 60_000)

test('contract §5: several rounds at once take one nonce each, in order', async () => {
  const before = await chain.transactionCount(executor.address, 'latest')
  const candidates = [
    await submit(3, signerOf('proposer'), '5'),
    await submit(4, signerOf('proposer'), '6'),
    await submit(5, signerOf('proposer'), '7'),
  ]
  const done = await Promise.all(candidates.map(({ id }) => ended(id)))
  expect(done.map(({ progress }) => progress.status)).toEqual(['executed', 'executed', 'executed'])
  expect((await chain.transactionCount(executor.address, 'latest')) - before).toBe(3)
  expect(pipeline.faults()).toEqual([])
  expect(view.faults()).toEqual([])
}, 60_000)
