import { readFile } from 'node:fs/promises'
import { implementationSlot, roundStates, yesOrNoQuery } from '#chain/contracts'
import { anvilBinary } from '#devchain/dev-anvil'
import { exampleQuestion, listedOutcomes } from '#devchain/dev-artifacts'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import {
  type DevRpc,
  devAddresses,
  devOracleVersion,
  devRpc,
  oracleContracts,
  placedAt,
} from '#devchain/dev-contracts'
import { askDevQuestion, fund, showRound } from '#devchain/dev-verbs'
import type { Hex } from '#ports'
import { unlimited } from '#support/dev-chain-vectors'

/** Whether a process is there. A zombie counts as gone: nobody may be there to collect it. */
async function alive(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  try {
    return !/^State:\s+Z/m.test(await readFile(`/proc/${pid}/status`, 'utf8'))
  } catch {
    // No /proc on this system, or the process went in between: the signal above has said what can
    // be known.
    return process.platform !== 'linux'
  }
}

describe('contract §6, §8: a dev chain', () => {
  let chain: DevChain
  let rpc: DevRpc
  const token = () => placedAt('Token', devAddresses.token)
  const oracle = () => placedAt('ManagedOracle', devAddresses.oracle)
  const adapter = () => placedAt('CtfAdapter', devAddresses.adapter)
  beforeAll(async () => {
    chain = await startDevChain({ questions: 14, proposers: 2 })
    rpc = devRpc(chain.rpcUrl)
  })
  afterAll(() => chain?.stop())

  const questionOf = (id: Hex) =>
    rpc.read<Record<string, unknown> & { requestTimestamp: bigint; ancillaryData: Hex }>(
      adapter(),
      'getQuestion',
      [id],
    )
  const slug = (n: number): string => exampleQuestion(n).slug

  test('§6: every listed question is open, unproposed and known by its slug and by the hash of its text', async () => {
    const { questions, trust } = chain.description
    expect(questions).toHaveLength(14)
    for (const [n, question] of questions.entries()) {
      expect(question).toEqual({
        question_id: trust.slugs[slug(n)],
        slug: slug(n),
        outcomes: exampleQuestion(n).outcomes,
      })
      expect(question.outcomes).toEqual(expect.arrayContaining(['p1', 'p2']))
      expect(await showRound(chain.rpcUrl, question.slug)).toMatchObject({
        question_id: question.question_id,
        state: roundStates.requested,
      })
      const { requestTimestamp, ancillaryData, paused } = await questionOf(question.question_id)
      const request = await rpc.read<{
        proposer: string
        requestSettings: { bond: bigint; eventBased: boolean }
        finalFee: bigint
      }>(
        ...([
          oracle(),
          'getRequest',
          [devAddresses.adapter, yesOrNoQuery, requestTimestamp, ancillaryData],
        ] as const),
      )
      expect(BigInt(request.proposer)).toBe(0n)
      expect(request.requestSettings).toMatchObject({ bond: 500_000_000n, eventBased: true })
      expect(request.finalFee).toBe(250_000_000n)
      expect(paused).toBe(false)
    }
  })

  test('domain §5.3: texts are as long and as varied as real ones', () => {
    const texts = chain.description.questions.map((_, n) => exampleQuestion(n))
    for (const { text, outcomes } of texts) {
      expect(Buffer.byteLength(text)).toBeGreaterThan(950)
      expect(Buffer.byteLength(text)).toBeLessThan(1400)
      expect(listedOutcomes(text)).toEqual(outcomes)
    }
    expect(new Set(texts.map(({ outcomes }) => outcomes.length))).toEqual(new Set([2, 3]))
    expect(texts.some(({ text }) => text.includes('p2 to Atlético do Porto'))).toBe(true)
  })

  test('§6: proposers hold twice the sum of all bonds and have approved Permit2 without limit', async () => {
    const proposers = chain.description.accounts.filter(({ role }) => role === 'proposer')
    expect(proposers).toHaveLength(2)
    for (const { address } of proposers) {
      expect(await rpc.read<bigint>(token(), 'balanceOf', [address])).toBeGreaterThanOrEqual(
        2n * 14n * 750_000_000n,
      )
      expect(await rpc.read<bigint>(token(), 'allowance', [address, devAddresses.permit2])).toBe(
        unlimited,
      )
    }
  })

  test("§8: what was set up is finalized, the head does not run ahead of the clock, and blocks are as large as Polygon's", async () => {
    const [head, finalized, code] = (await rpc.batch([
      { method: 'eth_getBlockByNumber', params: ['latest', false] },
      { method: 'eth_getBlockByNumber', params: ['finalized', false] },
      { method: 'eth_getCode', params: [devAddresses.signedProposer, 'finalized'] },
    ])) as [{ timestamp: Hex }, { number: Hex }, Hex]
    const pending = await rpc.request<{ gasLimit: Hex }>('eth_getBlockByNumber', ['pending', false])
    expect(Number(pending.gasLimit)).toBe(60_000_000)
    expect(Number(head.timestamp)).toBeLessThanOrEqual(Math.floor(Date.now() / 1000) + 2)
    expect(Number(finalized.number)).toBeGreaterThanOrEqual(1)
    expect(code).toBe(placedAt('SignedProposer', devAddresses.signedProposer).artifact.code)
  })

  test('domain §10: oracle and token are ERC-1967 proxies, so that an upgrade can be noticed', async () => {
    for (const [name, address] of [
      [oracleContracts[devOracleVersion()], devAddresses.oracle],
      ['Token', devAddresses.token],
    ] as const) {
      const slot = [address, implementationSlot, 'finalized']
      const word = await rpc.request<Hex>('eth_getStorageAt', slot)
      const code = (of: string) => rpc.request<Hex>('eth_getCode', [of, 'finalized'])
      expect(await code(`0x${word.slice(26)}`)).toBe(placedAt(name, address).artifact.code)
      expect(await code(address)).toBe(placedAt('Proxy', address).artifact.code)
    }
  })

  test.concurrent('a new question without a slug is the next example', async () => {
    expect(await askDevQuestion(chain.rpcUrl)).toMatchObject({
      slug: slug(14),
      outcomes: exampleQuestion(14).outcomes,
    })
  })

  test.concurrent('fund gives tokens, and gas to a wallet that has none', async () => {
    const address = '0x00000000000000000000000000000000000000f1'
    expect(await fund(chain.rpcUrl, address, 5n)).toBe(5n)
    expect(BigInt(await rpc.request<Hex>('eth_getBalance', [address, 'latest']))).toBe(10n ** 18n)
  })

  test('a taken port, a wrong number and a missing binary are usage errors', async () => {
    await expect(startDevChain({ port: Number(new URL(chain.rpcUrl).port) })).rejects.toMatchObject(
      {
        code: 'port_in_use',
        meta: { exitCode: 2 },
      },
    )
    await expect(startDevChain({ questions: -1 })).rejects.toMatchObject({ code: 'invalid_option' })
    expect(() => anvilBinary('linux', 'mips')).toThrow(
      expect.objectContaining({ code: 'anvil_missing' }),
    )
  })
})

test('contract §6: a chain process that is killed is noticed, and stop may be called again and again', async () => {
  const chain = await startDevChain({ questions: 0 })
  process.kill(chain.pid, 'SIGKILL')
  await chain.ended
  await chain.stop()
  await chain.stop()
  expect(await alive(chain.pid)).toBe(false)
})
