import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeQuestions, serveChain } from './chain-server.js'
import { startLoad, startServer } from './children.js'
import { figure, median } from './measure.js'
import { makeWallets, questionsOf, signAll } from './payloads.js'

const few = 10
const many = 10_000
/**
 * Questions that each block's logs name, none of them among those that proposals are made for:
 * whoever asks for a question that has just changed waits for it to be read, and that is another
 * matter.
 */
const namedPerBlock = 20
const blockMs = 1_000
const delayMs = 20
/** Few at a time: a queue would hide what the view adds. */
const connections = 2
const rounds = 8
const perRound = 600
const walletCount = 640

/**
 * What the node was asked between two moments, per block; in less than a block's time, all of it.
 */
function perBlock(chain, before) {
  const blocks = Math.max(1, chain.blocks() - before.blocks)
  const kinds = [...chain.calls].map(([method, count]) => [
    method.slice(4),
    (count - (before.calls.get(method) ?? 0)) / blocks,
  ])
  const shown = kinds
    .filter(([, count]) => count > 0)
    .map(([kind, count]) => `${kind} ${figure(count)}`)
  const rpc = kinds.reduce((sum, [, count]) => sum + count, 0)
  const inner = (chain.inner - before.inner) / blocks
  return `${figure(rpc)} calls in ${figure((chain.requests - before.requests) / blocks)} requests (${shown.join(', ')}; ${figure(inner)} reads folded)`
}
const moment = (chain) => ({
  blocks: chain.blocks(),
  calls: new Map(chain.calls),
  requests: chain.requests,
  inner: chain.inner,
})

/** A gateway that knows the first `count` questions, before a node of its own. */
async function startGateway({ root, folder, questions, count, wallets }) {
  const known = questions.slice(0, count)
  const cold = questions.slice(few)
  const chain = await serveChain(questions, {
    blockMs,
    delayMs,
    logsOf: (number) =>
      Array.from(
        { length: namedPerBlock },
        (_, n) => cold[(number * namedPerBlock + n) % cold.length].question_id,
      ),
  })
  const name = `${count}`
  const { id, ...pinned } = chain.contracts
  const config = {
    store: `./store-${name}`,
    chain: { id, rpc_urls: [chain.url], ...pinned },
    questions: `./questions-${name}.json`,
    slugs: { source: 'registry' },
    admission: { enabled: true, allowlist: wallets.map(({ address }) => address) },
    pipeline: { enabled: false },
    budget: { per_ip_items: 100_000_000, global_items: 100_000_000 },
  }
  await writeFile(
    join(folder, `questions-${name}.json`),
    JSON.stringify(known.map(({ question_id }) => ({ question_id }))),
  )
  await writeFile(join(folder, `gateway-${name}.json`), JSON.stringify(config))
  const bin = join(root, 'bin', 'proposer.js')
  const args = [
    bin,
    'serve',
    '--config',
    `gateway-${name}.json`,
    '--json',
    '--no-log',
    '--port',
    '0',
  ]
  const { ready, stop } = await startServer(process.execPath, args, { cwd: folder })
  return { name, count, chain, url: ready.url, stop, used: 0, middle: [], slowest: [] }
}

/** Makes the gateway read questions; one that is busy is asked again. */
async function askFor(url, questions) {
  const body = JSON.stringify({ identifiers: questions.map(({ question_id }) => question_id) })
  const headers = { 'content-type': 'application/json' }
  for (;;) {
    const answer = await fetch(`${url}/propose/batch/signing-data`, {
      method: 'POST',
      headers,
      body,
    })
    await answer.arrayBuffer()
    if (answer.status === 200) return
    if (answer.status !== 503) throw new Error(`signing-data answered ${answer.status}`)
    await sleep(1_000)
  }
}

/**
 * Row `view`: how long an admission takes where the gateway knows ten open questions and where it
 * knows ten thousand, while every block names 20 of them and the node takes 20 ms to answer; and
 * what the node is asked per block. Also while ten thousand are still being read.
 */
export async function viewRow({ root, library, note }) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const servers = []
  const load = startLoad(join(root, 'test', 'bench', 'load.js'))
  const round = async (server, payloads) => {
    const requests = payloads.slice(server.used, server.used + perRound)
    if (requests.length < perRound) throw new Error('the payloads ran out')
    server.used += perRound
    const { statuses, refused, p50, p99 } = await load.send({
      url: server.url,
      connections,
      requests,
    })
    if (statuses[202] !== perRound)
      throw new Error(
        `the gateway with ${server.name} answered ${JSON.stringify(statuses)}: ${refused}`,
      )
    return { p50, p99 }
  }
  try {
    const questions = makeQuestions(many)
    const wallets = makeWallets(walletCount)
    note('starting a gateway for each number of questions')
    for (const count of [few, many])
      servers.push(await startGateway({ root, folder, questions, count, wallets }))
    const [small, large] = servers
    const asked = questions.slice(0, few).map(({ question_id }) => question_id)
    const contexts = await questionsOf(small.url, asked)
    await questionsOf(large.url, asked)
    note(`signing ${few * walletCount} proposals`)
    const payloads = signAll(await library(), contexts, wallets)

    for (const server of servers) await round(server, payloads)
    const reading = moment(large.chain)
    const early = await round(large, payloads)
    const readingTold = perBlock(large.chain, reading)
    note(
      `${large.chain.read.size} of ${many} questions have been read ahead; asking for the others`,
    )
    for (let first = 0; first < many; first += 100)
      await askFor(large.url, questions.slice(first, first + 100))

    const before = servers.map(({ chain }) => moment(chain))
    for (let n = 0; n < rounds; n += 1) {
      for (const server of servers) {
        const { p50, p99 } = await round(server, payloads)
        note(
          `round ${n + 1}: ${server.name} questions: p50 ${figure(p50)} ms, p99 ${figure(p99)} ms`,
        )
        server.middle.push(p50)
        server.slowest.push(p99)
      }
    }
    const told = servers.map(
      ({ name, chain, middle, slowest }, index) =>
        `${name} questions p50 ${figure(median(middle))} ms, p99 ${figure(median(slowest))} ms, per block ${perBlock(chain, before[index])}`,
    )
    return {
      id: 'view',
      name: 'admission p99, 10,000 questions to 10',
      value: median(large.slowest) / median(small.slowest),
      unit: 'x',
      detail: `${told.join('; ')}; while ${many} are read ahead p99 ${figure(early.p99)} ms, per block ${readingTold}; blocks of ${blockMs} ms with ${namedPerBlock} logs, answers of the node after ${delayMs} ms, medians of ${rounds} rounds of ${perRound} in turn, ${connections} connections`,
    }
  } finally {
    load.stop()
    for (const { chain, stop } of servers) {
      await stop()
      chain.close()
    }
    await rm(folder, { recursive: true, force: true })
  }
}
