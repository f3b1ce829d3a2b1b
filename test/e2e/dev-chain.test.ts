import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, stat, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { implementationSlot, roundStates, yesOrNoQuery } from '../../src/core/chain/contracts.js'
import { anvilBinary } from '../../src/core/devchain/dev-anvil.js'
import { type DevChain, startDevChain } from '../../src/core/devchain/dev-chain.js'
import {
  type DevRpc,
  devAccount,
  devAddresses,
  devOracleVersion,
  devRpc,
  oracleContracts,
  placedAt,
  sendAsDev,
} from '../../src/core/devchain/dev-contracts.js'
import { writeDevFolder } from '../../src/core/devchain/dev-folder.js'
import { exampleQuestion, listedOutcomes } from '../../src/core/devchain/dev-questions.js'
import {
  askDevQuestion,
  changeQuestion,
  disputeProposal,
  fund,
  proposeDirectly,
  setBond,
  setWhitelist,
  showRound,
} from '../../src/core/devchain/dev-verbs.js'
import { parseConfig } from '../../src/core/gateway/config.js'
import type { Hex } from '../../src/core/ports.js'
import { callPropose } from '../support/dev-chain-propose.js'
import { unlimited } from '../support/dev-chain-vectors.js'

const root = fileURLToPath(new URL('../../', import.meta.url))

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

async function until(happened: () => Promise<boolean>): Promise<void> {
  while (!(await happened())) await new Promise((resolve) => setTimeout(resolve, 10))
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
    const many = Array.from({ length: 2000 }, (_, n) => exampleQuestion(n))
    expect(new Set(many.map((question) => question.slug)).size).toBe(2000)
    expect(new Set(many.map(({ text }) => text)).size).toBe(2000)
    for (const question of many) expect(question.slug).toMatch(/^[a-z0-9]+(-[a-z0-9]+)*$/)
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

  test.concurrent('domain §2.1: the executor proposes for a signer, and nobody else may', async () => {
    const signer = devAccount('proposer', 1)
    const call = await callPropose(chain, slug(0), signer)
    await expect(
      sendAsDev(rpc, [{ ...call, from: devAccount('outsider').address }]),
    ).rejects.toMatchObject({
      code: 'dev_chain_refused',
      detail: expect.stringContaining('AccessControlUnauthorizedAccount'),
    })
    await sendAsDev(rpc, [{ ...call, from: devAccount('executor').address }])
    expect(await showRound(chain.rpcUrl, slug(0))).toMatchObject({ state: roundStates.proposed })
  })

  test.concurrent('domain §5.1: the first dispute opens a new round, the second goes to the voters', async () => {
    const first = await showRound(chain.rpcUrl, slug(1))
    expect(await proposeDirectly(chain.rpcUrl, slug(1), 0n)).toEqual({
      ...first,
      state: roundStates.proposed,
    })
    const second = await disputeProposal(chain.rpcUrl, first.question_id)
    expect(second).toMatchObject({ question_id: first.question_id, state: roundStates.requested })
    expect(BigInt(second.timestamp)).toBeGreaterThan(BigInt(first.timestamp))
    expect(await questionOf(first.question_id)).toMatchObject({ reset: true, refund: false })
    await proposeDirectly(chain.rpcUrl, slug(1), 0n)
    expect(await disputeProposal(chain.rpcUrl, slug(1))).toEqual({
      ...second,
      state: roundStates.disputed,
    })
    expect(await questionOf(first.question_id)).toMatchObject({ reset: true, refund: true })
  })

  test.concurrent('domain §5.1: pausing and flagging change the question, not the round', async () => {
    const open = await showRound(chain.rpcUrl, slug(2))
    expect(await changeQuestion(chain.rpcUrl, slug(2), 'pause')).toEqual(open)
    expect(await questionOf(open.question_id)).toMatchObject({ paused: true })
    await changeQuestion(chain.rpcUrl, slug(2), 'unpause')
    expect(await questionOf(open.question_id)).toMatchObject({ paused: false })
    await changeQuestion(chain.rpcUrl, slug(2), 'flag')
    expect(await rpc.read(adapter(), 'isFlagged', [open.question_id])).toBe(true)
  })

  test.concurrent('domain §4: a custom bond is charged though isSet stays false', async () => {
    const { question_id } = await setBond(chain.rpcUrl, slug(3), 600_000_000n)
    const { ancillaryData } = await questionOf(question_id)
    const managed = await rpc.read(oracle(), 'getManagedRequestId', [
      devAddresses.adapter,
      yesOrNoQuery,
      ancillaryData,
    ])
    expect(await rpc.read(oracle(), 'customBonds', [managed, devAddresses.token])).toEqual([
      600_000_000n,
      false,
    ])
    const { timestamp } = await proposeDirectly(chain.rpcUrl, slug(3), 10n ** 18n)
    const key = [devAddresses.adapter, yesOrNoQuery, BigInt(timestamp), ancillaryData]
    expect(await rpc.read(oracle(), 'getRequest', key)).toMatchObject({
      requestSettings: { bond: 600_000_000n },
      finalFee: 250_000_000n,
    })
  })

  test.concurrent('domain §4: an empty custom whitelist stops proposals until it is taken away', async () => {
    await setWhitelist(chain.rpcUrl, slug(4), 'nobody')
    await expect(proposeDirectly(chain.rpcUrl, slug(4), 0n)).rejects.toMatchObject({
      code: 'dev_chain_refused',
      detail: expect.stringContaining('ProposerNotWhitelisted'),
    })
    await setWhitelist(chain.rpcUrl, slug(4), 'default')
    expect(await proposeDirectly(chain.rpcUrl, slug(4), 0n)).toMatchObject({
      state: roundStates.proposed,
    })
  })

  test.concurrent('new questions get the next example, or the slug and text given; a slug is taken once', async () => {
    const given = { slug: 'my-question', text: 'q: mine, res_data: p1: 0, p2: 1.' }
    expect(await askDevQuestion(chain.rpcUrl)).toMatchObject({
      slug: slug(14),
      outcomes: exampleQuestion(14).outcomes,
    })
    expect(await askDevQuestion(chain.rpcUrl, given)).toMatchObject({
      slug: 'my-question',
      outcomes: ['p1', 'p2'],
    })
    expect(await showRound(chain.rpcUrl, 'my-question')).toMatchObject({
      state: roundStates.requested,
    })
    await expect(askDevQuestion(chain.rpcUrl, given)).rejects.toMatchObject({
      code: 'dev_chain_refused',
      detail: expect.stringContaining('slug taken'),
    })
  })

  test.concurrent('fund gives tokens, and gas to a wallet that has none', async () => {
    const address = '0x00000000000000000000000000000000000000f1'
    expect(await fund(chain.rpcUrl, address, 5n)).toBe(5n)
    expect(BigInt(await rpc.request<Hex>('eth_getBalance', [address, 'latest']))).toBe(10n ** 18n)
  })

  test.concurrent('verbs say what is missing: the question, the chain, or a proposal to dispute', async () => {
    await expect(showRound(chain.rpcUrl, 'no-such-question')).rejects.toMatchObject({
      code: 'question_not_found',
    })
    await expect(showRound('http://127.0.0.1:1', slug(0))).rejects.toMatchObject({
      code: 'dev_chain_unreachable',
      meta: { exitCode: 75 },
    })
    await expect(disputeProposal(chain.rpcUrl, slug(5))).rejects.toMatchObject({
      detail: expect.stringContaining('RequestStateNotProposed'),
    })
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

  test('§6 --write: the folder holds configuration with relative paths, and keys nobody else can read', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'proposer-devfolder-'))
    try {
      const inner = join(folder, 'dev')
      const names = await writeDevFolder(inner, chain.description)
      expect((await readdir(inner)).sort()).toEqual([...names].sort())
      expect((await stat(inner)).mode & 0o777).toBe(0o700)
      for (const name of names) expect((await stat(join(inner, name))).mode & 0o777).toBe(0o600)
      const json = async (name: string) => JSON.parse(await readFile(join(inner, name), 'utf8'))
      expect(await json('trust.json')).toEqual(chain.description.trust)
      expect(await json('questions.json')).toHaveLength(14)
      const gateway = await json('gateway.json')
      const proposers = chain.description.accounts.filter(({ role }) => role === 'proposer')
      expect(() => parseConfig(gateway, 'gateway.json')).not.toThrow()
      expect(gateway).toMatchObject({
        store: './gateway-store',
        chain: {
          id: 31337,
          rpc_urls: [chain.rpcUrl],
          signed_proposer: devAddresses.signedProposer,
        },
        questions: './questions.json',
        admission: { allowlist: proposers.map(({ address }) => address) },
        executor: { key_file: './executor.key' },
      })
      expect(await readFile(join(inner, 'executor.key'), 'utf8')).toBe(
        `${devAccount('executor').private_key}\n`,
      )
      expect(await readFile(join(inner, 'proposer-2.key'), 'utf8')).toBe(
        `${devAccount('proposer', 1).private_key}\n`,
      )
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })
})

describe('contract §6: a dev chain ends', () => {
  let work: string
  let parentFile: string
  beforeAll(async () => {
    work = await mkdtemp(join(tmpdir(), 'proposer-parent-'))
    for (const name of ['fixtures', 'node_modules'])
      await symlink(join(root, name), join(work, name))
    parentFile = join(work, 'parent.mjs')
    await build({
      stdin: {
        contents: `import { startDevChain } from './src/core/devchain/dev-chain.js'
          const chain = await startDevChain({ questions: 1 })
          process.stdout.write(JSON.stringify({ pid: chain.pid, rpcUrl: chain.rpcUrl }) + '\\n')
          if (process.argv[2] === 'stop') await chain.stop()
          if (process.argv[2] === 'leave') process.exit(0)`,
        resolveDir: root,
      },
      outfile: parentFile,
      bundle: true,
      packages: 'external',
      platform: 'node',
      format: 'esm',
      logLevel: 'error',
    })
  })
  afterAll(() => rm(work, { recursive: true, force: true }))

  const temporary = () =>
    readdir(work).then((names) => names.filter((name) => name.startsWith('proposer-devchain-')))

  test.each([
    ['killed with SIGKILL', '', 'SIGKILL'],
    ['leaving without a word', 'leave', undefined],
    ['that stopped it', 'stop', undefined],
  ] as const)('a parent %s leaves no chain process and no folder', async (_, argument, signal) => {
    const parent = spawn(process.execPath, [parentFile, argument], {
      env: { PATH: process.env.PATH, TMPDIR: work },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const gone = once(parent, 'exit')
    const [line] = (await once(createInterface(parent.stdout), 'line')) as [string]
    const { pid } = JSON.parse(line) as { pid: number }
    if (signal !== undefined) {
      expect(await alive(pid)).toBe(true)
      expect(await temporary()).toHaveLength(1)
      parent.kill(signal)
    }
    await gone
    await until(async () => !(await alive(pid)) && (await temporary()).length === 0)
  })

  test('a chain process that is killed is noticed, and stop may be called again and again', async () => {
    const chain = await startDevChain({ questions: 0 })
    process.kill(chain.pid, 'SIGKILL')
    await chain.ended
    await chain.stop()
    await chain.stop()
    expect(await alive(chain.pid)).toBe(false)
  })
})
