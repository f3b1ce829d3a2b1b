/**
 * `serve --dev --faults` through the front door: what each act does to `proposer submit`, and that
 * a replay settles it (contract §6, R7).
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { exampleQuestion } from '#devchain/dev-artifacts'
import type { CandidateStatus } from '#protocol/schema'
import { argvOf } from '#support/argv'
import { type Running, workshop } from '#support/processes'
import { type Client, makeClient, proposals, type ServeReady } from '#support/proposing'

const shop = workshop()

const drop = (when: string) => ({ act: 'drop', when })
const answer = (status: number, when: string, retryAfterSeconds?: number) => ({
  act: 'answer',
  status,
  when,
  ...(retryAfterSeconds === undefined ? {} : { retry_after_seconds: retryAfterSeconds }),
})
const enough = answer(503, 'before', 300)

type Case = readonly [
  name: string,
  acts: readonly object[],
  exit: number,
  state: string,
  replayed: 'accepted' | 'replayed',
]
const cases: readonly Case[] = [
  ['the answer is dropped after the commit', [drop('after'), enough], 6, 'unknown', 'replayed'],
  ['502 before the commit', [answer(502, 'before', 300)], 6, 'unknown', 'accepted'],
  ['429 without Retry-After', [answer(429, 'before'), enough], 75, 'deferred', 'accepted'],
  [
    'an answer slower than the patience of the caller',
    [{ act: 'delay', when: 'before', milliseconds: 600_000 }],
    6,
    'unknown',
    'accepted',
  ],
]
const slugOf = (n: number) => exampleQuestion(n).slug
const [batchQuestion, raceQuestion, advancedQuestion, slowQuestion] = [0, 1, 2, 3].map((n) =>
  slugOf(cases.length + n),
) as [string, string, string, string]

const script = {
  rules: [
    ...cases.flatMap(([, acts], n) =>
      acts.map((act, at) => ({
        on: { route: 'submit', question: slugOf(n), nth: at + 1 },
        do: act,
      })),
    ),
    { on: { route: 'batch submit', nth: 1 }, do: answer(502, 'after', 300) },
    { on: { route: 'submit', question: raceQuestion, nth: 1 }, do: { act: 'advance_round' } },
    { on: { route: 'submit', question: advancedQuestion, nth: 1 }, do: drop('after') },
    { on: { route: 'submit', question: advancedQuestion, nth: 2 }, do: { act: 'advance_round' } },
    {
      on: { route: 'submit', question: slowQuestion, nth: 1 },
      do: { act: 'delay', when: 'before', milliseconds: 200 },
    },
    {
      on: { route: 'submit', question: slowQuestion, nth: 1 },
      do: { act: 'delay', when: 'after', milliseconds: 200 },
    },
    { on: { route: 'status', nth: 1 }, do: answer(502, 'before') },
  ],
}

const unjudged = { ANSWERS_FILE: '/dev/null' }

async function serve(
  rules: object,
  more: readonly string[],
): Promise<{ server: Running; ready: ServeReady }> {
  const folder = await shop.folder()
  const path = join(folder, 'faults.json')
  await writeFile(path, JSON.stringify(rules))
  const server = shop.start(argvOf`serve --dev --port 0 --json --faults ${path} ${more}`, {
    env: { TMPDIR: folder, ...unjudged },
  })
  return { server, ready: await server.line<ServeReady>() }
}

interface Entry {
  readonly journal_id: string
  readonly question_id: string
  readonly state: string
  readonly candidate_id: string | null
}
const stateOf = async (client: Client, slug: string): Promise<string[]> => {
  const { answer } = await client.ask('journal', 'list')
  const id = ready.dev.trust.slugs[slug]
  return (answer.authorizations as Entry[])
    .filter(({ question_id }) => question_id === id)
    .map(({ state }) => state)
}
const replay = async (client: Client, slug: string) => {
  const { answer: list } = await client.ask('journal', 'list')
  const id = ready.dev.trust.slugs[slug]
  const [entry] = (list.authorizations as Entry[]).filter(({ question_id }) => question_id === id)
  // What it remembers of a spent budget would have it wait for the next window (§8).
  await rm(join(String(client.env.PROPOSER_HOME), 'budget'), { recursive: true, force: true })
  return client.ask('replay', String(entry?.journal_id))
}

let server: Running
let ready: ServeReady
let client: Client

describe('contract §6: serve --dev --faults', () => {
  beforeAll(async () => {
    ;({ server, ready } = await serve(
      script,
      argvOf`--questions ${String(cases.length + 4)}
      --set budget.per_ip_items=1000`,
    ))
    client = await makeClient(shop, ready.dev, {
      PROPOSER_GATEWAY: ready.url,
      PROPOSER_RPC_URL: ready.dev.rpc_url,
    })
  })

  test.each(cases.map((one, n) => [...one, slugOf(n)] as const))(
    'R7: %s: submit exits as it must, and replay settles it',
    async (...given) => {
      const [, acts, exit, state, replayed, slug] = given
      // What is told to come back in five minutes ends by itself; the others have their patience
      // cut short.
      const isTold = acts.some((act) => 'retry_after_seconds' in act)
      const submitted = await client.ask(
        'submit',
        slug,
        '--outcome',
        'p2',
        ...(isTold ? [] : ['--timeout', '4']),
      )
      expect(submitted).toMatchObject({ code: exit, answer: { exit_code: exit } })
      expect(await stateOf(client, slug)).toEqual([state])
      expect(await replay(client, slug)).toMatchObject({
        code: 0,
        answer: { results: [{ outcome: replayed, error: null }] },
      })
      expect(await stateOf(client, slug)).toEqual(['accepted'])
    },
  )

  test('R7: a batch whose answer is a page of HTML exits 6, and replay settles its items', async () => {
    const line = JSON.stringify({ identifier: batchQuestion, outcome: 'p2', client_ref: 'b' })
    const ended = await shop.run(argvOf`batch submit - --json --yes`, {
      env: client.env,
      stdin: line,
    })
    expect(ended.code).toBe(6)
    expect(JSON.parse(ended.stdout)).toMatchObject({ results: [{ outcome: 'unknown' }] })
    expect(await replay(client, batchQuestion)).toMatchObject({
      code: 0,
      answer: { results: [{ outcome: 'replayed' }] },
    })
  })

  test('§7 rule 3: a round that ends under way refuses the signature with exit 4, and a new one for the new round is admitted', async () => {
    expect(await client.ask('submit', raceQuestion, '--outcome', 'p2')).toMatchObject({
      code: 4,
      answer: { code: 'signature_not_authorized' },
    })
    expect(await client.ask('submit', raceQuestion, '--outcome', 'p2')).toMatchObject({
      code: 0,
      answer: { outcome: 'accepted' },
    })
  })

  test('§7 rule 3: a round that ends while the outcome is unknown is exit 5 with the out-of-band line; a replay says the same', async () => {
    const submitted = await client.ask('submit', advancedQuestion, '--outcome', 'p2')
    expect(server.stderr()).toContain(
      `call 2 of submit: ${ready.dev.trust.slugs[advancedQuestion]} is in a new round`,
    )
    expect(submitted).toMatchObject({ code: 5, answer: { exit_code: 5 } })
    expect(await replay(client, advancedQuestion)).toMatchObject({
      code: 5,
      answer: { code: 'round_over' },
    })
  })

  test('a slow answer is an answer, and a call that admits nothing exits 75 where a proxy answers it', async () => {
    const submitted = await client.ask('submit', slowQuestion, '--outcome', 'p2')
    expect(submitted).toMatchObject({ code: 0, answer: { outcome: 'accepted' } })
    const candidate = String(submitted.answer.candidate_id)
    expect((await client.ask('status', candidate)).code).toBe(75)
    expect((await client.ask('status', candidate)).code).toBe(0)
  })

  test('R3: after all of it each accepted round has one proposal; each rule that fired is a line on stderr and a count for the operator', async () => {
    // By id: what a replay saw executed already is none of `poll --all`.
    const { answer: listed } = await client.ask('journal', 'list')
    const ids = (listed.authorizations as Entry[]).flatMap(({ candidate_id }) => candidate_id ?? [])
    const polled = await shop.run(argvOf`poll ${ids} --timeout 60 --json --yes`, {
      env: client.env,
    })
    const { candidates } = JSON.parse(polled.stdout) as { candidates: CandidateStatus[] }
    const executed = candidates.filter(({ status }) => status === 'executed')
    const others = candidates.filter(({ status }) => status !== 'executed')
    expect(executed.length, JSON.stringify(others)).toBeGreaterThanOrEqual(cases.length + 3)
    const told = executed.map(
      ({ submission }) => `${submission?.transaction_hash} ${submission?.proposal_event_index}`,
    )
    const onChain = (await proposals(ready.dev, client.proposer)).map(
      (log) => `${log.transactionHash} ${Number(log.logIndex)}`,
    )
    // A proposal of the round that was ended under way may be there beside them, its answer was
    // lost.
    expect(onChain).toEqual(expect.arrayContaining(told))
    expect(onChain.length - told.length).toBeLessThanOrEqual(1)
    expect(new Set(told).size).toBe(told.length)
    expect(listed.authorizations).toHaveLength(cases.length + 5)
    expect(
      server.stderr().match(/^{.*"event":"note","message":"fault: rule \d+, call \d+ of .*}$/gm),
    ).toHaveLength(script.rules.length)
    const { rules } = (await (await fetch(`${ready.admin_url}/operator/faults`)).json()) as {
      rules: { fired: number }[]
    }
    expect(rules.map(({ fired }) => fired)).toEqual(script.rules.map(() => 1))
    expect((await server.stop()).code).toBe(0)
  })
})

describe('contract §6: serve --dev --faults, chain and clock', () => {
  test('R16: without its node and with a wrong clock the gateway admits nothing (75), and takes the same bytes once it knows again', async () => {
    const [lost, skewed] = [slugOf(0), slugOf(1)]
    const rules = [
      { on: { route: 'submit', question: lost, nth: 1 }, do: { act: 'lose_chain', seconds: 12 } },
      { on: { route: 'submit', question: lost, nth: 2 }, do: enough },
      {
        on: { route: 'submit', question: skewed, nth: 1 },
        do: { act: 'skew_clock', seconds: 3_600 },
      },
      { on: { route: 'submit', question: skewed, nth: 2 }, do: enough },
      { on: { route: 'submit', question: skewed, nth: 3 }, do: { act: 'skew_clock', seconds: 0 } },
      { on: { route: 'eligibility', nth: 1 }, do: { act: 'lose_chain', seconds: 1 } },
    ]
    const second = await serve(
      { rules },
      argvOf`--questions 2 --set
      chain.max_head_age_seconds=6`,
    )
    ready = second.ready
    const other = await makeClient(shop, ready.dev, {
      PROPOSER_GATEWAY: ready.url,
      PROPOSER_RPC_URL: ready.dev.rpc_url,
    })
    for (const slug of [lost, skewed]) {
      const { code, stderr } = await shop.run(argvOf`submit ${slug} --outcome p2 --yes`, {
        env: other.env,
      })
      expect(code).toBe(75)
      expect(stderr).toMatch(
        /attempt 1: the chain's state is not known: the newest block is \d+ s old/,
      )
      expect(await stateOf(other, slug)).toEqual(['deferred'])
      expect(await replay(other, slug)).toMatchObject({
        code: 0,
        answer: { results: [{ outcome: 'accepted' }] },
      })
    }
    expect((await fetch(`${ready.url}/v1/proposals/eligibility/${other.proposer}`)).status).toBe(
      200,
    )
    const ended = await second.server.stop()
    expect([ended.code, ended.stderr]).toEqual([
      0,
      expect.stringContaining('"detail":"fault: the node is back before the gateway notices: 1 s '),
    ])
  })

  test.each([
    [
      'without --dev',
      [],
      { rules: [{ on: { route: 'any' }, do: { act: 'drop', when: 'after' } }] },
      'usage',
    ],
    [
      'with a slug that no question has',
      argvOf`--dev --questions 1`,
      {
        rules: [
          {
            on: { route: 'submit', question: 'no-such-question' },
            do: { act: 'drop', when: 'after' },
          },
        ],
      },
      'faults_invalid',
    ],
  ])(
    'a script is refused %s with exit 2 and a sentence, and nothing is started',
    async (_, flags, rules, code) => {
      const path = join(await shop.folder(), 'faults.json')
      await writeFile(path, JSON.stringify(rules))
      const ended = await shop.run(argvOf`serve ${flags} --port 0 --faults ${path} --json`)
      expect([ended.code, ended.stdout]).toEqual([2, ''])
      expect(JSON.parse(ended.stderr.trim().split('\n').at(-1) ?? '').error).toMatchObject({
        code,
        exit_code: 2,
        hint: expect.stringMatching(/.{5}/),
      })
    },
  )

  test('the worked example of docs/ci.md runs as it stands: exit 6, replay, executed', async () => {
    const here = import.meta.dirname
    const folder = await shop.folder()
    const command = join(folder, 'proposer')
    await writeFile(
      command,
      `#!/bin/sh\nexec '${process.execPath}' '${join(here, '..', '..', 'bin', 'proposer.js')}' "$@"\n`,
    )
    await chmod(command, 0o700)
    const child = spawn('bash', [join(here, 'serve-faults.sh')], {
      env: {
        PATH: `${folder}:${dirname(process.execPath)}:${process.env.PATH}`,
        TMPDIR: folder,
        NO_COLOR: '1',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [[code], stdout, stderr] = await Promise.all([
      once(child, 'close'),
      text(child.stdout),
      text(child.stderr),
    ])
    expect([code, stdout]).toEqual([0, expect.stringContaining('executed')])
    expect(stdout.match(/^fault: rule \d/gm)).toEqual(['fault: rule 1', 'fault: rule 2'])
    expect(stderr).toContain('proposer replay')
  })
})
