/**
 * Four gateways on one PostgreSQL under three kinds of faults at random: gateways killed and
 * stopped, the server killed and failed over, connections cut and delayed. Chain, log and the
 * clients' own records are held against each other at the end (R1, R2, R3, R13, R15).
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { BatchSigningData } from '#protocol/schema'
import { figures, firstSeed, scaled } from '#support/campaign'
import { describeWith } from '#support/components'
import { until } from '#support/postgres/folders'
import { workshop } from '#support/processes'
import { ask, newClients } from '#support/shared-history/clients'
import { type Cluster, openCluster } from '#support/shared-history/cluster'
import { judge, untilAtRest } from '#support/shared-history/judge'
import { type Payload, planProposals, Witnesses } from '#support/shared-history/payloads'
import { seeded } from '#support/sim-files'

const isWhole = scaled(100) >= 100
const faultSeconds = scaled(isWhole ? 600 : 200)
const proposals = scaled(isWhole ? 2_000 : 667)
const faultySeconds = isWhole ? 60 : 30
const budget = { window_seconds: 20, per_ip_items: 120, global_items: 3_000 }
const proposers = 40
const burstOf = 6

const shop = workshop()
let cluster: Cluster | undefined
afterAll(async () => {
  await cluster?.close()
  await shop.clean()
}, 120_000)

async function witnessesOf({ urls: [url], chain }: Cluster): Promise<Witnesses> {
  const witnesses = new Witnesses()
  const ids = chain.description.questions.map(({ question_id }) => question_id)
  for (let at = 0; at < ids.length; at += 100) {
    const body = JSON.stringify({ identifiers: ids.slice(at, at + 100) })
    const answer = await ask(`${url}/propose/batch/signing-data`, `203.0.113.${at / 100}`, body)
    if (typeof answer !== 'object' || answer.status !== 200)
      throw new Error(`no signing data: ${JSON.stringify(answer)}`)
    const { results } = answer.body as { results?: { signing_data: BatchSigningData }[] }
    for (const { signing_data } of results ?? []) witnesses.add(signing_data)
  }
  return witnesses
}

let probes = 0
/** Half as many calls again as a fresh client may make, through all gateways at once; none too many, none too few is let in. */
async function probeLimit({ urls, query }: Cluster): Promise<boolean> {
  const address = `192.0.2.${++probes}`
  const count = budget.per_ip_items * 1.5
  const startMs = performance.now()
  const statuses: (number | string)[] = []
  const caller = async (n: number) => {
    for (let at = n; at < count; at += 12) {
      const url = `${urls[at % urls.length]}/v1/proposals/eligibility/0x${'f'.repeat(40)}`
      const answer = await ask(url, address)
      statuses.push(typeof answer === 'object' ? answer.status : answer)
    }
  }
  await Promise.all(Array.from({ length: 12 }, (_, n) => caller(n)))
  if (performance.now() - startMs > budget.window_seconds * 900) return false
  if (statuses.some((status) => status !== 200 && status !== 429)) return false
  expect(statuses.filter((status) => status === 200)).toHaveLength(budget.per_ip_items)
  const [row] = await query<{ spent: string }>('SELECT spent FROM proposer.budget WHERE key = $1', [
    address,
  ])
  expect(Number(row?.spent)).toBe(count)
  return true
}

async function probeGlobalLimit({ urls, query, chain }: Cluster): Promise<boolean> {
  const wholeWindow = `SELECT count(*) AS open FROM proposer.budget
    WHERE key = '*' AND window_start > clock_timestamp() - interval '${budget.window_seconds} s'`
  await until(
    async () => (await query<{ open: string }>(wholeWindow))[0]?.open === '0',
    'no window ends',
  )
  const calls = (budget.global_items / 100) * 1.5
  const [question] = chain.description.questions
  const body = JSON.stringify({ identifiers: Array(100).fill(question?.question_id) })
  const startMs = performance.now()
  const statuses: (number | string)[] = []
  const caller = async (n: number) => {
    for (let at = n; at < calls; at += 8) {
      const url = `${urls[at % urls.length]}/propose/batch/signing-data`
      const answer = await ask(url, `192.0.2.${100 + at}`, body)
      statuses.push(typeof answer === 'object' ? answer.status : answer)
    }
  }
  await Promise.all(Array.from({ length: 8 }, (_, n) => caller(n)))
  if (performance.now() - startMs > budget.window_seconds * 900) return false
  if (statuses.some((status) => status !== 200 && status !== 429)) return false
  expect(statuses.filter((status) => status === 200)).toHaveLength(budget.global_items / 100)
  return true
}

describeWith([18], 'four gateways on one PostgreSQL', () => {
  test('R1, R2, R3, R13: whatever is killed, stopped, cut and failed over, every answer fits one history, and each round executes once', {
    timeout: 3_600_000,
  }, async () => {
    const random = seeded(firstSeed)
    const plan = planProposals(proposals, proposers, random)
    const opened = await openCluster(shop, {
      gateways: 4,
      questions: plan.rounds,
      proposers,
      budget,
    })
    cluster = opened
    await opened.ready()
    const witnesses = await witnessesOf(opened)
    const wallets = opened.chain.description.accounts.filter(({ role }) => role === 'proposer')
    const jobs = plan.jobs.map((job) =>
      job.map((planned): Payload => {
        const wallet = wallets[planned.wallet]
        const question = opened.chain.description.questions[planned.round]
        if (!wallet || !question) throw new RangeError('the chain has too few of them')
        return witnesses.sign(planned, question.question_id, wallet)
      }),
    )
    const payloads = jobs.flat()

    const clients = newClients(opened.urls, random)
    const over = new AbortController()
    const watching = Array.from({ length: 6 }, (_, n) => clients.watch(200 + n, over.signal))
    const startMs = performance.now()
    const proposing = jobs.map(async (job, n) => {
      const burst = Math.floor(n / burstOf) * burstOf
      await sleep((burst / jobs.length) * faultSeconds * 1_000)
      await Promise.all(
        job.map(async (payload) => {
          await sleep(random() * 400)
          await clients.propose(payload, 1 + (n % 150))
        }),
      )
    })

    const faults = new Map<string, number>()
    let exact = 0
    const calm = async (probe: (of: Cluster) => Promise<boolean>) => {
      await opened.ready()
      for (let tries = 0; tries < 3; tries += 1) {
        if (!(await probe(opened))) continue
        exact += 1
        return
      }
      faults.set(
        'calm moments without a measurement',
        (faults.get('calm moments without a measurement') ?? 0) + 1,
      )
    }
    const endMs = startMs + faultSeconds * 1_000
    while (performance.now() < endMs) {
      const stopMs = Math.min(endMs, performance.now() + faultySeconds * 1_000)
      const lane = async (make: () => Promise<string>, pauseMs: number) => {
        for (;;) {
          await sleep(pauseMs * (0.5 + random()))
          if (performance.now() >= stopMs) return
          const what = await make()
          faults.set(what, (faults.get(what) ?? 0) + 1)
        }
      }
      await Promise.all([
        lane(() => opened.faults.gateway(random), 3_000),
        lane(() => opened.faults.server(random), 5_000),
        lane(() => opened.faults.network(random), 2_000),
      ])
      await calm(probeLimit)
    }
    await Promise.all(proposing)
    over.abort()
    await Promise.all(watching)
    await untilAtRest(opened.query)
    await calm(probeGlobalLimit)

    const verdict = await judge(opened, payloads, clients)
    figures('shared store', {
      seconds: Math.round((performance.now() - startMs) / 1_000),
      proposals: payloads.length,
      ...Object.fromEntries([...faults].sort()),
      ...Object.fromEntries([...clients.counts].sort()),
      ...verdict.figures,
      'exact windows': exact,
      'gateways that ended by themselves': opened.ends.length,
    })
    if (process.env.CAMPAIGN_REPORT !== undefined)
      for (const end of new Set(opened.ends)) process.stderr.write(`ended: ${end}\n`)
    expect(verdict.faults).toEqual([])
    expect(exact).toBeGreaterThan(0)
    expect(verdict.figures.acknowledged).toBeGreaterThan(payloads.length / 2)
  })
})
