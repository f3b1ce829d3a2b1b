import { chmod, mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { checkNodes } from '#checks/chain'
import { checkStore, type StoreToCheck, spaceFindings } from '#checks/store'
import { parseConfig } from '#gateway/config'
import type { Change } from '#gateway/ledger/ledger'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { pastedCommand, seenFile } from '#host/config-file'
import { openHostedGateway } from '#host/gateway-host'
import { freeBytes } from '#io/probes'
import { openLog } from '#storage/log'
import { fakeContext, run } from '#support/cli'
import { gatewayFile } from '#support/desk'
import { createFakeChain, createFakeClock, type FakeChain } from '#support/fake-chain'
import { temporaryFolder } from '#support/folders'

const address = (digit: string) => `0x${digit.repeat(40)}` as const
const word = (digit: string) => `0x${digit.repeat(64)}` as const
const file = gatewayFile({ store: './store', questions: './questions.json' })
type Around = Omit<StoreToCheck, 'place' | 'seenFile' | 'command'>
const nothing: Around = {
  settings: { chainId: 31337, genesisHash: undefined, allowlist: [], admissionEnabled: true },
  head: undefined,
  questions: undefined,
  executor: undefined,
}
const head = (number: bigint) => ({
  number,
  hash: word('1'),
  parentHash: word('2'),
  timestamp: 1_700_000_000n,
  baseFeePerGas: 1n,
})
const slugged = [
  { questionId: word('3'), slug: 'rain' },
  { questionId: word('4'), slug: 'snow' },
]

let folder: string

beforeEach(async () => {
  folder = temporaryFolder()
  await writeFile(join(folder, 'gateway.json'), JSON.stringify(file))
  await writeFile(
    join(folder, 'questions.json'),
    JSON.stringify(slugged.map(({ questionId, slug }) => ({ question_id: questionId, slug }))),
  )
})

const path = () => join(folder, 'gateway.json')
const loaded = (changes: { readonly store?: string; readonly executor?: object } = {}) => ({
  config: parseConfig({ ...file, ...changes }, 'gateway.json'),
  folder,
  path: path(),
  place: { kind: 'folder', folder: join(folder, changes.store ?? 'store') } as const,
})

function chainOfTheStore(): FakeChain {
  const chain = createFakeChain()
  const { block } = chain
  chain.block = async (at) => {
    const header = await block(at)
    return header && at === 0n ? { ...header, hash: word('9') } : header
  }
  return chain
}

async function written(...changes: readonly Change[]): Promise<string> {
  const { context } = fakeContext(folder)
  const fold = foldLedger()
  const store = join(folder, 'store')
  const log = await openLog(
    context,
    store,
    { ...storeLog, fence: async () => undefined },
    fold.onRecord,
  )
  const settings = { chainId: 31337, genesisHash: word('9'), allowlist: [], admissionEnabled: true }
  const ledger = await openLedger(context, log, fold.state, settings)
  if (changes.length > 0) await ledger.commit(changes)
  await ledger.close()
  return store
}
const checkOf = (config: ReturnType<typeof loaded>, around: Partial<Around> = {}) =>
  checkStore(fakeContext(folder).context, {
    ...nothing,
    ...around,
    place: config.place,
    seenFile: seenFile(config),
    command: pastedCommand(config),
  })
const check = async (around: Partial<Around> = {}) => {
  const before = await readdir(folder, { recursive: true })
  const checked = await checkOf(loaded(), around)
  expect(await readdir(folder, { recursive: true }), 'R24: looking makes nothing').toEqual(before)
  return checked
}
const faulty = async (around?: Partial<Around>) =>
  (await check(around)).findings.filter(({ result }) => result !== 'pass')

test('R5: an admin token that others may read, and one that is none', async () => {
  const token = join(await written(), 'admin.token')
  expect(await faulty()).toEqual([])
  await writeFile(token, `${'a'.repeat(64)}\n`, { mode: 0o600 })
  expect(await faulty()).toEqual([])
  await chmod(token, 0o644)
  expect(await faulty()).toMatchObject([
    { result: 'fail', id: 'admin_token', detail: expect.stringContaining('mode 644') },
  ])
  await chmod(token, 0o600)
  await writeFile(token, 'garbage\n')
  expect(await faulty()).toMatchObject([
    { result: 'fail', id: 'admin_token', detail: expect.stringContaining('holds no token') },
  ])
})

const added: Change = {
  kind: 'question.set',
  entry: { questionId: word('7'), slug: 'rain' },
  reason: 'test',
}

test('contract §6: a slug of the questions file that an operator has given to another question, as `serve` refuses it', async () => {
  await written(added)
  const [found, ...others] = await faulty({ questions: slugged })
  expect(others).toEqual([])
  expect(found).toMatchObject({
    result: 'fail',
    id: 'questions',
    detail: expect.stringContaining('the slug rain refers to'),
  })
  expect(found?.fix).toContain(
    `\`proposer operator questions remove ${word('7')} --config ${path()}\``,
  )
  const chain = chainOfTheStore()
  const { context } = fakeContext(folder, { chain, clock: createFakeClock(chain) })
  const off = loaded({ executor: { enabled: false } })
  await expect(
    openHostedGateway(context, off, { executorKey: { home: folder, password: async () => '' } }),
  ).rejects.toMatchObject({
    code: 'questions_invalid',
    meta: { hint: found?.fix },
  })
  expect(await faulty({ questions: [] })).toEqual([])
})

test('R24: such a slug keeps no operator from looking: it is told, and shown for neither question', async () => {
  await written(added)
  const operator = (...argv: string[]) =>
    run(folder, ['operator', ...argv, '--config', path(), '--json'])
  const listed = await operator('questions', 'list')
  expect(listed.code).toBe(0)
  const questions = JSON.parse(listed.stdout).questions as {
    question_id: string
    slug: string | null
  }[]
  expect(questions.map(({ question_id, slug }) => [question_id, slug])).toEqual([
    [word('3'), null],
    [word('4'), 'snow'],
    [word('7'), null],
  ])
  const [warning = '{}'] = listed.stderr.trim().split('\n')
  expect(JSON.parse(warning)).toMatchObject({
    warning: {
      code: 'questions_invalid',
      detail: expect.stringContaining(`questions remove ${word('7')} --config ${path()}`),
    },
  })
  for (const argv of [['list'], ['candidates', 'list'], ['store', 'export']])
    expect((await operator(...argv)).code, argv.join(' ')).toBe(0)
})

test('robustness §2, Write error: a disk without room for a probe', async () => {
  expect(spaceFindings('/a/store', 1024 * 1024 - 1)).toMatchObject([
    { result: 'fail', id: 'disk', detail: expect.stringContaining('/a/store') },
  ])
  expect(spaceFindings('/a/store', 1024 * 1024)).toEqual([])
  expect(spaceFindings('/a/store', undefined)).toEqual([])
  expect(
    await freeBytes(join(folder, 'not', 'there')),
    'that of the nearest parent',
  ).toBeGreaterThan(0)
})

test('R14: a node whose head is below a block that was final', async () => {
  await written({ kind: 'chain.finalized', number: '100', hash: word('8') })
  expect(await faulty({ head: head(99n) })).toMatchObject([
    {
      result: 'fail',
      id: 'finality',
      detail: expect.stringMatching(/head 99 is below block 100, which was final/),
    },
  ])
  expect(await faulty({ head: head(100n) })).toEqual([])
  expect(await faulty()).toEqual([])
})

test('R15: a nonce of another executor that is not settled', async () => {
  const slot = {
    id: 's',
    executor: address('e'),
    nonce: 7,
    candidateIds: [],
    openedAtMs: 1,
    attempts: [],
  }
  await written({ kind: 'slot.opened', slot })
  expect(await faulty({ executor: address('f') })).toMatchObject([
    {
      result: 'warn',
      id: 'former_executor',
      detail: expect.stringContaining(`nonce 7 of the former executor ${address('e')}`),
    },
  ])
  expect(await faulty({ executor: address('e') })).toEqual([])
  expect(await faulty()).toEqual([])
})

test('R16: a head that is older than it may be', async () => {
  const chain = createFakeChain()
  chain.mine(3)
  const clock = createFakeClock(chain)
  const nodes = (aheadMs: number) => {
    const late = { ...clock, nowMs: () => Number(chain.head.timestamp) * 1000 + aheadMs }
    return checkNodes(fakeContext(folder, { chain, clock: late }).context, loaded().config)
  }
  expect((await nodes(30_000)).findings.map(({ result }) => result)).toEqual(['pass'])
  expect((await nodes(31_000)).findings.at(-1)).toMatchObject({
    result: 'fail',
    id: 'head',
    detail: expect.stringContaining('31 s old'),
  })
})

test('contract §7: admission that an operator has paused', async () => {
  await written({ kind: 'admission.set', enabled: false, reason: 'test' })
  expect((await check()).ledger?.admissionSwitch).toBe(false)
  const found = await run(
    folder,
    [
      'serve',
      '--config',
      path(),
      '--check',
      '--json',
      '--port',
      '0',
      '--set',
      'executor.enabled=false',
    ],
    {
      chain: chainOfTheStore(),
    },
  )
  const { told } = JSON.parse(found.stdout) as { told: { check: string; detail: string }[] }
  expect(told.find((one) => one.check === 'admission')?.detail).toContain(
    `\`proposer operator resume --config ${path()}\``,
  )
  await mkdir(join(folder, 'other'))
  expect((await checkOf(loaded({ store: './other' }))).ledger?.admissionSwitch).toBe(true)
})
