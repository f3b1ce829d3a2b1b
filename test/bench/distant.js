import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startDevChain } from './dev-chain.js'
import { questionsOf, signAll } from './payloads.js'
import { fromSources } from './sources.js'

export const roundTripMs = 80
export const blockSeconds = 2
export const batchSize = 100

const lookMs = 10
const statusMs = 500
const shedMs = 1_000
const longestMs = 600_000
const budget = { per_ip_items: 10_000_000, global_items: 10_000_000 }

export async function ask(url, method, params = []) {
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const answer = await (await fetch(url, { method: 'POST', headers, body })).json()
  if (answer.error !== undefined) throw new Error(`${method}: ${answer.error.message}`)
  return answer.result
}

async function post(url, path, body) {
  const headers = { 'content-type': 'application/json' }
  for (;;) {
    const answer = await fetch(`${url}${path}`, { method: 'POST', headers, body })
    const document = await answer.json()
    if (answer.status !== 503) return { status: answer.status, document }
    await sleep(1_000 * Number(answer.headers.get('retry-after') ?? 1))
  }
}

/** A signature within calldata: bytes of length 65, filled up to whole words. */
const signatures = /0{62}41([0-9a-f]{130})0{62}/g

function handovers(proxy) {
  const moments = new Map()
  let read = 0
  const look = () => {
    for (const [raw, atMs] of [...proxy.reached].slice(read)) {
      read += 1
      for (const [, signature] of raw.matchAll(signatures))
        if (!moments.has(signature)) moments.set(signature, atMs)
    }
  }
  return async (proposals) => {
    const wanted = proposals.map(({ item }) => item.signature.slice(2))
    const end = performance.now() + longestMs
    for (;;) {
      look()
      const missing = wanted.filter((signature) => !moments.has(signature))
      if (missing.length === 0) return wanted.map((signature) => moments.get(signature))
      if (performance.now() > end)
        throw new Error(`the node has not been handed ${missing.length} of ${wanted.length}`)
      await sleep(lookMs)
    }
  }
}

async function submit(url, proposals) {
  if (proposals.length === 1) {
    const [{ path, body }] = proposals
    const { status, document } = await post(url, path, body)
    if (status !== 202) throw new Error(`the gateway answered ${status}: ${document.error?.code}`)
    return { answeredMs: performance.now(), ids: [document.candidate_id] }
  }
  const ids = []
  let answeredMs
  for (let left = proposals; ; ) {
    const body = JSON.stringify({ proposals: left.map(({ item }) => item) })
    const { status, document } = await post(url, '/propose/batch', body)
    answeredMs ??= performance.now()
    if (status !== 200)
      throw new Error(`the gateway answered ${status}: ${JSON.stringify(document)}`)
    const shed = []
    for (const [place, result] of document.results.entries()) {
      if (result.status_code === 202) ids.push(result.candidate.candidate_id)
      else if (result.status_code === 503) shed.push(left[place])
      else throw new Error(`a proposal was refused: ${JSON.stringify(result)}`)
    }
    if (shed.length === 0) return { answeredMs, ids }
    left = shed
    await sleep(shedMs)
  }
}

async function executed(url, ids) {
  const end = performance.now() + longestMs
  for (let first = 0; first < ids.length; ) {
    const some = ids.slice(first, first + batchSize)
    const body = JSON.stringify({ candidate_ids: some })
    const { status, document } = await post(url, '/propose/batch/status', body)
    if (status !== 200) throw new Error(`status answered ${status}: ${JSON.stringify(document)}`)
    const candidates = document.results.map(({ candidate }) => candidate)
    const failed = candidates.find(({ failure }) => failure)
    if (failed !== undefined) throw new Error(`a proposal failed: ${failed.failure.code}`)
    const isOver = candidates.every(({ status }) => status === 'executed')
    if (isOver) first += batchSize
    else if (performance.now() > end) throw new Error('not all proposals were executed')
    else await sleep(statusMs)
  }
}

/**
 * Hands `work` a real gateway whose node, a dev chain with this many open questions, is 80 ms away
 * behind a proxy that tells when it was handed what. `take(n)` gives the next n signed proposals,
 * each for a question of its own.
 */
export async function withDistantNode({ root, library, note }, { questions }, work) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const ending = [() => rm(folder, { recursive: true, force: true })]
  try {
    const { module, remove } = await fromSources(
      root,
      "export { openRpcProxy } from './test/support/rpc-proxy.ts'",
    )
    ending.push(remove)
    note(`starting a chain with ${questions} questions, and a gateway ${roundTripMs} ms away`)
    const chain = await startDevChain(root, folder, questions)
    ending.push(chain.stop)
    const { dev } = chain
    await ask(dev.rpc_url, 'evm_setIntervalMining', [blockSeconds])
    const proxy = await module.openRpcProxy(dev.rpc_url, { delayMs: roundTripMs })
    ending.push(() => proxy.close())
    await chain.configure({
      budget,
      admin: { port: 0 },
      // Its few wallets stand for many: what one may have on its way is no limit here.
      executor: { ...chain.config.executor, failed_gas_per_wallet: 10_000_000_000 },
      chain: { ...chain.config.chain, rpc_urls: [proxy.url] },
    })
    const gateway = await chain.start()
    ending.push(gateway.stop)
    const { url } = gateway
    const contexts = await questionsOf(url, chain.questionIds)
    const { wallets } = chain
    const loaded = await library()
    const proposals = contexts.flatMap((context, n) =>
      signAll(loaded, [context], [wallets[n % wallets.length]]).map((signed) => ({
        ...signed,
        context,
      })),
    )
    let taken = 0
    const take = (count) => {
      taken += count
      if (taken > proposals.length) throw new Error('the proposals ran out')
      return proposals.slice(taken - count, taken)
    }
    return await work({
      dev,
      url,
      proxy,
      take,
      submit: (some) => submit(url, some),
      executed: (ids) => executed(url, ids),
      handedOver: handovers(proxy),
    })
  } finally {
    for (const end of ending.reverse()) await end()
  }
}
