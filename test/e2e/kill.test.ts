import { readdir, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { join } from 'node:path'
import { keccak256, stringToHex } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { DevDescription } from '#devchain/dev-chain'
import {
  callData,
  devAccount,
  devAddresses,
  devRpc,
  placedAt,
  sendAsDev,
} from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import { argvOf } from '#support/argv'
import {
  expectOneEach,
  type Keeper,
  keepAlive,
  statusOf,
  submitTo,
  transactionsOf,
} from '#support/faults/keeper'
import { type Running, workshop } from '#support/processes'
import {
  type Client,
  executorTransactions,
  makeClient,
  post,
  proposals,
  questionOf,
  type ServeReady,
  type untilExecuted,
} from '#support/proposing'

/** R1–R3, R15, R23: the gateway is killed where it hurts, and nothing is lost or doubled. */
const shop = workshop()
let dev: DevDescription
let folder: string
const killQuestions = 4
beforeAll(async () => {
  folder = join(await shop.folder(), 'dev')
  const chain = shop.start(argvOf`devchain --port 0 --questions 50 --write ${folder} --json`)
  dev = (await chain.line<ServeReady>()).dev
})
afterAll(() => shop.clean())

function serve(
  store: string,
  options: { failpoint?: string; set?: readonly string[] } = {},
): Running {
  const env = options.failpoint === undefined ? {} : { FAILPOINT: options.failpoint }
  const sets = [`store=./store-${store}`, ...(options.set ?? [])].flatMap((assignment) => [
    '--set',
    assignment,
  ])
  return shop.start(
    argvOf`serve --config ${join(folder, 'gateway.json')} --port 0 --json ${sets}`,
    {
      env,
    },
  )
}

const clientOf = (url: string): Promise<Client> => makeClient(shop, dev, { PROPOSER_GATEWAY: url })

describe('a gateway killed by SIGKILL after its 202', () => {
  test('R1: after the 202 the candidate is there with the same id, and is executed', async () => {
    const { slug, question_id } = questionOf(dev, 0)
    const before = await executorTransactions(dev)
    const first = serve('acknowledged', { set: ['pipeline.enabled=false'] })
    const { url } = await first.line<ServeReady>()
    const client = await clientOf(url)
    const signed = await client.ask('sign', slug, '--outcome', 'p2')
    const submitted = await post(url, `/v1/proposals/${question_id}`, signed.answer.payload)
    expect(submitted.status).toBe(202)
    await first.stop('SIGKILL')

    const second = serve('acknowledged')
    const again = await second.line<ServeReady>()
    expect(second.stderr()).toMatch(/"code":"lock_left_behind","detail":"process \d+ on /)
    const left = await readdir(join(folder, 'store-acknowledged'))
    expect(left.filter((name) => name.startsWith('s.'))).toHaveLength(1)
    const replayed = await post(again.url, `/v1/proposals/${question_id}`, signed.answer.payload)
    expect(replayed).toMatchObject({
      status: 200,
      body: { candidate_id: submitted.body.candidate_id },
    })
    await expectOnce(again.url, question_id, String(submitted.body.candidate_id), before)
    await second.stop()
  })

  async function expectOnce(
    url: string,
    questionId: string,
    candidateId: string,
    before: number,
  ): Promise<void> {
    const client = await clientOf(url)
    const status = await untilExecutedOf(client, questionId, candidateId)
    expect(status).toMatchObject({
      status: 'executed',
      candidate_id: candidateId,
      submission: { status: 'indexed' },
    })
    expect(await executorTransactions(dev)).toBe(before + 1)
    const logs = (await proposals(dev, client.proposer)).filter(
      (log) => log.transactionHash === status.submission?.transaction_hash,
    )
    expect(logs.map(({ logIndex }) => Number(logIndex))).toEqual([
      status.submission?.proposal_event_index,
    ])
  }

  async function untilExecutedOf(client: Client, questionId: string, candidateId: string) {
    const answered = async () => {
      const { answer } = await client.ask('status', candidateId, '--question', questionId)
      const [status] = (answer.candidates ?? []) as Awaited<ReturnType<typeof untilExecuted>>[]
      return status
    }
    await expect
      .poll(async () => (await answered())?.status, { timeout: 60_000, interval: 500 })
      .toBe('executed')
    const status = await answered()
    if (!status) throw new Error('no status')
    return status
  }
})

const rounds = 3
const together = 3

describe('R3, R15, R23: a gateway killed by SIGKILL at each step of the executor, three times, with three candidates at once', () => {
  test.concurrent.each([
    ['selected', 0],
    ['reserved', 1],
    ['prepared', 2],
    ['sent', 3],
    ['confirmed', 4],
  ])(
    'at "%s": after a restart it goes on, one transaction and one event a round, under the same ids',
    async (failpoint, n) => {
      const executor = await newExecutor(n)
      const keeper = keep(failpoint, executor)
      for (let round = 0; round < rounds; round += 1) {
        const chosen = Array.from({ length: together }, (_, index) =>
          questionOf(dev, killQuestions + (n * rounds + round) * together + index),
        )
        const before = await transactionsOf(dev, executor.address)
        const killsBefore = keeper.kills
        const candidates = await Promise.all(
          chosen.map(({ question_id }, index) =>
            submitTo(keeper, question_id, n % 4, n * 256 + round * together + index),
          ),
        )
        for (const candidate of candidates)
          await keeper.answered(async (url) =>
            (await statusOf(url, candidate))?.status === 'executed' ? true : undefined,
          )
        expect(keeper.kills, `round ${round}`).toBeGreaterThan(killsBefore)
        await expectOneEach(dev, keeper, candidates, executor.address, before)
      }
      await keeper.stop()
    },
    180_000,
  )

  interface Executor {
    readonly address: string
    readonly keyFile: string
  }

  /**
   * Gateways of several stores cannot share an executor: each point has its own, with the role and
   * funds.
   */
  async function newExecutor(n: number): Promise<Executor> {
    const privateKey = keccak256(stringToHex(`killed executor ${n}`))
    const address = privateKeyToAddress(privateKey).toLowerCase() as Hex
    const keyFile = join(folder, `killed-${n}.key`)
    await writeFile(keyFile, `${privateKey}\n`, { mode: 0o600 })
    const rpc = devRpc(dev.rpc_url)
    await rpc.request('anvil_setBalance', [address, '0x56bc75e2d63100000'])
    const signedProposer = placedAt('SignedProposer', devAddresses.signedProposer)
    const data = callData(signedProposer, 'addDelegatedProposer', [address])
    await sendAsDev(rpc, [{ from: devAccount('admin').address, to: signedProposer.address, data }])
    return { address, keyFile }
  }

  function keep(failpoint: string, { keyFile }: Executor): Keeper {
    const set = [
      `executor.key_file=${keyFile}`,
      'budget.per_ip_items=100000',
      'budget.global_items=100000',
    ]
    return keepAlive(() => serve(`killed-${failpoint}`, { failpoint, set }))
  }
})

describe('a lost acknowledgement', () => {
  let proxy: Server
  let origin: string
  let gateway: Running
  let lose = true
  const admitted: string[] = []

  beforeAll(async () => {
    gateway = serve('lost')
    const { url } = await gateway.line<ServeReady>()
    proxy = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('end', async () => {
        const body = Buffer.concat(chunks)
        const isAdmission =
          request.method === 'POST' && /^\/v1\/proposals\/[^/]+$/.test(request.url ?? '')
        const answer = await fetch(`${url}${request.url}`, {
          method: request.method ?? 'GET',
          headers: { 'content-type': request.headers['content-type'] ?? 'application/json' },
          ...(body.length > 0 ? { body } : {}),
        })
        const text = await answer.text()
        if (isAdmission) admitted.push((JSON.parse(text) as { candidate_id: string }).candidate_id)
        if (isAdmission && lose) request.socket.destroy()
        else response.writeHead(answer.status, { 'content-type': 'application/json' }).end(text)
      })
    })
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
    const address = proxy.address()
    if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
    origin = `http://127.0.0.1:${address.port}`
  })
  afterAll(async () => {
    proxy.closeAllConnections()
    await new Promise((resolve) => proxy.close(resolve))
    await gateway.stop()
  })

  test('R7: exit 6, the journal says unknown, and replay ends it with the candidate that was admitted', async () => {
    const client = await clientOf(origin)
    const { slug } = questionOf(dev, 1)
    const submitted = await client.ask('submit', slug, '--outcome', 'p2', '--timeout', '4')
    expect(submitted).toMatchObject({
      code: 6,
      answer: { exit_code: 6, hint: expect.stringContaining('proposer replay') },
    })
    const listed = await client.ask('journal', 'list')
    expect(listed.answer.authorizations).toMatchObject([{ state: 'unknown' }])

    lose = false
    const replayed = await client.ask('replay', '--all')
    expect(replayed.code, replayed.ended.stderr).toBe(0)
    const after = await client.ask('journal', 'list')
    expect(after.answer.authorizations).toMatchObject([{ candidate_id: admitted[0] }])
    expect(new Set(admitted).size).toBe(1)
  })
})
