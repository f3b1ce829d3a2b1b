// npm run soak:serve: `serve --dev` from dist under a mixed, steady load for SOAK_MINUTES (60), a
// sample every ten seconds to SOAK_FILE. Exits 1 where a candidate did not end as expected, an
// answer was none of the expected ones, or the second half shows something growing.
import { appendFile, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { startServer } from './children.js'
import { makeActs } from './soak-acts.js'
import { makeCaller } from './soak-calls.js'
import { chainVerbs, proposalsByRound } from './soak-chain.js'
import { makeSigners } from './soak-proposals.js'
import { makeRounds } from './soak-rounds.js'
import { sample } from './soak-sample.js'
import { judgeGrowth } from './soak-verdict.js'

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const minutes = Number(process.env.SOAK_MINUTES ?? 60)
if (!(minutes > 0)) throw new RangeError('SOAK_MINUTES must be a number of minutes above 0')
const samplesFile = resolve(
  process.env.SOAK_FILE ?? join(tmpdir(), `proposer-soak-${process.pid}.ndjson`),
)
const sampleEveryMs = 10_000
const tickMs = 100
/**
 * More than this under way means that the machine does not keep up: the turn is left out and
 * counted.
 */
const mostUnderWay = 60
/** Acts that must not run beside themselves: they act on one thing. */
const alone = new Set(['operator', 'questions', 'funds', 'batch status'])
const settleMs = 180_000
const firstQuestions = 100
/**
 * More calls shed than this part of them means that the load is too much for the machine, or the
 * gateway too slow.
 */
const mostShed = 0.01

const say = (text) => process.stdout.write(`${text}\n`)
const note = (text) => process.stderr.write(`${new Date().toISOString()} ${text}\n`)

async function main() {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-soak-'))
  const { verbs, remove } = await chainVerbs(root)
  const cleanUp = [() => rm(folder, { recursive: true, force: true }), remove]
  let stopping = false
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.on(signal, () => {
      stopping = true
    })
  }
  try {
    const sets = ['per_ip_items', 'global_items'].flatMap((key) => [
      '--set',
      `budget.${key}=100000000`,
    ])
    const probeFile = join(folder, 'probe.json')
    const serve = [
      join(root, 'bin', 'proposer.js'),
      'serve',
      '--dev',
      '--json',
      '--no-log',
      '--port',
      '0',
    ]
    const args = [
      '--import',
      join(root, 'test', 'bench', 'soak-probe.js'),
      ...serve,
      '--questions',
      String(firstQuestions),
      ...sets,
    ]
    const env = { ...process.env, TMPDIR: folder, SOAK_PROBE_FILE: probeFile }
    const server = await startServer(process.execPath, args, {
      cwd: folder,
      env,
      onLog: (line) => note(`serve: ${line}`),
    })
    cleanUp.unshift(server.stop)
    const { pid, url, admin_url: adminUrl, dev } = server.ready
    const entries = await readdir(folder, { recursive: true })
    const token = entries.find((entry) => entry.endsWith('admin.token'))
    if (token === undefined) throw new Error('the store has no admin.token')

    const strange = new Map()
    const failures = new Map()
    const underWay = new Map()
    let chainBusy = 0
    const call = makeCaller(url)
    cleanUp.unshift(call.close)
    const count = (map, key, example) => {
      const entry = map.get(key) ?? { count: 0, example }
      if (entry.count === 0) note(`${key}: ${example}`)
      map.set(key, { ...entry, count: entry.count + 1 })
    }
    const world = {
      call,
      url,
      adminUrl,
      verbs,
      library: await import(join(root, 'dist', 'library.js')),
      signers: makeSigners(dev.accounts),
      accounts: dev.accounts,
      rpcUrl: dev.rpc_url,
      questionIds: dev.questions.map(({ question_id }) => question_id),
      tokenFile: join(folder, token),
      random: Math.random,
      unexpected: (what, { status, body }) =>
        count(
          strange,
          `${what}: ${status} ${body?.error?.code ?? ''}`,
          JSON.stringify(body ?? null).slice(0, 400),
        ),
      go(name, work) {
        underWay.set(name, (underWay.get(name) ?? 0) + 1)
        work
          .catch((error) => {
            // The driver's own tool: a chain that is slow to mine is no fault of the gateway, and
            // the act comes again.
            if (error.code === 'dev_chain_failed') chainBusy += 1
            else count(failures, `${name}: ${error.code ?? error.name}`, error.stack?.slice(0, 600))
          })
          .finally(() => underWay.set(name, underWay.get(name) - 1))
      },
    }
    const rounds = makeRounds(world)
    for (const questionId of world.questionIds) rounds.add(questionId)
    const acts = makeActs(world, rounds)
    const busy = () => [...underWay.values()].reduce((sum, each) => sum + each, 0)

    const startMs = performance.now()
    const seconds = () => (performance.now() - startMs) / 1000
    const samples = []
    let leftOut = 0
    await writeFile(samplesFile, '')
    const takeSample = async () => {
      const taken = {
        time: new Date().toISOString(),
        seconds: Math.round(seconds() * 10) / 10,
        ...(await sample({ pid, store: dirname(world.tokenFile), probeFile, call, adminUrl })),
        ...rounds.counts,
        pending: rounds.pending.size,
        oldest_seconds: rounds.oldestSeconds(),
        questions_waiting: rounds.open.length,
        left_out: leftOut,
        shed: call.shed,
        unexpected: [...strange.values()].reduce((sum, each) => sum + each.count, 0),
        failures: [...failures.values()].reduce((sum, each) => sum + each.count, 0),
      }
      samples.push(taken)
      await appendFile(samplesFile, `${JSON.stringify(taken)}\n`)
    }

    note(`serve ${pid} at ${url} for ${minutes} minutes; samples go to ${samplesFile}`)
    const due = acts.map(() => world.random())
    let lastMs = startMs
    let nextSampleMs = startMs
    let gone = false
    while (!stopping && !gone && seconds() < minutes * 60) {
      const now = performance.now()
      // After a pause of the machine the load goes on at its rate; it does not catch up.
      const passedSeconds = Math.min(1, (now - lastMs) / 1000)
      lastMs = now
      for (const [index, [perSecond, name, act]] of acts.entries()) {
        due[index] += perSecond * passedSeconds
        while (due[index] >= 1) {
          due[index] -= 1
          if (alone.has(name) && underWay.get(name) > 0) continue
          if (busy() >= mostUnderWay) leftOut += 1
          else world.go(name, act())
        }
      }
      if (now >= nextSampleMs) {
        nextSampleMs += sampleEveryMs
        await takeSample().catch((error) => {
          gone = error.code === 'ENOENT' || error.code === 'ESRCH' || error.code === 'ECONNREFUSED'
          count(failures, `sample: ${error.code ?? error.name}`, error.stack)
        })
      }
      await sleep(tickMs)
    }

    const loadSeconds = seconds()
    const until = performance.now() + settleMs
    while (!gone && (busy() > 0 || rounds.pending.size > 0) && performance.now() < until) {
      await sleep(500)
      // Two polls at once would end a candidate twice.
      if ((underWay.get('batch status') ?? 0) === 0) await rounds.poll()
    }
    const faults = []
    if (gone) faults.push('the gateway ended by itself')
    if (rounds.pending.size > 0) faults.push(`${rounds.pending.size} candidates have not ended`)
    for (const [key, each] of strange)
      faults.push(`unexpected, ${each.count} times: ${key}: ${each.example}`)
    for (const [key, each] of failures)
      faults.push(`failed, ${each.count} times: ${key}: ${each.example}`)
    const onChain = gone ? undefined : (await proposalsByRound(dev, verbs.topics.proposePrice)).size
    if (onChain !== undefined && onChain !== rounds.counts.executed)
      faults.push(
        `the chain has proposals in ${onChain} rounds, and ${rounds.counts.executed} candidates were executed`,
      )
    const calls = Object.values(call.statuses).reduce((sum, each) => sum + each, 0)
    if (call.shed > mostShed * calls)
      faults.push(`${call.shed} of ${calls} calls were shed, more than ${100 * mostShed} %`)
    const growth = judgeGrowth(samples)
    faults.push(...growth.faults)

    const { counts } = rounds
    say(
      `${(loadSeconds / 60).toFixed(1)} minutes, ${calls} calls (${(calls / loadSeconds).toFixed(1)}/s; ${call.shed} shed and made again, ${chainBusy} acts on the chain that it was too slow for, ${leftOut} turns left out), ${samples.length} samples`,
    )
    say(`calls by status: ${JSON.stringify(call.statuses)}`)
    say(`candidates and rounds: ${JSON.stringify(counts)}; on the chain: ${onChain} rounds`)
    for (const pick of [samples[0], samples[Math.floor(samples.length / 2)], samples.at(-1)])
      say(`sample: ${JSON.stringify(pick)}`)
    for (const line of growth.lines) say(line)
    for (const fault of faults) say(`FAULT ${fault}`)
    say(faults.length === 0 ? 'verdict: sound' : `verdict: ${faults.length} faults`)
    return faults.length === 0 ? 0 : 1
  } finally {
    for (const step of cleanUp) await step()
  }
}

process.exitCode = await main()
