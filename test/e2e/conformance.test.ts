/**
 * `conformance` as a command: against a gateway of our own over sockets and in process, and what it
 * prints.
 */
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { at, listAt } from '#conformance/probe'
import { rules, rulesNamed } from '#conformance/run'
import { argvOf } from '#support/argv'
import { type RunOptions, run } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import { workshop } from '#support/processes'
import { makeClient, proposals, type ServeReady } from '#support/proposing'
import {
  type Fault,
  isContexts,
  isStatus,
  type Json,
  lyingAboutBonds,
  pages,
  tells,
} from '#support/wrong-gateway/between'
import { faultThat } from '#support/wrong-gateway/faults'
import { openWrongWorld, type WrongWorld } from '#support/wrong-gateway/world'

const shop = workshop()

interface Report {
  readonly checks: readonly {
    readonly id: string
    readonly section: string
    readonly result: string
    readonly detail: string
  }[]
  readonly summary: Record<string, number>
}

describe('conformance --dev', () => {
  test('ux: one command starts a gateway, checks it and leaves nothing', async () => {
    const [TMPDIR, PROPOSER_HOME] = [await shop.folder(), join(await shop.folder(), 'home')]
    const argv = argvOf`conformance --dev --only 2.7 --json`
    const { code, stdout, stderr } = await shop.run(argv, { env: { TMPDIR, PROPOSER_HOME } })
    expect(code, stderr).toBe(0)
    expect(JSON.parse(stdout).summary).toMatchObject({ failed: 0, skipped: 0 })
    expect(await readdir(TMPDIR)).toEqual([])
    expect(await readdir(PROPOSER_HOME).catch(() => [])).toEqual([])
  })

  test('contract §6: beside another gateway it is refused', async () => {
    const argv = argvOf`conformance --dev --gateway https://gateway.example --json`
    const { code, stderr } = await shop.run(argv)
    expect([code, JSON.parse(stderr).error.code]).toEqual([2, 'usage'])
  })
})

describe('conformance against serve --dev', () => {
  let ready: ServeReady
  let folder: string
  let home: string

  beforeAll(async () => {
    folder = await shop.folder()
    home = join(folder, 'home')
    await mkdir(home, { mode: 0o700 })
    const budget = argvOf`--set budget.per_ip_items=450 --set budget.window_seconds=4`
    const server = shop.start(
      [
        ...argvOf`serve --dev --port 0 --questions 8 --json ${budget}`,
        ...['--set', `receipts=${JSON.stringify({ key_file: join(folder, 'receipt-key.json') })}`],
      ],
      {
        env: { TMPDIR: await shop.folder() },
      },
    )
    ready = await server.line<ServeReady>()
    await writeFile(join(folder, 'ready.json'), `${JSON.stringify(ready)}\n`)
  })

  test('contract §6: every check passes, as a list on stdout and as JUnit in a file', async () => {
    const junit = join(folder, 'report.xml')
    const { code, stdout, stderr } = await shop.run(
      ['conformance', '--dev-ready', join(folder, 'ready.json'), '--junit', junit],
      {
        env: { PROPOSER_HOME: home },
      },
    )
    expect(code, stdout + stderr).toBe(0)
    expect(stdout.trimEnd().split('\n')).toEqual([
      ...rules.map(({ id }) => `ok    ${id}`),
      '',
      `${rules.length} checks: ${rules.length} passed, 0 failed, 0 skipped`,
    ])
    const xml = await readFile(junit, 'utf8')
    expect((await stat(junit)).mode & 0o777).toBe(0o666 & ~process.umask())
    expect(xml).toContain(
      `<testsuite name="conformance" tests="${rules.length}" failures="0" skipped="0"`,
    )
    expect(xml.match(/<testcase /g)).toHaveLength(rules.length)
  })

  test('R4: what was signed and sent is in the journal, and the journal proves whole', async () => {
    const env = { PROPOSER_HOME: home }
    expect(await shop.run(['journal', 'verify'], { env })).toMatchObject({ code: 0 })
    const listed = await shop.run(argvOf`journal list --json`, { env })
    expect(JSON.parse(listed.stdout).authorizations.length).toBeGreaterThan(5)
  })

  test('contract §6: --only, the ready line on stdin, and the JSON document', async () => {
    const args = argvOf`conformance --dev-ready - --read-only --only
      1-trailing-slash,4.1.3-new --json`
    const { code, stdout, stderr } = await shop.run(args, {
      env: { PROPOSER_HOME: home },
      stdin: JSON.stringify(ready),
    })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const report: Report = JSON.parse(stdout)
    expect(Object.keys(report).slice(0, 3)).toEqual(['schema', 'checks', 'summary'])
    expect(report).toMatchObject({
      schema: 'proposer.conformance/1',
      summary: { total: 2, passed: 1, failed: 0, skipped: 1 },
    })
    expect(report.checks).toEqual([
      { id: '1-trailing-slash', section: '§1', result: 'pass', detail: '404 route_not_found' },
      {
        id: '4.1.3-new',
        section: '§4.1 rule 3',
        result: 'skip',
        detail: expect.stringContaining('--read-only'),
      },
    ])
  })
})

describe('conformance in process', () => {
  test('contract §6: --local passes without a socket; the budget is skipped, and nothing is proposed on chain', async () => {
    const { chain, dev, folder } = await shop.devChain(4)
    const client = await makeClient(shop, dev, {})
    const questions = dev.questions.flatMap(({ slug }) => ['--question', slug])
    const ended = await shop.run(
      argvOf`conformance --local ${join(folder, 'gateway.json')} ${questions} --overrun-budget
        --json`,
      {
        env: client.env,
      },
    )
    expect(ended).toMatchObject({ code: 0 })
    const { checks }: Report = JSON.parse(ended.stdout)
    expect(checks.filter(({ result }) => result === 'fail')).toEqual([])
    const skipped = checks.filter(({ result }) => result === 'skip')
    const expected = rules.filter(
      ({ id, tier }) =>
        tier === 'execute' ||
        tier === 'overrun' ||
        /^8-|^receipt-|-conflict$|^2.7-as-on-chain$/.test(id),
    )
    // Whether the first payload is still active when its rival comes is up to the pipeline.
    expect(expected.map(({ id }) => id)).toEqual(
      expect.arrayContaining(skipped.map(({ id }) => id)),
    )
    expect(skipped.every(({ detail }) => detail.length > 20)).toBe(true)
    expect(await proposals(dev, client.proposer)).toEqual([])
    await chain.stop()
  })
})

describe('conformance without a process', () => {
  const home = temporaryFolder()

  async function against(
    wrong: string | Fault['make'],
    args: readonly string[],
    more: RunOptions = {},
  ) {
    const make = typeof wrong === 'string' ? faultThat(wrong).make : wrong
    const world = await openWrongWorld(make)
    const { trust, questions, ports } = world.parts
    await writeFile(join(home, 'trust.json'), JSON.stringify(trust))
    const flags = [
      '--read-only',
      '--trust',
      'trust.json',
      '--question',
      questions[0]?.questionId ?? '',
    ]
    return run(home, ['conformance', 'http://localhost:8787', ...flags, ...args], {
      fetch: world.fetch,
      clock: ports.clock,
      ...more,
    })
  }

  test('contract §6: a broken rule is exit 3; the list says what was sent, what came and what the spec says', async () => {
    const { code, stdout, stderr } = await against('takes fields it does not know', [
      '--only',
      '2.1-extra-field',
    ])
    expect(code).toBe(3)
    expect(stderr).toContain('2.1-extra-field')
    const sent = 'sent POST /v1/proposals/0x[0-9a-f]{64} with undocumented_field 1'
    expect(stdout).toMatch(
      new RegExp(
        `^FAIL {2}2\\.1-extra-field\\n${sent}; got 403 \\w+, expected 400 or 422; §2\\.1: extra fields are rejected on submission\\n\\n1 check: 0 passed, 1 failed, 0 skipped\\n$`,
      ),
    )
  })

  const contextsThat = (change: (json: Json) => unknown) => tells(isContexts, change)
  test.each<readonly [string, Fault['make']]>([
    ['a page of HTML', pages(isContexts)],
    ['an empty object', contextsThat(() => ({}))],
    ['no results', contextsThat(() => ({ results: [] }))],
    [
      'every question 404',
      contextsThat((json) => ({
        results: listAt(json, 'results').map((one) => ({
          identifier: at(one, 'identifier'),
          status_code: 404,
          error: { code: 'question_not_found', detail: 'no' },
        })),
      })),
    ],
  ])(
    'contract §6: a batch of contexts that is 200 with %s is exit 3, whatever is chosen',
    async (_name, make) => {
      const whole = await against(make, ['--json'])
      expect(whole.code).toBe(3)
      const { checks }: Report = JSON.parse(whole.stdout)
      expect(checks.filter(({ result }) => result === 'fail').map(({ id }) => id)).toContain(
        '4.2-signing-data',
      )
      const one = await against(make, argvOf`--only 2.1-outcome-known --json`)
      expect([one.code, JSON.parse(one.stderr).error.code]).toEqual([3, 'no_usable_question'])
      expect((await against(make, ['--only', '1-trailing-slash'])).code).toBe(0)
    },
  )

  test('contract §6: a status that is 200 with a page of HTML is told at once, not waited for', async () => {
    const world = await openWrongWorld(pages(isStatus))
    const from = world.parts.ports.clock.monotonicMs()
    const checks = await world.run(rulesNamed('2.6').filter(({ tier }) => tier === 'admit'))
    expect(checks.filter(({ result }) => result === 'fail')).not.toEqual([])
    expect(world.parts.ports.clock.monotonicMs() - from).toBeLessThan(20_000)
  })

  test('contract §6: JUnit on stdout has the failure, and no list', async () => {
    const { code, stdout } = await against(
      'serves a trailing slash everywhere',
      argvOf`--only
      1-trailing-slash --junit -`,
    )
    expect(code).toBe(3)
    expect(stdout).toMatch(
      /^<\?xml [^\n]*\n<testsuites name="proposer conformance" tests="1" failures="1" skipped="0"/,
    )
    expect(stdout).toMatch(
      /<failure message="sent GET \/v1\/proposals\/eligibility\/0x[0-9a-f]{40}\/ with a trailing slash; got 200/,
    )
  })

  test('contract §6: --only takes a section, and its ids begin with it', async () => {
    const { stdout } = await run(home, argvOf`conformance --list --only 2.7,4.2.2 --json`)
    const ids = JSON.parse(stdout).checks.map(({ id }: { id: string }) => id)
    expect(ids).toEqual(rules.map(({ id }) => id).filter((id) => /^(2\.7|4\.2\.2)-/.test(id)))
    expect(ids.length).toBeGreaterThan(10)
  })

  test('§8: a section of checks fits one default window, but for those that send whole batches', () => {
    const sections = new Set(rules.map(({ id }) => id.slice(0, id.indexOf('-'))))
    const itemsOf = (section: string) =>
      rulesNamed(section).reduce((sum, { items }) => sum + items, 0)
    const large = [...sections].filter((section) => itemsOf(section) > 105)
    expect(large.sort()).toEqual(['4.2', '4.2.1', '8'])
  })

  test('contract §6: --list names every check with its section, and the rules that nobody can see', async () => {
    const { code, stdout } = await run(home, argvOf`conformance --list --json`)
    expect(code).toBe(0)
    const { checks, unseen } = JSON.parse(stdout)
    expect(checks.map(({ id }: { id: string }) => id)).toEqual(rules.map(({ id }) => id))
    expect(unseen.length).toBeGreaterThan(10)
  })

  test.each([
    [['--only', 'no-such-check'], 'unknown_check'],
    [['--only', '8-charged-by-item'], 'unknown_check'],
    [argvOf`http://localhost:1 --local gateway.json`, 'usage'],
    [argvOf`http://localhost:1 --read-only --allow-execution`, 'usage'],
    [argvOf`http://localhost:1 --junit -`, 'usage'],
    [['--read-only'], 'no_gateway'],
    [['http://elsewhere.example', '--read-only'], 'invalid_base_url'],
    [['--dev-ready', '-'], 'no_ready_line'],
    [argvOf`http://localhost:1 --trust trust.json`, 'no_account'],
    [
      argvOf`http://localhost:1 --read-only --trust trust.json --question some-slug`,
      'untrusted_slug',
    ],
    [argvOf`http://localhost:1 --trust trust.json --allow-execution`, 'confirmation_needed'],
  ])('contract §6: conformance %j is exit 2 with a hint', async (args, code) => {
    await writeFile(join(home, 'trust.json'), JSON.stringify((await openWrongWorld()).parts.trust))
    const trust =
      code === 'no_gateway' || code === 'invalid_base_url' ? ['--trust', 'trust.json'] : []
    const {
      code: exit,
      stderr,
      stdout,
    } = await run(home, ['conformance', ...args, ...trust, '--json'], { stdin: '{}' })
    expect({ exit, stdout }).toEqual({ exit: 2, stdout: '' })
    expect(JSON.parse(stderr).error).toMatchObject({ code, hint: expect.stringMatching(/.{5}/) })
  })

  describe("--allow-execution with money of one's own", () => {
    const bond =
      /goes on chain: p2 \(Yes\) on question-five \(0x[0-9a-f]{64}\), 7\d+ raw units of 0x[0-9a-f]{40} from 0x[0-9a-f]{40}/

    async function bet(world: WrongWorld, args: readonly string[], more: RunOptions = {}) {
      const folder = temporaryFolder()
      const { trust, questions, ports } = world.parts
      await writeFile(join(folder, 'trust.json'), JSON.stringify(trust))
      await writeFile(join(folder, 'key'), `${world.key}\n`, { mode: 0o600 })
      const named = questions.flatMap(({ questionId }) => ['--question', questionId])
      const flags = argvOf`--trust trust.json --allow-execution --only 2.6-stages ${named}
        ${args}`
      const options = {
        fetch: world.fetch,
        clock: ports.clock,
        chain: world.chain,
        env: { PROPOSER_KEY_FILE: join(folder, 'key') },
      }
      return await run(folder, ['conformance', 'http://localhost:8787', ...flags], {
        ...options,
        ...more,
      })
    }

    test('contract §6: on a terminal answer, amount and where the bond comes from are shown; n signs nothing', async () => {
      const world = await openWrongWorld()
      const ended = await bet(world, [], { interactive: true, stdin: 'n\n' })
      expect(ended.stderr.replaceAll(/\s+/g, ' ')).toMatch(bond)
      expect(ended.stderr).toContain('the bond is reported by the gateway')
      expect(ended.stdout).toContain('skip  2.6-stages\ndeclined; nothing was done')
      expect(world.ledger.active()).toEqual([])
    })

    test('contract §6: --yes is the word of a program: the same is told, and it executes', async () => {
      const world = await openWrongWorld()
      const ended = await bet(world, ['--yes'])
      expect(ended).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(/^ok {4}2\.6-stages$/m),
      })
      expect(ended.stderr).toMatch(bond)
    })

    test('contract §6: with --rpc-url the node confirms the bond', async () => {
      const ended = await bet(await openWrongWorld(), ['--yes', '--rpc-url', 'http://127.0.0.1:1'])
      expect(ended).toMatchObject({
        code: 0,
        stderr: expect.stringContaining('the bond is read from the node'),
      })
    })

    test('R21: with --rpc-url nothing is bet where the gateway tells another bond', async () => {
      const world = await openWrongWorld(lyingAboutBonds((told) => told + 1n))
      const ended = await bet(world, argvOf`--yes --rpc-url http://127.0.0.1:1`)
      expect(ended.stdout).toMatch(
        /^skip {2}2\.6-stages\nbond\.required_bond is \d+, the chain says \d+$/m,
      )
      expect(ended.stderr).not.toContain('goes on chain')
      expect(world.ledger.active()).toEqual([])
    })
  })

  test.each([
    [
      'a page of a proxy',
      async () => new Response('<html>', { status: 502, headers: { 'content-type': 'text/html' } }),
    ],
    [
      'an answer that is no JSON',
      async () => new Response('hello', { headers: { 'content-type': 'text/plain' } }),
    ],
  ])('contract §6: %s instead of a gateway is exit 75', async (_name, fetch) => {
    const { trust } = (await openWrongWorld()).parts
    await writeFile(join(home, 'trust.json'), JSON.stringify(trust))
    const args = argvOf`conformance http://localhost:8787 --read-only --trust trust.json
      --json`
    const { code, stderr } = await run(home, args, { fetch })
    expect(code).toBe(75)
    expect(JSON.parse(stderr).error).toMatchObject({ code: 'gateway_unreachable', retryable: true })
  })
})
