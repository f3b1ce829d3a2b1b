import { privateKeyToAccount } from 'viem/accounts'
import { argvOf } from '#support/argv'
import { type Ended, workshop } from '#support/processes'
import { post, type ServeReady } from '#support/proposing'

/**
 * A process of its own: what this guards against is a loop that would take the test down with it.
 */
const shop = workshop()

const version = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }

test('R17: replays of a retryable failure beside rivals of the same round never stop the gateway', async () => {
  const gateway = shop.start(argvOf`serve --dev --port 0 --json --questions 1 --set
    budget.per_ip_items=100000 --set budget.global_items=100000`)
  const { url, dev } = await gateway.line<ServeReady>()
  const question = dev.questions[0]?.question_id
  const key = dev.accounts.find(({ role }) => role === 'proposer')?.private_key
  if (question === undefined || key === undefined)
    throw new Error('the dev chain has no question or no proposer')
  const account = privateKeyToAccount(key)
  const deadline = String(Math.floor(Date.now() / 1000) + 3_600)
  const signed = async (nonce: number) => {
    const permit = { amount: `1${'0'.repeat(30)}`, nonce: String(nonce), deadline }
    const body = {
      version,
      proposer: account.address.toLowerCase(),
      outcome: 'p2',
      max_payment: '0',
      permit,
    }
    const { body: answer } = await post(url, `/v1/proposals/${question}/signing-data`, body)
    return {
      ...body,
      signature: await account.signTypedData(
        answer.typed_data as Parameters<typeof account.signTypedData>[0],
      ),
    }
  }
  const [one, other] = await Promise.all([signed(1), signed(2)])
  const send = (body: object) => post(url, `/v1/proposals/${question}`, body)
  const admitted = await send(one)
  expect(admitted.status).toBe(202)
  const failed = async (id: unknown) => {
    const status = await fetch(`${url}/v1/proposals/${question}/status/${id}`)
    return ((await status.json()) as { status: string }).status === 'failed'
  }
  const ids = new Set<unknown>([admitted.body.candidate_id])
  for (let round = 0; round < 60; round += 1) {
    for (const id of ids)
      await expect.poll(() => failed(id), { interval: 5, timeout: 10_000 }).toBe(true)
    const answers = await Promise.all([
      send(round % 2 === 0 ? one : other),
      new Promise((resolve) => setTimeout(resolve, round % 5)).then(() =>
        send(round % 2 === 0 ? other : one),
      ),
    ])
    for (const { status, body } of answers) {
      expect([200, 202, 409]).toContain(status)
      if (status === 202) ids.add(body.candidate_id)
    }
  }
  const stopped: Ended = await gateway.stop()
  expect(stopped.code).toBe(0)
})
