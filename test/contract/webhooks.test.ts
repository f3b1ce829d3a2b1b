/**
 * Webhooks (contract §9) against real receivers on loopback: what they are told, the signature,
 * the tries, and that no receiver holds anything up.
 */
import { createHmac } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { webhookEvents } from '../../src/core/gateway/webhooks.js'
import { followStakes } from '../../src/core/host/followed-stakes.js'
import { tellWebhooks, type Webhook, webhooksOf } from '../../src/core/host/webhooks.js'
import { createHttp } from '../../src/core/io/http.js'
import { signatureOf, triesAfterMs } from '../../src/core/io/webhook-call.js'
import type { Clock } from '../../src/core/ports.js'
import {
  type ExecutorVitals,
  enoughProposals,
  fewProposals,
  type Observation,
} from '../../src/core/protocol/vitals.js'
import { dispute, rivalProposes } from '../support/fake-events.js'
import { adapter, fakeContracts } from '../support/fake-world.js'
import { testConfig, testRandom } from '../support/front.js'
import { createPipelineWorld, type PipelineWorld } from '../support/pipeline-world.js'
import { blocksIn, section } from '../support/readme.js'

const leaving: (() => unknown)[] = []
afterEach(async () => {
  for (const leave of leaving.splice(0).reverse()) await leave()
})

interface Call {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly body: Record<string, unknown>
}

/** A receiver; `answers` tells the status of the n-th call, `undefined` for none ever. */
async function receiving(answers: (n: number) => number | undefined = () => 204) {
  const calls: Call[] = []
  const heard = new Set<() => void>()
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8').on('data', (part: string) => {
      text += part
    })
    request.on('end', () => {
      const { url = '', headers } = request
      calls.push({ path: url, headers, text, body: JSON.parse(text) })
      const status = answers(calls.length - 1)
      if (status !== undefined)
        response.writeHead(status, status === 302 ? { location: '/elsewhere' } : {}).end('told')
      for (const hear of heard) hear()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  leaving.push(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  return {
    calls,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?key=private`,
    async until(count: number) {
      while (calls.length < count)
        await new Promise<void>((resolve) => {
          heard.add(resolve)
        })
    },
  }
}

/** Time passes for whoever sleeps, in the order of the ends. */
function quickClock(): Clock & { readonly slept: number[] } {
  let monotonic = 0
  const slept: number[] = []
  return {
    slept,
    nowMs: () => 1_800_000_000_000 + monotonic,
    monotonicMs: () => monotonic,
    async sleep(ms, signal) {
      const endMs = monotonic + ms
      slept.push(ms)
      await new Promise(setImmediate)
      signal?.throwIfAborted()
      monotonic = Math.max(monotonic, endMs)
    },
  }
}

const secret = 'a secret of the receiver'
const ready = 'proposer.webhook/1'

interface State {
  reasons: readonly string[]
  executor?: Partial<ExecutorVitals>
  leads?: boolean
}

/** Webhooks over a world whose readiness, balance and lead are what `state` says. */
async function telling(
  hooks: readonly Omit<Webhook, 'secret'>[],
  { clock = quickClock(), tryMs = 10_000 } = {},
) {
  const world: PipelineWorld = await createPipelineWorld()
  const stakes = followStakes(world.ledger, world.view, fakeContracts, () => undefined)
  const state: State = { reasons: [] }
  const seen: Observation[] = []
  const warnings: string[] = []
  const http = createHttp()
  leaving.push(http.close)
  let ended: (() => void) | undefined
  const stop = tellWebhooks(
    hooks.map((hook) => ({ ...hook, secret })),
    {
      ...world,
      executor: '0x1111111111111111111111111111111111111111',
      onDispute: stakes.onDispute,
      gateway: { readiness: () => state.reasons } as never,
      vitals: () => ({ executor: state.executor }) as never,
      store: {
        get cluster() {
          return state.leads === undefined
            ? undefined
            : ({ leadership: () => (state.leads ? { epoch: 1 } : {}) } as never)
        },
      },
    },
    {
      machine: {
        clock,
        random: testRandom,
        liveness: { host: 'gateway-1' } as never,
        edges: { fetch: async () => http.fetch } as never,
      },
      chainId: 137,
      version: '9.9.9',
      onObservation: (observation) => {
        seen.push(observation)
        ended?.()
      },
      onWarning: (code, detail) => warnings.push(`${code}: ${detail}`),
      everyMs: 5,
      tryMs,
    },
  )
  leaving.push(stop)
  const outcomes = () => seen.flatMap((one) => (one.kind === 'webhook' ? [one.outcome] : []))
  return {
    world,
    state,
    warnings,
    outcomes,
    stop,
    async until(count: number) {
      while (outcomes().length < count)
        await new Promise<void>((resolve) => {
          ended = resolve
        })
    },
    /** A candidate that fails, for an operator's reason. */
    async fail() {
      const candidate = await world.submit(await world.question())
      const failure = {
        stage: 'validation',
        code: 'operator_rejected',
        detail: 'too late',
        retryable: false,
      } as const
      const none = { validatedAtMs: null, selectedAtMs: null, submission: null }
      await world.ledger.commit([
        {
          kind: 'candidate.progress',
          id: candidate.id,
          progress: { status: 'failed', ...none, failure },
        },
      ])
      return candidate
    },
  }
}

describe('contract §9: what a receiver is told', () => {
  test('each event once, signed over time and body, by what it subscribed to', async () => {
    const all = await receiving()
    const some = await receiving()
    const events = ['not_ready', 'ready', 'low_balance', 'candidate_failed'] as const
    const told = await telling([
      { url: all.url, events },
      { url: some.url, events: ['low_balance'] },
    ])
    await all.until(1)
    told.state.reasons = ['the node refuses: “https://node.example/private”', 'no head']
    await all.until(2)
    told.state.reasons = []
    await all.until(3)
    told.state.executor = { paidProposals: 49, balanceWei: 5n }
    await all.until(4)
    const candidate = await told.fail()
    await all.until(5)
    expect(all.calls.map(({ body }) => body.event)).toEqual([
      ...['ready', 'not_ready', 'ready', 'low_balance', 'candidate_failed'],
    ])
    expect(
      all.calls.map(({ body: { schema, host, chain_id } }) => [schema, host, chain_id]),
    ).toEqual(Array(5).fill([ready, 'gateway-1', 137]))
    expect(new Set(all.calls.map(({ body }) => body.id)).size).toBe(5)
    expect(all.calls[1]?.body).toMatchObject({
      text: 'the gateway is not ready: the node refuses; no head',
      reasons: ['the node refuses', 'no head'],
    })
    expect(all.calls[3]?.body).toMatchObject({ balance_wei: '5', pays_for: 49 })
    expect(all.calls[4]?.body.candidate).toMatchObject({
      candidate_id: candidate.id,
      failure_code: 'operator_rejected',
      failure_detail: 'too late',
      next_action: 'contact_operator',
    })
    expect(all.calls[4]?.text).not.toContain(candidate.signature.slice(2))
    for (const { headers, text } of all.calls) {
      const [, at = '', mac] =
        /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers['proposer-signature'])) ?? []
      expect(mac).toBe(createHmac('sha256', secret).update(`${at}.${text}`).digest('hex'))
      expect(headers['content-type']).toBe('application/json')
    }
    await some.until(1)
    expect(some.calls.map(({ body }) => body.event)).toEqual(['low_balance'])
    expect(told.warnings).toEqual([])
  })

  test('a dispute of an executed proposal, once it is final, and none of other proposals', async () => {
    const one = await receiving()
    const { world } = await telling([{ url: one.url, events: ['disputed'] }])
    const [own, rivals] = [await world.question('ours'), await world.question('theirs')]
    const candidate = await world.submit(own)
    rivalProposes(world.chain, rivals, `0x${'9'.repeat(40)}`)
    await world.pass(6)
    for (const questionId of [rivals, own]) dispute(world.chain, questionId)
    await world.pass(1)
    expect(one.calls).toEqual([])
    await world.pass(4)
    await one.until(1)
    expect(one.calls).toHaveLength(1)
    const { progress } = await world.now(candidate)
    const hash = 'submission' in progress ? progress.submission?.transactionHash : undefined
    expect(one.calls[0]?.body).toMatchObject({
      event: 'disputed',
      text: `the proposal of candidate ${candidate.id} was disputed by ${adapter}`,
      candidate: {
        candidate_id: candidate.id,
        question_id: own,
        proposer: candidate.proposer,
        outcome: 'p2',
        transaction_hash: hash,
      },
      dispute: {
        disputer: adapter,
        block_number: expect.stringMatching(/^\d+$/),
        transaction_hash: expect.stringMatching(/^0x/),
      },
    })
  })

  test('a low balance again only after it was enough in between', async () => {
    const one = await receiving()
    const told = await telling([{ url: one.url, events: ['low_balance'] }])
    const look = async (paidProposals: number) => {
      told.state.executor = { paidProposals }
      await new Promise((resolve) => setTimeout(resolve, 30))
    }
    for (const pays of [49, 60, 40, 99, 10]) await look(pays)
    await one.until(1)
    for (const pays of [100, 49]) await look(pays)
    await one.until(2)
    expect(one.calls.map(({ body }) => body.pays_for)).toEqual([49, 49])
  })

  test('a start that leads to no readiness after a minute, and not before', async () => {
    const one = await receiving()
    const clock = quickClock()
    let atMs = 0
    const told = await telling([{ url: one.url, events: ['not_ready', 'ready'] }], {
      clock: Object.assign(clock, { monotonicMs: () => atMs }),
    })
    told.state.reasons = ['the chain has not been read yet']
    atMs = 59_999
    await new Promise((resolve) => setTimeout(resolve, 30))
    expect(one.calls).toEqual([])
    atMs = 60_000
    await one.until(1)
    expect(one.calls[0]?.body.event).toBe('not_ready')
  })

  test('of several gateways the leader speaks for the store, each for its own readiness', async () => {
    const one = await receiving()
    const told = await telling([
      { url: one.url, events: ['ready', 'low_balance', 'candidate_failed'] },
    ])
    told.state.leads = false
    told.state.executor = { paidProposals: 1 }
    await told.fail()
    await one.until(1)
    told.state.leads = true
    await told.fail()
    await one.until(3)
    expect(one.calls.map(({ body }) => body.event).sort()).toEqual([
      ...['candidate_failed', 'low_balance', 'ready'],
    ])
  })
})

describe('docs', () => {
  test('what the page has a receiver do takes our signature, and no other', async () => {
    const [code = ''] = blocksIn(section('Webhooks', 'docs/operating.md'), 'js')
    const url = `data:text/javascript,${encodeURIComponent(code)}`
    const { isOurs } = (await import(/* @vite-ignore */ url)) as {
      isOurs(header: string, body: string, secret: string, nowSeconds: number): boolean
    }
    const header = signatureOf(secret, 1_000, '{}')
    expect(isOurs(header, '{}', secret, 1_100)).toBe(true)
    expect(isOurs(header, '{} ', secret, 1_100)).toBe(false)
    expect(isOurs(header, '{}', 'another secret!!', 1_100)).toBe(false)
    expect(isOurs(header, '{}', secret, 1_301)).toBe(false)
    expect(isOurs('t=1', '{}', secret, 1)).toBe(false)
  })

  test('the page names every event, and each wait between two tries', () => {
    const page = section('Webhooks', 'docs/operating.md')
    for (const event of webhookEvents) expect(page).toContain(`| \`${event}\``)
    expect(page).toContain(
      `${triesAfterMs
        .slice(1, -1)
        .map((ms) => `${ms / 1_000} s`)
        .join(', ')} and ${(triesAfterMs.at(-1) ?? 0) / 1_000} s`,
    )
    expect(page).toContain(`fewer than ${fewProposals} more`)
    expect(page).toContain(`paid for ${enoughProposals} in between`)
  })
})

describe('contract §9: a receiver that fails', () => {
  const events = ['ready'] as const

  test('with 500 is asked five times within ten minutes: the same body, a signature of its own time', async () => {
    const one = await receiving(() => 500)
    const clock = quickClock()
    const told = await telling([{ url: one.url, events }], { clock })
    await told.until(1)
    expect(told.outcomes()).toEqual(['given_up'])
    expect(one.calls).toHaveLength(5)
    expect(new Set(one.calls.map(({ text }) => text)).size).toBe(1)
    expect(new Set(one.calls.map(({ headers }) => headers['proposer-signature'])).size).toBe(5)
    const wholeMs = clock.slept.reduce((sum, ms) => sum + ms, 0)
    expect([clock.slept[0], wholeMs <= 590_000]).toEqual([0, true])
    expect(told.warnings).toEqual([
      `webhook_failed: webhook 1 (${new URL(one.url).host}): ready was not delivered: HTTP 500`,
    ])
  })

  test('and then takes it: the tries end', async () => {
    const one = await receiving((n) => (n < 2 ? 503 : 200))
    const told = await telling([{ url: one.url, events }])
    await told.until(1)
    expect([told.outcomes(), one.calls.length, told.warnings]).toEqual([['delivered'], 3, []])
  })

  test('with a redirect: it is not followed', async () => {
    const one = await receiving(() => 302)
    const told = await telling([{ url: one.url, events }])
    await told.until(1)
    expect(new Set(one.calls.map(({ path }) => path))).toEqual(new Set(['/hook?key=private']))
    expect(told.warnings).toEqual([expect.stringMatching(/not delivered: HTTP 302$/)])
  })

  test('by never answering holds up neither the others nor the gateway, and R5: no message has its URL or the secret', async () => {
    const [silent, quick] = [await receiving(() => undefined), await receiving()]
    const told = await telling(
      [
        { url: silent.url, events },
        { url: quick.url, events: ['ready', 'candidate_failed'] },
      ],
      // Long enough for a busy receiver to read each of them.
      { tryMs: 500 },
    )
    await quick.until(1)
    await told.fail()
    await quick.until(2)
    await told.until(3)
    expect([...told.outcomes()].sort()).toEqual(['delivered', 'delivered', 'given_up'])
    expect(silent.calls).toHaveLength(5)
    expect(told.warnings).toHaveLength(1)
    expect(told.warnings.join()).not.toMatch(/private|secret/)
  })

  test('R17: a hundred events wait for it, four calls are open; what comes then is dropped, told once', async () => {
    const one = await receiving(() => undefined)
    const told = await telling([{ url: one.url, events: ['candidate_failed'] }])
    for (let n = 0; n < 103; n += 1) await told.fail()
    await one.until(4)
    expect(told.outcomes()).toEqual(['dropped', 'dropped', 'dropped'])
    expect(one.calls).toHaveLength(4)
    expect(told.warnings).toEqual([expect.stringMatching(/candidate_failed was dropped: 100 /)])
    // What is open ends with the gateway, and nothing more is said.
    told.stop()
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect([told.outcomes().length, one.calls.length, told.warnings.length]).toEqual([3, 4, 1])
  })

  test('because nobody listens there', async () => {
    const one = await receiving()
    const url = one.url.replace(/:\d+/, ':1')
    const told = await telling([{ url, events }])
    await told.until(1)
    expect(told.warnings).toEqual([expect.stringMatching(/not delivered: ECONNREFUSED$/)])
  })
})

describe('R5: the secret', () => {
  test.each([
    ['that others may read', 'x'.repeat(32), 0o640, 'webhook_secret_file_mode'],
    ['that is too short', 'x'.repeat(15), 0o600, 'invalid_webhook_secret'],
    ['that is not there', undefined, 0o600, 'webhook_secret_file_unreadable'],
  ])('%s is refused, and never shown', async (_, text, mode, code) => {
    const folder = await mkdtemp(join(tmpdir(), 'proposer-webhooks-'))
    leaving.push(() => rm(folder, { recursive: true }))
    const webhooks = [{ url: 'https://hooks.example/x', events: ['ready'], secret_file: './s' }]
    const loaded = { folder, config: testConfig({ webhooks }) } as never
    if (text !== undefined) await writeFile(join(folder, 's'), text, { mode })
    const refused = await webhooksOf(loaded).catch((error: unknown) => error)
    expect(refused).toMatchObject({ code, meta: { exitCode: 2 } })
    expect(JSON.stringify(refused)).not.toContain('xxx')
  })

  test('signs without its closing newline', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'proposer-webhooks-'))
    leaving.push(() => rm(folder, { recursive: true }))
    const webhooks = [{ url: 'https://hooks.example/x', events: ['ready'], secret_file: './s' }]
    await writeFile(join(folder, 's'), `${secret}\n`, { mode: 0o600 })
    expect(await webhooksOf({ folder, config: testConfig({ webhooks }) } as never)).toEqual([
      { url: 'https://hooks.example/x', events: ['ready'], secret },
    ])
    expect(signatureOf(secret, 7, '{}')).toBe(
      `t=7,v1=${createHmac('sha256', secret).update('7.{}').digest('hex')}`,
    )
  })
})
