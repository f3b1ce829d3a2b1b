import {
  countFaults,
  type FaultScript,
  type FaultWorld,
  faultCall,
  parseFaultScript,
  requireKnownSlugs,
  withFaults,
} from '#io/serving/fault-script'
import { UsageError } from '#protocol/errors'
import { rawCall } from '#support/front'

const drop = { act: 'drop', when: 'after' } as const
const script = (...rules: unknown[]): FaultScript => parseFaultScript({ rules }, 'script.json')
const refusal = (raw: unknown): string => {
  try {
    parseFaultScript(raw, 'script.json')
  } catch (error) {
    if (error instanceof UsageError && error.code === 'faults_invalid') return error.detail
    throw error
  }
  throw new Error('the script was taken')
}
const oneRule = (on: unknown, act: unknown = drop) => ({ rules: [{ on, do: act }] })

test.each([
  [[], 'it must be one JSON object'],
  [{}, 'rules must be a list of rules'],
  [{ rules: [] }, 'rules must hold at least one rule'],
  [{ rules: [{ on: { route: 'any' }, do: drop }], seed: 1 }, '"seed" is an unknown key'],
  [oneRule({ route: 'submit', nht: 1 }), '"rules.0.on.nht" is an unknown key'],
  [oneRule({ route: 'submit' }, { ...drop, ms: 1 }), '"rules.0.do.ms" is an unknown key'],
  [oneRule({ route: 'propose' }), 'rules.0.on.route must be one of "eligibility"'],
  [oneRule({}), 'rules.0.on.route must be one of'],
  [oneRule({ route: 'submit', nth: 0 }), 'rules.0.on.nth must be a whole number from 1'],
  [
    oneRule({ route: 'submit', nth: 1, every: 2 }),
    'rules.0.on must have only one of nth, every, and from with to',
  ],
  [oneRule({ route: 'submit', from: 3, to: 2 }), 'rules.0.on must have from no greater than to'],
  [
    oneRule({ route: 'batch submit', question: 'a-b' }),
    'rules.0.on may name a question with "signing-data"',
  ],
  [
    oneRule({ route: 'submit', question: '../x' }),
    'rules.0.on.question must be a slug or a question id',
  ],
  [
    oneRule({ route: 'submit' }, { act: 'explode' }),
    'rules.0.do.act must have an act, one of "drop", "stall"',
  ],
  [oneRule({ route: 'submit' }, { act: 'drop' }), 'rules.0.do.when must be "before" or "after"'],
  [
    oneRule({ route: 'submit' }, { act: 'answer', when: 'before', status: 500 }),
    'rules.0.do.status must be 429, 502, 503 or 504',
  ],
  [
    oneRule({ route: 'submit' }, { act: 'answer', when: 'after', status: 503 }),
    'rules.0.do.when must be "before" with 429 and 503',
  ],
  [
    oneRule({ route: 'submit' }, { act: 'delay', when: 'before' }),
    'rules.0.do.milliseconds must be a whole number',
  ],
  [oneRule({ route: 'any' }, { act: 'advance_round' }), 'rules.0.do must name a question'],
])(
  'contract §6: a script with a fault is refused with the key and what it must be: %j',
  (raw, told) => {
    expect(refusal(raw)).toContain(`script.json: ${told}`)
  },
)

test('contract §6: a slug that no question has is refused with its place, in what a rule is about and in what it does; a question id is not', () => {
  const id = `0x${'ab'.repeat(32)}`
  const known = (...rules: unknown[]) => requireKnownSlugs(script(...rules), ['some-slug', 'other'])
  const advance = { act: 'advance_round', question: 'nothing' }
  expect(() => known({ on: { route: 'submit', question: 'nothing' }, do: drop })).toThrow(
    'rules.0.on.question is a slug that no question',
  )
  expect(() =>
    known({ on: { route: 'any' }, do: drop }, { on: { route: 'any' }, do: advance }),
  ).toThrow('rules.1.do.question is a slug')
  for (const question of [id, 'some-slug', 'other']) {
    known({ on: { route: 'submit', question }, do: { act: 'advance_round', question } })
  }
  known({ on: { route: 'submit' }, do: { act: 'advance_round' } })
})

test('R5, R20: a refusal never repeats a value', () => {
  expect(
    refusal(oneRule({ route: 'SECRET', question: 'SECRET' }, { act: 'SECRET' })),
  ).not.toContain('SECRET')
})

test('§4: each route of the API has a name, and health and unknown routes have none', () => {
  const id = `0x${'ab'.repeat(32)}`
  const calls = [
    ['POST', `/v1/proposals/${id}`],
    ['GET', '/v1/proposals/some-slug/status/00000000-0000-4000-8000-000000000000'],
    ['POST', '/v1/proposals/some-slug/signing-data'],
    ['POST', '/propose/batch'],
    ['POST', '/propose/batch/status'],
    ['POST', '/propose/batch/signing-data'],
    ['GET', `/v1/proposals/eligibility/0x${'11'.repeat(20)}`],
    ['GET', '/healthz'],
    ['POST', '/v1/proposals/eligibility'],
    ['GET', `/v1/proposals/${id}`],
  ] as const
  expect(calls.map(([method, target]) => faultCall(method, target)?.route)).toEqual([
    ...[
      'submit',
      'status',
      'signing-data',
      'batch submit',
      'batch status',
      'batch signing-data',
      'eligibility',
    ],
    ...[undefined, undefined, undefined],
  ])
  expect(faultCall('POST', `/v1/proposals/${id}`)?.question).toBe(id)
})

test('contract §6: nth, every and from–to name calls by count, each rule counting its own, whatever rules before it did', () => {
  const counter = countFaults(
    script(
      { on: { route: 'submit', nth: 2 }, do: drop },
      { on: { route: 'any', every: 3 }, do: drop },
      { on: { route: 'submit', from: 2, to: 3 }, do: drop },
      { on: { route: 'submit', question: 'known-as-b' }, do: drop },
      { on: { route: 'submit', from: 4 }, do: drop },
    ),
    (one, other) => one === other || (one === 'known-as-b' && other === 'b'),
  )
  const met = ['a', 'b', 'a', 'a'].map((question) =>
    counter.meet({ route: 'submit', question }).map(({ number }) => number),
  )
  expect(met).toEqual([[], [1, 3, 4], [2, 3], [5]])
  expect(counter.meet({ route: 'status', question: 'b' })).toEqual([])
  expect(counter.counts()).toEqual([4, 5, 4, 1, 4])
})

function bench(...rules: unknown[]) {
  const done: string[] = []
  let stop = () => {}
  const world: FaultWorld = {
    advanceRound: async (question) => {
      done.push(`round of ${question}`)
      return undefined
    },
    loseChain: async (seconds) => void done.push(`chain lost ${seconds}`),
    skewClock: (seconds) => void done.push(`clock ${seconds}`),
    sameQuestion: (one, other) => one === other,
    sleep: async (ms) => void done.push(`slept ${ms}`),
    stopping: new Promise((resolve) => {
      stop = resolve
    }),
    note: (line) => void done.push(line),
  }
  const faulty = withFaults(
    async () => {
      done.push('gateway')
      return { status: 202, headers: {}, body: '{}' }
    },
    script(...rules),
    world,
  )
  const call = async (target = '/v1/proposals/q', more: object = {}) => {
    const answered = await faulty.handle(rawCall({ target, ...more }))
    return answered === undefined ? Response.error() : new Response(answered.body, answered)
  }
  return { done, call, faulty, stop: () => stop() }
}

describe('contract §6: a handler with a fault script', () => {
  test('before: the gateway never sees the call; after: it has dealt with it', async () => {
    const { done, call } = bench(
      { on: { route: 'submit', nth: 1 }, do: { act: 'drop', when: 'before' } },
      { on: { route: 'submit', nth: 2 }, do: drop },
      { on: { route: 'submit', nth: 3 }, do: { act: 'answer', when: 'after', status: 502 } },
    )
    const before = await call()
    expect([before.type, done]).toEqual([
      'error',
      ['fault: rule 1, call 1 of submit: the connection is reset before the gateway sees the call'],
    ])
    expect((await call()).type).toBe('error')
    expect(done.slice(1)).toEqual([
      'gateway',
      'fault: rule 2, call 2 of submit: the connection is reset after the gateway has dealt with the call',
    ])
    const bad = await call()
    expect([bad.status, bad.headers.get('content-type'), await bad.text()]).toEqual([
      502,
      'text/html',
      expect.stringContaining('Bad Gateway'),
    ])
    expect(done.filter((one) => one === 'gateway')).toHaveLength(2)
    expect((await call()).status).toBe(202)
  })

  test('robustness §6: 429 and 503 are application JSON, with Retry-After and in the detail where the script says so', async () => {
    const { call } = bench(
      {
        on: { route: 'submit', nth: 1 },
        do: { act: 'answer', when: 'before', status: 429, retry_after_seconds: 7 },
      },
      { on: { route: 'submit', nth: 2 }, do: { act: 'answer', when: 'before', status: 429 } },
      {
        on: { route: 'submit', nth: 3 },
        do: { act: 'answer', when: 'before', status: 503, retry_after_seconds: 1 },
      },
    )
    const told = []
    for (const _ of [1, 2, 3]) {
      const answer = await call()
      const { error } = (await answer.json()) as { error: { code: string; detail: string } }
      told.push([
        answer.status,
        answer.headers.get('retry-after'),
        error.code,
        /retry in (\d+) seconds/.exec(error.detail)?.[1],
      ])
    }
    expect(told).toEqual([
      [429, '7', 'rate_limited', '7'],
      [429, null, 'rate_limited', undefined],
      [503, '1', 'server_busy', '1'],
    ])
  })

  test('rules that a call meets are carried out in order, up to the first that takes the answer away, and are counted', async () => {
    const { done, call, faulty } = bench(
      { on: { route: 'submit' }, do: { act: 'delay', when: 'after', milliseconds: 5 } },
      { on: { route: 'submit' }, do: { act: 'advance_round' } },
      { on: { route: 'submit' }, do: { act: 'lose_chain', seconds: 9 } },
      { on: { route: 'submit' }, do: { act: 'skew_clock', seconds: -4 } },
      { on: { route: 'submit', nth: 2 }, do: { act: 'drop', when: 'before' } },
      { on: { route: 'submit', nth: 2 }, do: { act: 'skew_clock', seconds: 0 } },
    )
    expect((await call()).status).toBe(202)
    expect(done.filter((one) => !one.startsWith('fault:'))).toEqual([
      'round of q',
      'chain lost 9',
      'clock -4',
      'gateway',
      'slept 5',
    ])
    expect((await call()).type).toBe('error')
    expect(done.filter((one) => one === 'gateway')).toHaveLength(1)
    expect(faulty.counts().rules.map(({ calls, fired }) => [calls, fired])).toEqual([
      [2, 1],
      [2, 2],
      [2, 2],
      [2, 2],
      [2, 1],
      [2, 0],
    ])
  })

  test('R23: a call that gets no answer is let go of when the server stops', async () => {
    const { call, stop } = bench({ on: { route: 'submit' }, do: { act: 'stall', when: 'after' } })
    const answer = call()
    stop()
    expect((await answer).type).toBe('error')
  })

  test('a call that no rule is about goes through as it is, and one that the listener refused is not counted', async () => {
    const { done, call, faulty } = bench({
      on: { route: 'submit' },
      do: { act: 'drop', when: 'before' },
    })
    expect((await call('/propose/batch')).status).toBe(202)
    await call('/v1/proposals/q', { refused: { status: 400, code: 'bad_request', detail: 'x' } })
    expect(done).toEqual(['gateway', 'gateway'])
    expect(faulty.counts().rules).toMatchObject([{ calls: 0, fired: 0, do: { act: 'drop' } }])
  })
})
