import { randomBytes, randomUUID } from 'node:crypto'
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeQuestions, serveChain } from './chain-server.js'
import { profiling, startServer } from './children.js'
import { openSettings, setsOf } from './gateways.js'
import { cpuSecondsOf, figure, median, memoryOf } from './measure.js'
import { makeWallets } from './payloads.js'
import { fromSources } from './sources.js'

/** A smaller one measures nothing. */
export const many = Number(process.env.BENCH_CANDIDATES ?? 1_000_000)
const questionCount = 100
const walletCount = 200
const openings = 3
const blockMs = 1_000

const wanted = `
export { headOf } from './src/core/gateway/ledger/store.js'
export { foldLedger, openLedger, storeLog } from './src/core/gateway/ledger/writer.js'
export { systemClock, systemHash, systemRandom } from './src/core/io/clock.js'
export { systemFiles } from './src/core/io/files.js'
export { openLog } from './src/core/storage/log.js'
`

const hex = (length) => `0x${randomBytes(length).toString('hex')}`

/**
 * A candidate as a store holds it years later: nine of ten were executed, the others failed, of
 * which some may be sent again.
 */
function pastCandidate(sequence, rounds) {
  const round = rounds[sequence % rounds.length]
  const receivedAtMs = 1_700_000_000_000 + sequence * 1_000
  const submission = {
    status: 'indexed',
    transactionHash: hex(32),
    submittedAtMs: receivedAtMs + 4_000,
    confirmedAtMs: receivedAtMs + 9_000,
    indexedAtMs: receivedAtMs + 9_500,
    proposalEventIndex: sequence % 300,
  }
  const times = { validatedAtMs: receivedAtMs + 500, selectedAtMs: receivedAtMs + 900 }
  const failure = {
    stage: 'validation',
    code: sequence % 20 === 0 ? 'insufficient_balance' : 'not_selected',
    detail: 'another candidate of this round was executed',
    retryable: sequence % 20 === 0,
  }
  const progress =
    sequence % 10 === 0
      ? { status: 'failed', ...times, submission: null, failure }
      : { status: 'executed', ...times, submission }
  return {
    id: randomUUID(),
    identity: randomBytes(16).toString('hex'),
    round,
    proposer: hex(20),
    price: '1000000000000000000',
    amount: '750000000',
    nonce: BigInt(hex(32)).toString(),
    deadline: String(1_700_003_600 + sequence),
    signature: hex(65),
    digest: hex(32),
    sequence,
    receivedAtMs,
    progress,
  }
}

export function* pastCandidates(count) {
  const rounds = Array.from({ length: Math.ceil(count / 10) }, () => ({
    key: randomBytes(16).toString('hex'),
    questionId: hex(32),
    oracle: hex(20),
    requester: hex(20),
    identifier: hex(32),
    timestamp: '1700000000',
    ancillaryHash: hex(32),
  }))
  for (let n = 1; n <= count; n += 1) yield pastCandidate(n, rounds)
}

async function makeStore(modules, folder, count, { chainId, genesisHash }) {
  const {
    foldLedger,
    headOf,
    openLedger,
    openLog,
    storeLog,
    systemClock,
    systemFiles,
    systemHash,
    systemRandom,
  } = modules
  const fold = foldLedger()
  const ports = { files: systemFiles, clock: systemClock, hash: systemHash }
  const log = await openLog(ports, folder, storeLog, fold.onRecord)
  const ledger = await openLedger({ clock: systemClock, random: systemRandom }, log, fold.state, {
    chainId,
    genesisHash,
    allowlist: [],
    admissionEnabled: true,
  })
  const info = fold.state.info
  await log.compact(
    function* () {
      yield { kind: 'store.opened', data: { info } }
      for (const candidate of pastCandidates(count))
        yield {
          kind: 'candidate.whole',
          data: { candidate, folded: true },
          head: headOf(candidate),
        }
    },
    () => undefined,
  )
  await ledger.close()
}

async function bytesOf(folder) {
  const sizes = await Promise.all(
    (await readdir(folder)).map(async (name) => (await stat(join(folder, name))).size),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}

async function withStores({ root, note }, counts, work) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const { module: modules, remove } = await fromSources(root, wanted)
  const chain = await serveChain(makeQuestions(questionCount), {
    blockMs,
    delayMs: 0,
    logsOf: () => [],
  })
  try {
    const wallets = makeWallets(walletCount)
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'eth_getBlockByNumber',
      params: ['0x0', false],
    })
    const genesis = await (await fetch(chain.url, { method: 'POST', body })).json()
    const { id, ...pinned } = chain.contracts
    const config = {
      chain: { id, rpc_urls: [chain.url], ...pinned },
      admission: { enabled: true, allowlist: wallets.map(({ address }) => address) },
      admin: { port: 0 },
    }
    await writeFile(join(folder, 'gateway.json'), JSON.stringify(config))
    for (const count of counts) {
      note(`writing a store of ${count} candidates`)
      await makeStore(modules, join(folder, `store-${count}`), count, {
        chainId: id,
        genesisHash: genesis.result.hash,
      })
    }
    const argsOf = (count) => [
      ...profiling(),
      ...[
        join(root, 'bin', 'proposer.js'),
        'serve',
        '--config',
        'gateway.json',
        '--json',
        '--no-log',
        '--port',
        '0',
      ],
      ...setsOf({ ...openSettings, store: `./store-${count}` }),
    ]
    return await work({ folder, wallets, argsOf })
  } finally {
    await chain.close()
    await remove()
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Row 9: seconds from the start of `serve` to its ready line on a store of a million candidates,
 * less those on an empty one.
 */
export async function openRow(setting) {
  return withStores(setting, [0, many], async ({ folder, argsOf }) => {
    const seconds = { 0: [], [many]: [] }
    const cpuSeconds = { 0: [], [many]: [] }
    const memory = []
    for (let round = 0; round < openings; round += 1) {
      for (const count of [0, many]) {
        const start = performance.now()
        const { ready, stop } = await startServer(process.execPath, argsOf(count), { cwd: folder })
        seconds[count].push((performance.now() - start) / 1000)
        cpuSeconds[count].push(await cpuSecondsOf(ready.pid))
        if (count === many) memory.push(await memoryOf(ready.pid))
        await stop()
      }
      setting.note(
        `opening ${round + 1}: ${figure(seconds[many].at(-1))} s (CPU ${figure(cpuSeconds[many].at(-1))} s), an empty store ${figure(seconds[0].at(-1))} s`,
      )
    }
    const gibibytes = (await bytesOf(join(folder, `store-${many}`))) / 1024 ** 3
    const peaks = memory.map(({ peak }) => peak)
    const cpu = median(cpuSeconds[many]) - median(cpuSeconds[0])
    return {
      id: 9,
      name: `open a store of ${many} candidates`,
      value: median(seconds[many]) - median(seconds[0]),
      unit: 's',
      detail: `serve is ready after ${figure(median(seconds[many]))} s, with an empty store after ${figure(median(seconds[0]))} s; ${figure(cpu)} s more CPU; RSS ${figure(median(memory.map(({ now }) => now)))} MiB, ${figure(median(peaks))} MiB at most; ${figure(gibibytes)} GiB on disk; medians of ${openings}`,
    }
  })
}
