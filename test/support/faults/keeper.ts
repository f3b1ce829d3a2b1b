import { decodeAbiParameters, keccak256 } from 'viem'
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { topics } from '#chain/contracts'
import type { DevDescription } from '#devchain/dev-chain'
import { devAccount, devBondRaw, devFinalFeeRaw, devRpc } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { CandidateStatus, TypedData } from '#protocol/schema'
import { version } from '#protocol/words'
import type { Running } from '../processes.js'
import { post, type ServeReady } from '../proposing.js'

export type Keeper = ReturnType<typeof keepAlive>

export function keepAlive(serve: () => Running) {
  let current: Running
  let url: Promise<string | undefined> = Promise.resolve(undefined)
  let kills = 0
  let isStopping = false
  let fault: unknown
  const run = async () => {
    while (!isStopping) {
      current = serve()
      url = current.line<ServeReady>().then(
        (ready) => ready.url,
        () => undefined,
      )
      const { signal, stderr } = await current.ended
      if (signal === 'SIGKILL') kills += 1
      else if (!isStopping) throw new Error(`the gateway ended by itself: ${stderr.slice(-2_000)}`)
    }
  }
  const running = run().catch((error: unknown) => {
    fault = error
  })
  return {
    get kills() {
      return kills
    },
    kill: () => void current.child.kill('SIGKILL'),
    async answered<T extends object | string | boolean>(
      ask: (url: string) => Promise<T | undefined>,
    ) {
      for (;;) {
        if (fault !== undefined) throw fault
        const at = await url
        const answer =
          at === undefined
            ? undefined
            : await ask(at).catch((error: unknown) => {
                if (!(error instanceof TypeError)) throw error
              })
        if (answer !== undefined) return answer
        await new Promise((resolve) => setTimeout(resolve, 200))
      }
    },
    async stop() {
      isStopping = true
      await current.stop()
      await running
      if (fault !== undefined) throw fault
    },
  }
}

export interface Submitted {
  readonly id: string
  readonly questionId: string
}

export async function submitTo(
  keeper: Keeper,
  questionId: string,
  n: number,
  nonce: number,
): Promise<Submitted> {
  const proposer = devAccount('proposer', n)
  const amount = String(devBondRaw + devFinalFeeRaw)
  const deadline = String(Math.floor(Date.now() / 1000) + 3_600)
  const permit = { amount, nonce: String(nonce), deadline }
  const body = { version, proposer: proposer.address, outcome: 'p2', max_payment: '0', permit }
  const { domain, types, primaryType, message } = await keeper.answered(async (url) => {
    const answer = await post(url, `/v1/proposals/${questionId}/signing-data`, body)
    return answer.body.typed_data as TypedData | undefined
  })
  const typed = {
    domain: { ...domain, chainId: BigInt(domain.chainId) },
    types,
    primaryType,
    message,
  }
  const account = privateKeyToAccount(proposer.private_key)
  const signature = await account.signTypedData(
    typed as unknown as Parameters<PrivateKeyAccount['signTypedData']>[0],
  )
  const id = await keeper.answered(async (url) => {
    const answer = await post(url, `/v1/proposals/${questionId}`, { ...body, signature })
    if (![200, 202, 503].includes(answer.status)) expect(answer).toMatchObject({ status: 202 })
    return answer.body.candidate_id as string | undefined
  })
  return { id, questionId }
}

export async function statusOf(
  url: string,
  { questionId, id }: Submitted,
): Promise<CandidateStatus | undefined> {
  const answer = await fetch(`${url}/v1/proposals/${questionId}/status/${id}`)
  return answer.status === 200 ? ((await answer.json()) as CandidateStatus) : undefined
}

export async function transactionsOf(
  dev: DevDescription,
  address: string,
): Promise<readonly string[]> {
  const rpc = devRpc(dev.rpc_url)
  const head = Number(await rpc.request<Hex>('eth_blockNumber', []))
  const calls = Array.from({ length: head }, (_, index) => ({
    method: 'eth_getBlockByNumber',
    params: [`0x${(index + 1).toString(16)}`, true],
  }))
  const blocks = (await rpc.batch(calls)) as {
    transactions: { hash: string; from: string; to: string | null; input: string }[]
  }[]
  const found = blocks
    .flatMap(({ transactions }) => transactions)
    .filter(({ from }) => from === address)
  return found.map(
    ({ hash, to, input }) => `${hash} ${to === address ? 'to itself' : input.slice(0, 10)}`,
  )
}

export async function expectOneEach(
  dev: DevDescription,
  keeper: Keeper,
  candidates: readonly Submitted[],
  executor: string,
  before: readonly string[],
): Promise<void> {
  const filter = {
    address: dev.trust.oracles,
    topics: [topics.proposePrice],
    fromBlock: '0x0',
    toBlock: 'latest',
  }
  const logs = await devRpc(dev.rpc_url).request<
    readonly { data: Hex; transactionHash: Hex; logIndex: Hex }[]
  >('eth_getLogs', [filter])
  const hashes = new Set<string>()
  for (const candidate of candidates) {
    const { candidate_id, status, submission } = await keeper.answered((url) =>
      statusOf(url, candidate),
    )
    expect({ candidate_id, status, submission: submission?.status }).toEqual({
      candidate_id: candidate.id,
      status: 'executed',
      submission: 'indexed',
    })
    const found = logs.filter(({ data }) => questionOfLog(data) === candidate.questionId)
    expect(
      found.map(({ transactionHash, logIndex }) => [transactionHash, Number(logIndex)]),
    ).toEqual([[submission?.transaction_hash, submission?.proposal_event_index]])
    hashes.add(submission?.transaction_hash ?? '')
  }
  const others = (await transactionsOf(dev, executor)).filter(
    (one) => !before.includes(one) && !hashes.has(one.slice(0, 66)),
  )
  expect(others, 'no transaction but those').toEqual([])
}

function questionOfLog(data: Hex): Hex {
  const [, , ancillaryData] = decodeAbiParameters(
    [
      { type: 'bytes32' },
      { type: 'uint256' },
      { type: 'bytes' },
      { type: 'int256' },
      { type: 'uint256' },
      { type: 'address' },
    ],
    data,
  )
  return keccak256(ancillaryData)
}
