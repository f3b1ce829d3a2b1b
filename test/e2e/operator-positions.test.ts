/**
 * What became of executed proposals (contract §9), of a gateway as a process: the metric, the
 * webhook and `operator positions` agree with what the oracle did.
 */
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { yesOrNoQuery } from '../../src/core/chain/contracts.js'
import {
  callData,
  contractOf,
  devAccount,
  devAddresses,
  devRpc,
  sendAsDev,
} from '../../src/core/devchain/dev-contracts.js'
import type { Hex } from '../../src/core/ports.js'
import { workshop } from '../support/processes.js'
import { makeClient, questionOf, type ServeReady } from '../support/proposing.js'

const shop = workshop()
const calls: { event: string; candidate: Record<string, unknown> }[] = []
const receiver = createServer((request, response) => {
  let text = ''
  request.on('data', (part) => {
    text += part
  })
  request.on('end', () => {
    calls.push(JSON.parse(text))
    response.writeHead(200).end()
  })
})
afterAll(async () => {
  await shop.clean()
  receiver.closeAllConnections()
  receiver.close()
})

test('contract §9: undisputed, won and lost are counted, told and listed, by the same proposals', async () => {
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve))
  const folder = join(await shop.folder(), 'dev')
  const chain = shop.start([
    'devchain',
    '--port',
    '0',
    '--questions',
    '4',
    '--write',
    folder,
    '--json',
  ])
  const { dev } = await chain.line<ServeReady>()
  const path = join(folder, 'gateway.json')
  await writeFile(join(folder, 'hook.secret'), 'the secret of a receiver\n', { mode: 0o600 })
  const { port } = receiver.address() as AddressInfo
  const hook = {
    url: `http://127.0.0.1:${port}/hook`,
    events: ['disputed'],
    secret_file: './hook.secret',
  }
  const hooks = `webhooks=${JSON.stringify([hook])}`
  const server = shop.start(['serve', '--config', path, '--port', '0', '--json', '--set', hooks])
  const { url, admin_url: adminUrl } = await server.line<ServeReady>()
  const client = await makeClient(shop, dev, { PROPOSER_GATEWAY: url })

  const rpc = devRpc(dev.rpc_url)
  const onOracle = (name: string, role: 'admin' | 'disputer', args: readonly unknown[]) => {
    const to = contractOf('oracle')
    const data = callData(to, name, args)
    return sendAsDev(rpc, [{ from: devAccount(role).address, to: to.address, data }])
  }
  const proposals: { id: string; round: readonly unknown[] }[] = []
  for (const n of [0, 1, 2, 3]) {
    const { question_id: questionId } = questionOf(dev, n)
    const { requestTimestamp, ancillaryData } = await rpc.read<{
      requestTimestamp: bigint
      ancillaryData: Hex
    }>(contractOf('adapter'), 'getQuestion', [questionId])
    const { code, answer } = await client.ask('submit', questionId, '--outcome', 'p2', '--wait')
    expect(code).toBe(0)
    const round = [devAddresses.adapter, yesOrNoQuery, requestTimestamp, ancillaryData]
    proposals.push({ id: String(answer.candidate_id), round })
  }
  const [calm, won, lost, open] = proposals.map(({ round }) => round)
  if (!calm || !won || !lost || !open) throw new Error('four were proposed')
  for (const round of [won, lost]) await onOracle('disputePrice', 'disputer', round)
  await onOracle('pushPrice', 'admin', [...won, 10n ** 18n])
  await onOracle('pushPrice', 'admin', [...lost, 0n])
  await rpc.request('evm_increaseTime', [8_000])
  await rpc.request('evm_mine', [])
  for (const round of [calm, won, lost]) await onOracle('settle', 'admin', round)

  const metric = /^proposer_proposals_settled_total\{outcome="(\w+)"\} (\d+)$/gm
  const counts = async () => {
    const text = await (await fetch(`${adminUrl}/metrics`)).text()
    return Object.fromEntries(
      [...text.matchAll(metric)].map(([, outcome, count]) => [outcome, count]),
    )
  }
  const wanted = { undisputed: '1', won: '1', lost: '1' }
  for (let tries = 0; tries < 100; tries += 1) {
    if (Object.values(await counts()).every((count) => count === '1') && calls.length === 2) break
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  expect(await counts()).toEqual(wanted)
  // Calls that are open at once arrive in any order (docs/operating.md).
  const told = calls.map(({ event, candidate }) => [event, candidate.candidate_id])
  expect(told.sort()).toEqual(
    [proposals[1], proposals[2]].map((one) => ['disputed', one?.id]).sort(),
  )

  // While the gateway serves, and from its store alone.
  for (const served of [true, false]) {
    if (!served) expect((await server.stop()).code).toBe(0)
    const { code, stdout, stderr } = await shop.run([
      'operator',
      'positions',
      '--config',
      path,
      '--json',
    ])
    expect([code, stderr]).toEqual([0, ''])
    expect(JSON.parse(stdout)).toMatchObject({
      schema: 'proposer.operator-positions/1',
      fault: null,
      proposers: [
        {
          proposer: client.proposer,
          ...{ executed: 4, open: 1, undisputed: 1, disputed: 2, won: 1, lost: 1, unknown: 0 },
          disputed_share: 0.5,
          advice: expect.stringContaining('disputed 2 of 4: 1 lost, 1 won; see its line in'),
          allowlist: { allowed: true },
        },
      ],
    })
  }
}, 180_000)
