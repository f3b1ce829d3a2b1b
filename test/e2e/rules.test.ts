/**
 * Clarifications and findings on anvil: what is posted between context and signing, by whom, on
 * both versions of the oracle, and what a disputed round leaves behind (contract §9, domain §10).
 */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringToHex } from 'viem'
import { proposerOn } from '#bot/open-proposer'
import { RulesChangedError } from '#client/propose/intent'
import type { Trust } from '#client/trust/trust'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import {
  callData,
  contractOf,
  type DevTransaction,
  devAccount,
  devAddresses,
  devRpc,
  placedAt,
  sendAsDev,
} from '#devchain/dev-contracts'
import { disputeProposal, proposeDirectly } from '#devchain/dev-verbs'
import { systemClock } from '#io/clock'
import { signerFromKey } from '#io/keys'
import { createChain } from '#io/rpc/rpc'
import { systemPorts } from '#io/system'
import type { Address } from '#protocol/schema'
import { run } from '#support/cli'
import { temporaryFolder } from '#support/folders'

let home: string
let dev: DevChain
let chain: ReturnType<typeof createChain>
beforeAll(async () => {
  home = temporaryFolder()
  dev = await startDevChain({ questions: 8, proposers: 1 })
  chain = createChain([dev.rpcUrl])
  await mkdir(join(home, 'trust'))
  await writeFile(join(home, 'trust', 'default.json'), JSON.stringify(dev.description.trust))
  const key = devAccount('proposer').private_key
  await writeFile(join(home, 'key'), `${key}\n`, { mode: 0o600 })
  for (const contract of [devAddresses.registry, devAddresses.adapter]) {
    await devRpc(dev.rpcUrl).request('anvil_setBalance', [contract, '0xde0b6b3a7640000'])
    await devRpc(dev.rpcUrl).request('anvil_impersonateAccount', [contract])
  }
})
afterAll(async () => {
  await chain.close()
  await dev.stop()
})

const questionAt = (n: number) => {
  const found = dev.description.questions[n]
  if (found === undefined) throw new Error(`no question ${n}`)
  return found
}
const sends = (from: Address, to: Address, data: DevTransaction['data']) =>
  sendAsDev(devRpc(dev.rpcUrl), [{ from, to, data }])
const clarify = (n: number, text: string, from: Address = devAddresses.registry) => {
  const adapter = contractOf('adapter')
  const args = [questionAt(n).question_id, stringToHex(text)]
  return sends(from, adapter.address, callData(adapter, 'postUpdate', args))
}

async function cli(...argv: string[]) {
  const ran = await run(home, [...argv, '--json'], {
    env: { PROPOSER_KEY_FILE: join(home, 'key'), PROPOSER_RPC_URL: dev.rpcUrl },
    chain,
    clock: systemClock,
  })
  const last = ran.stderr.trim().split('\n').at(-1) ?? ''
  const error = last.startsWith('{') ? JSON.parse(last).error : undefined
  return { ...ran, error, answer: ran.stdout === '' ? undefined : JSON.parse(ran.stdout) }
}
const rulesOf = async (n: number) =>
  (await cli('context', questionAt(n).slug)).answer.questions[0].rules

describe('a clarification on a real node', () => {
  test('openProposer throws a RulesChangedError with the text, and signs once it is acknowledged', async () => {
    const { question_id: identifier } = questionAt(1)
    const { hash } = await rulesOf(1)
    await clarify(1, 'Only the final counts.')
    const folder = join(home, 'bot')
    const submitted: string[] = []
    await using proposer = await proposerOn(systemPorts(), {
      home: folder,
      gateway: 'http://127.0.0.1:9',
      rpcUrl: dev.rpcUrl,
      trust: dev.description.trust as unknown as Trust,
      signer: signerFromKey(Buffer.from(devAccount('proposer').private_key.slice(2), 'hex')),
      fetch: async (input) => {
        submitted.push(String(input instanceof Request ? input.url : input))
        return new Response('busy', { status: 503 })
      },
    })
    const failure = await proposer.submit({ identifier, outcome: 'p2', rulesSeen: hash }).then(
      () => undefined,
      (error: unknown) => error,
    )
    if (!(failure instanceof RulesChangedError)) throw failure ?? new Error('it was signed')
    expect(failure.newer.map(({ text }) => text)).toEqual(['Only the final counts.'])
    expect([failure.meta.exitCode, submitted]).toEqual([2, []])
    await expect(
      proposer.submit(
        { identifier, outcome: 'p2', rulesSeen: failure.rules.hash },
        { timeoutMs: 300 },
      ),
    ).rejects.not.toBeInstanceOf(RulesChangedError)
    expect(submitted.length).toBeGreaterThan(0)
  })

  test('check: a disputed round, by whom, and the round that followed', async () => {
    const { slug } = questionAt(2)
    await proposeDirectly(dev.rpcUrl, slug, 10n ** 18n)
    await disputeProposal(dev.rpcUrl, slug)
    const findings = async (outcome: string) =>
      Object.fromEntries(
        (await cli('check', slug, '--outcome', outcome)).answer.findings.map(
          (one: { id: string }) => [one.id, one],
        ),
      )
    const { earlier_round, reopened, liveness, event_ended, reward } = await findings('p2')
    expect([earlier_round.result, reopened.result, liveness.result, event_ended.result]).toEqual([
      'warn',
      'warn',
      'ok',
      'unknown',
    ])
    expect(earlier_round.detail).toContain(`${devAccount('rival').address} answered p2`)
    expect(earlier_round.detail).toContain(devAccount('disputer').address)
    expect(reward.source).toBe('chain')
    expect((await findings('p1')).earlier_round.result).toBe('ok')
    expect((await findings('p1')).reopened.result).toBe('warn')
    const first = (await cli('check', questionAt(3).slug)).answer
    expect(first.findings.find(({ id }: { id: string }) => id === 'earlier_round').result).toBe(
      'ok',
    )
  })

  test('version 3 of the oracle: its rule updates count beside those of the creator', async () => {
    await clarify(4, 'By the creator.')
    const before = await rulesOf(4)
    const rpc = devRpc(dev.rpcUrl)
    const next = `0x${'c0de'.repeat(10)}` as const
    const oracle = placedAt('ManagedOracleV3', devAddresses.oracle)
    await rpc.request('anvil_setCode', [next, oracle.artifact.code])
    await sends(
      devAccount('admin').address,
      oracle.address,
      callData(oracle, 'upgradeToAndCall', [next, '0x']),
    )
    expect(await rulesOf(4)).toEqual(before)
    const { request } = (await cli('context', questionAt(4).slug)).answer.questions[0]
    await sends(
      devAddresses.adapter,
      oracle.address,
      callData(oracle, 'updateRequestRules', [
        request.identifier.raw,
        request.ancillary_data,
        stringToHex('By the requester.'),
      ]),
    )
    const { updates } = await rulesOf(4)
    expect(updates.map(({ text }: { text: string }) => text)).toEqual([
      'By the creator.',
      'By the requester.',
    ])
    expect(updates[0].hash).toBe(before.hash)
  })
})
