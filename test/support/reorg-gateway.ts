/**
 * A gateway in this process on a real anvil that mines when told: real contracts, real pool and
 * receipts, and a test that decides what is in which block. `finalized` lags by two epochs.
 */
import { type Anvil, startAnvil } from '#devchain/dev-anvil'
import { startDevChain } from '#devchain/dev-chain'
import { callData, type DevRole, devAccount, devRpc, type Placed } from '#devchain/dev-contracts'
import { createGateway } from '#gateway/gateway'
import { createPipeline } from '#gateway/pipeline/pipeline'
import { createChainView } from '#gateway/view/view'
import { signerFromKey } from '#io/keys'
import { createChain } from '#io/rpc/rpc'
import { yieldToEvents } from '#io/serving/load'
import type { Chain, Clock, Hex, Signer } from '#ports'
import { outcomeOf } from '#protocol/proposal'
import type { Address, CandidateStatus } from '#protocol/schema'
import { fromHex } from '#protocol/witness'
import { version } from '#protocol/words'
import { admit, current, openMemoryLedger, signedCandidate } from './candidates.js'
import { poolEmpty } from './dev-chain-vectors.js'
import { chainSectionOf } from './fake-view.js'
import { testConfig, testHash } from './front.js'
import { newMemoryStore } from './memory-log.js'
import { seededRandom } from './sim-files.js'

/**
 * A tip above the executor's, in wei: a transaction with it is before the executor's in its block.
 */
const leadingTip = 50_000_000_000n
const usualBaseFee = 1_000_000_000n
const hex = (value: bigint | number): Hex => `0x${value.toString(16)}`

export type StillChain = Awaited<ReturnType<typeof openStillChain>>

export const devSigner = (role: DevRole, n = 0): Signer =>
  signerFromKey(fromHex(devAccount(role, n).private_key))

export async function openStillChain(options: { questions: number; slotsInAnEpoch: number }) {
  const dev = await startDevChain({ questions: options.questions, proposers: 3 })
  const state = await devRpc(dev.rpcUrl)
    .request<string>('anvil_dumpState', [])
    .finally(() => dev.stop())
  const anvil: Anvil = await startAnvil(0, [
    ...[
      '--chain-id',
      '31337',
      '--hardfork',
      'prague',
      '--accounts',
      '0',
      '--gas-limit',
      '60000000',
    ],
    ...[
      '--slots-in-an-epoch',
      String(options.slotsInAnEpoch),
      '--no-mining',
      '--auto-impersonate',
      '--no-request-size-limit',
    ],
  ])
  const rpc = devRpc(anvil.rpcUrl)
  const chain = createChain([anvil.rpcUrl])
  const { trust } = dev.description
  let headSeconds = 0n
  let nonces = 0
  const look = async () => {
    const head = await chain.block('latest')
    if (head === null) throw new Error('the chain has no block')
    headSeconds = head.timestamp
  }
  const still = {
    rpc,
    chain,
    contracts: {
      chainId: trust.chain_id,
      permit2: trust.permit2,
      signedProposer: trust.signed_proposer,
      oracles: trust.oracles,
      requesters: trust.requesters,
      tokens: trust.tokens,
    },
    description: dev.description,
    get headSeconds() {
      return headSeconds
    },
    freshNonce() {
      nonces += 1
      return String(nonces)
    },
    async mine(blocks: number = 1) {
      for (let mined = 0; mined < blocks; mined += 1) await rpc.request('evm_mine', [])
      await look()
    },
    async later(seconds: number) {
      await rpc.request('evm_setNextBlockTimestamp', [hex(headSeconds + BigInt(seconds))])
    },
    ahead(from: Address, contract: Placed, name: string, ...args: unknown[]) {
      const fees = { maxPriorityFeePerGas: hex(leadingTip), maxFeePerGas: hex(leadingTip * 2n) }
      return rpc.request<Hex>('eth_sendTransaction', [
        {
          from,
          to: contract.address,
          data: callData(contract, name, args),
          gas: hex(2_000_000),
          ...fees,
        },
      ])
    },
    async act(from: Address, contract: Placed, name: string, ...args: unknown[]) {
      const hash = await still.ahead(from, contract, name, ...args)
      await still.mine()
      const receipt = await chain.receipt(hash)
      if (receipt?.status !== 'success') throw new Error(`${name} ended as ${receipt?.status}`)
    },
    remember: () => rpc.request<Hex>('evm_snapshot', []),
    /** Undoes every block since; what was in them is in no pool. */
    async back(memory: Hex) {
      await poolEmpty(rpc)
      await rpc.request('evm_revert', [memory])
      await rpc.request('anvil_setNextBlockBaseFeePerGas', [hex(usualBaseFee)])
      await look()
    },
    async stop() {
      await (chain as Chain & { close(): Promise<void> }).close()
      await anvil.stop()
    },
  }
  try {
    await rpc.request('anvil_loadState', [state])
    await rpc.request('anvil_setBlockTimestampInterval', [1])
    await still.mine(2 * options.slotsInAnEpoch + 1)
  } catch (error) {
    await still.stop()
    throw error
  }
  return still
}

export interface Submitted {
  readonly id: string
  readonly questionId: Hex
  readonly payload: object
}

export interface ProposeWish {
  readonly by?: Signer
  readonly key?: Signer
  readonly price?: string
  readonly amount?: string
  readonly nonce?: string
  readonly deadlineSeconds?: bigint
  readonly spoil?: (signature: Hex) => Hex
}

export type StillGateway = Awaited<ReturnType<typeof openStillGateway>>

export async function openStillGateway(still: StillChain) {
  let monotonicMs = 0
  const clock: Clock = {
    nowMs: () => Number(still.headSeconds) * 1000,
    monotonicMs: () => monotonicMs,
    sleep: (_ms, signal) =>
      new Promise((_resolve, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
      ),
  }
  const random = seededRandom(7)
  const ports = { clock, random }
  const { contracts, chain, description } = still
  const config = testConfig({
    chain: chainSectionOf(contracts),
  })
  const genesis = await chain.block(0n)
  if (!genesis) throw new Error('no genesis')
  const allowlist = [0, 1, 2].map((n) => devAccount('proposer', n).address)
  const ledger = await openMemoryLedger(newMemoryStore(), ports, {
    chainId: contracts.chainId,
    genesisHash: genesis.hash,
    allowlist,
  })
  const entries = description.questions.map(({ question_id, slug }) => ({
    questionId: question_id,
    slug,
  }))
  const view = createChainView({ clock, chain }, contracts, ledger, {
    maxHeadAgeSeconds: 30,
    entries,
  })
  const executor = devSigner('executor')
  const pipeline = createPipeline({
    ports,
    ledger,
    view,
    chain,
    signer: executor,
    contracts,
    config,
  })
  const gateway = createGateway({
    ports: { clock, random, hash: testHash },
    config,
    ledger,
    view,
    pipeline,
    yieldToEvents,
  })
  await view.poll()

  const signed = async (questionId: Hex, wish: ProposeWish) => {
    const question = await view.question(questionId)
    if (!question) throw new Error(`the gateway knows no question ${questionId}`)
    const {
      by = devSigner('proposer'),
      key = by,
      nonce = still.freshNonce(),
      deadlineSeconds = 3_600n,
      spoil,
      ...terms
    } = wish
    const proposer: Signer = { address: by.address, signDigest: (digest) => key.signDigest(digest) }
    const binding = { chainId: contracts.chainId, spender: contracts.signedProposer }
    const full = {
      question,
      proposer,
      nonce,
      deadline: still.headSeconds + deadlineSeconds,
      ...terms,
    }
    const made = await signedCandidate(full, binding)
    return spoil === undefined
      ? made
      : signedCandidate({ ...full, signature: spoil(made.signature) }, binding)
  }
  const payloadOf = ({
    proposer,
    price,
    amount,
    nonce,
    deadline,
    signature,
  }: Awaited<ReturnType<typeof signed>>) => ({
    version,
    proposer,
    outcome: outcomeOf(price),
    max_payment: '0',
    permit: { amount, nonce, deadline },
    signature,
  })
  const peer = { address: '192.0.2.1' }
  const get = async (path: string) =>
    (
      await gateway.handle(new Request('http://gateway.test/'), {
        ...peer,
        target: path,
        method: 'GET',
      })
    ).json()
  const post = async (questionId: Hex, body: object) => {
    const request = new Request('http://gateway.test/', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const answer = await gateway.handle(request, {
      ...peer,
      target: `/v1/proposals/${questionId}`,
      method: 'POST',
    })
    return { httpStatus: answer.status, body: (await answer.json()) as Record<string, unknown> }
  }
  const one = {
    ledger,
    view,
    pipeline,
    gateway,
    executor,
    async turn() {
      monotonicMs += 2_000
      await view.poll()
      await pipeline.step()
    },
    async pass(blocks: number = 1) {
      for (let passed = 0; passed < blocks; passed += 1) {
        await still.mine()
        await one.turn()
      }
    },
    async submit(questionId: Hex, wish: ProposeWish = {}) {
      const payload = payloadOf(await signed(questionId, wish))
      const { httpStatus, body } = await post(questionId, payload)
      if (httpStatus !== 202) throw new Error(`not admitted: ${httpStatus} ${JSON.stringify(body)}`)
      return { id: String(body.candidate_id), questionId, payload }
    },
    async admit(questionId: Hex, wish: ProposeWish) {
      const made = await signed(questionId, wish)
      const { id } = await admit(ledger, made)
      return { id, questionId, payload: payloadOf(made) }
    },
    async replay({ questionId, payload }: Submitted) {
      const { httpStatus, body } = await post(questionId, payload)
      return { httpStatus, candidateId: body.candidate_id }
    },
    status: async ({ questionId, id }: Submitted) =>
      (await get(`/v1/proposals/${questionId}/status/${id}`)) as CandidateStatus,
    candidate: ({ id }: Submitted) => current(ledger, id),
    readyz: async () => (await get('/readyz')) as { ready: boolean; reasons: readonly string[] },
  }
  return one
}
