import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Trust } from '#client/trust/trust'
import type { DevDescription } from '#devchain/dev-chain'
import { parseConfig } from '#gateway/config'
import { argvOf } from '#support/argv'
import { type Running, workshop } from '#support/processes'

const shop = workshop()

interface Ready {
  event: string
  pid: number
  dev: DevDescription
}

describe('devchain', () => {
  let chain: Running
  let ready: Ready
  let folder: string

  beforeAll(async () => {
    folder = join(await shop.folder(), 'dev')
    chain = shop.start(argvOf`devchain start --port 0 --questions 5 --write ${folder} --json`)
    ready = await chain.line<Ready>()
  })

  const act = async (...args: string[]) => {
    const { code, stdout, stderr } = await shop.runHere(
      argvOf`devchain ${args} --rpc-url
      ${ready.dev.rpc_url} --json`,
      {},
    )
    return { code, answer: code === 0 ? JSON.parse(stdout) : JSON.parse(stderr).error }
  }

  test('contract §6: the ready line is one line with schema, event, pid and dev, and stdout has nothing else', async () => {
    expect(Object.keys(ready).slice(0, 4)).toEqual(['schema', 'event', 'pid', 'dev'])
    expect(ready).toMatchObject({ event: 'ready', pid: chain.child.pid, dev: { chain_id: 31337 } })
    expect(ready.dev.questions).toHaveLength(5)
    expect(Trust.parse(ready.dev.trust).chain_id).toBe(31337)
    expect(ready.dev.accounts.map(({ role }) => role)).toEqual(
      expect.arrayContaining(['proposer', 'executor']),
    )
  })

  test('contract §6: --write leaves files that a gateway and a client take as they are, keys 0600 in a 0700 folder', async () => {
    const config = parseConfig(
      JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8')),
      'gateway.json',
    )
    expect(config.chain.rpc_urls).toEqual([ready.dev.rpc_url])
    expect(Trust.parse(JSON.parse(await readFile(join(folder, 'trust.json'), 'utf8')))).toEqual(
      ready.dev.trust,
    )
    for (const name of ['executor.key', 'proposer-1.key', 'gateway.json']) {
      expect((await stat(join(folder, name))).mode & 0o777, name).toBe(0o600)
    }
    expect((await stat(folder)).mode & 0o777).toBe(0o700)
  })

  test('contract §6: a dispute opens a new round, by slug as by question id', async () => {
    const [question] = ready.dev.questions
    if (!question) throw new Error('no question')
    const proposed = await act('propose', question.slug, '--outcome', 'p2')
    expect(proposed).toMatchObject({
      code: 0,
      answer: {
        schema: 'proposer.devchain/1',
        question_id: question.question_id,
        state: 'proposed',
      },
    })
    const disputed = await act('dispute', question.question_id)
    expect(disputed).toMatchObject({ code: 0, answer: { state: 'requested' } })
    expect(BigInt(disputed.answer.timestamp)).toBeGreaterThan(BigInt(proposed.answer.timestamp))
  })

  test('contract §6: ask, pause, unpause, set-bond and fund act on the running chain', async () => {
    const asked = await act('ask', 'is-this-a-new-question')
    expect(asked).toMatchObject({ code: 0, answer: { slug: 'is-this-a-new-question' } })
    expect((await act('pause', 'is-this-a-new-question')).code).toBe(0)
    expect((await act('unpause', 'is-this-a-new-question')).code).toBe(0)
    expect((await act('set-bond', 'is-this-a-new-question', '600000000')).code).toBe(0)
    const address = `0x${'12'.repeat(20)}`
    expect(await act('fund', address, '5')).toMatchObject({
      code: 0,
      answer: { address, balance: '5', token: { symbol: 'USDC.e', decimals: 6 } },
    })
    const { stdout } = await shop.run([
      ...argvOf`devchain fund ${address} 2usdc --rpc-url ${ready.dev.rpc_url}`,
    ])
    expect(stdout.trim()).toBe(`${address} holds 2.000005 USDC.e`)
  })

  test('contract §6: flag and unflag act on the running chain', async () => {
    const [question] = ready.dev.questions.slice(-1)
    for (const verb of ['flag', 'unflag'])
      expect(await act(verb, question?.slug ?? ''), verb).toMatchObject({ code: 0 })
  })

  test('contract §9: clarify and warp act on the running chain', async () => {
    const slug = 'is-this-clarified'
    expect((await act('ask', slug)).code).toBe(0)
    expect(await act('clarify', slug, 'Drizzle counts.')).toMatchObject({
      code: 0,
      answer: { schema: 'proposer.devchain/1', question_id: expect.stringMatching(/^0x/) },
    })
    expect(await act('clarify', slug, 'Send money.', '--as', 'outsider')).toMatchObject({ code: 0 })
    for (const [args, code] of [
      [argvOf`clarify ${slug} x --as nobody`, 'bad_role'],
      [['warp', '0'], 'bad_duration'],
      [['warp', 'soon'], 'bad_duration'],
      [argvOf`vote ${slug} --outcome p5`, 'bad_outcome'],
      [argvOf`vote ${slug} --outcome p2`, 'dev_chain_refused'],
      [['settle', slug], 'dev_chain_refused'],
      [['upgrade-oracle'], 'usage'],
    ] as const)
      expect(await act(...args)).toMatchObject({ code: 2, answer: { code, exit_code: 2 } })
    const isOld = (process.env.PROPOSER_DEV_ORACLE ?? 'v2') === 'v2'
    expect(await act('clarify', slug, 'x', '--rules')).toMatchObject(
      isOld ? { code: 2, answer: { code: 'oracle_version' } } : { code: 0 },
    )
    expect((await act('upgrade-oracle')).answer.hint).toContain('--oracle v3')
    const dry = await act('warp', '90m', '--dry-run')
    expect(dry).toMatchObject({ code: 0, answer: { act: 'warp', operands: ['90m'] } })
    const { answer } = await act('warp', '90m')
    expect(answer).toMatchObject({ seconds: 5_400, timestamp: expect.any(String) })
  })

  test.each([
    [['dispute', 'no-such-question'], 'question_not_found'],
    [['ask', 'Not A Slug'], 'bad_identifier'],
    [argvOf`propose x --outcome yes`, 'bad_outcome'],
    [['set-bond', 'x', 'much'], 'bad_amount'],
    [['set-bond', 'x'], 'usage'],
    [['fund', '0xAB'], 'bad_address'],
    [['set-whitelist', 'x', 'friends'], 'bad_whitelist'],
    [argvOf`start --port 65536`, 'bad_number'],
    [argvOf`start --questions many`, 'bad_number'],
    [['frobnicate'], 'usage'],
  ])('contract §6: %j is refused with exit 2, a code and a hint', async (args, code) => {
    const refused = await act(...args)
    expect(refused).toMatchObject({
      code: 2,
      answer: { code, exit_code: 2, hint: expect.stringMatching(/.{5}/) },
    })
  })

  test('contract §6: what the contracts refuse comes with what to do instead', async () => {
    const refusals: [string[], RegExp, RegExp][] = [
      [['dispute', 'is-this-refused'], /RequestStateNotProposed/, /devchain propose/],
      [['unflag', 'is-this-refused'], /NotFlagged/, /not flagged/],
      [['ask', 'is-this-refused'], /slug taken/, /another slug/],
      [['set-bond', 'is-this-refused', '1'], /BondBelowMinimumBond/, /from 100000000/],
    ]
    expect((await act('ask', 'is-this-refused')).code).toBe(0)
    for (const [args, detail, hint] of refusals) {
      expect(await act(...args)).toMatchObject({
        code: 2,
        answer: {
          code: 'dev_chain_refused',
          detail: expect.stringMatching(detail),
          hint: expect.stringMatching(hint),
        },
      })
    }
    const proposed = () => act('propose', 'is-this-refused', '--outcome', 'p1')
    expect((await proposed()).code).toBe(0)
    expect(await act('propose', 'is-this-refused', '--outcome', 'p2')).toMatchObject({
      code: 2,
      answer: { code: 'dev_chain_refused', hint: expect.stringContaining('devchain dispute') },
    })
  })

  test('domain §4: an empty custom whitelist stops proposals until it is taken away', async () => {
    const slug = ready.dev.questions.at(-2)?.slug ?? ''
    const proposed = () => act('propose', slug, '--outcome', 'p1')
    expect((await act('set-whitelist', slug, 'nobody')).code).toBe(0)
    expect((await proposed()).answer.detail).toContain('ProposerNotWhitelisted')
    expect((await act('set-whitelist', slug, 'default')).code).toBe(0)
    expect((await proposed()).code).toBe(0)
  })

  test('contract §6: a chain that does not answer is exit 75', async () => {
    const { code, stderr } = await shop.run(argvOf`devchain ask x --rpc-url http://127.0.0.1:1
      --json`)
    expect(code).toBe(75)
    expect(JSON.parse(stderr).error).toMatchObject({
      code: 'dev_chain_unreachable',
      exit_code: 75,
      retryable: true,
    })
  })

  test('contract §6: SIGTERM ends the chain process too and exits 0', async () => {
    const { code, stdout } = await chain.stop('SIGTERM')
    expect(code).toBe(0)
    expect(stdout.trim().split('\n')).toHaveLength(1)
    await expect(fetch(ready.dev.rpc_url)).rejects.toThrow()
  })

  test('R23: a killed devchain takes its chain process and folder along', async () => {
    const TMPDIR = await shop.folder()
    const killed = shop.start(argvOf`devchain --port 0 --questions 0 --json`, {
      env: { TMPDIR },
    })
    const { dev } = await killed.line<Ready>()
    expect(await readdir(TMPDIR)).toHaveLength(1)
    await killed.stop('SIGKILL')
    await vi.waitFor(() => expect(fetch(dev.rpc_url)).rejects.toThrow(), { timeout: 30_000 })
    await expect.poll(() => readdir(TMPDIR), { timeout: 30_000 }).toEqual([])
  })

  test('contract §6: without --json the ready line is text for people, and a folder that cannot be written is exit 74', async () => {
    const plain = shop.start(argvOf`devchain --port 0 --questions 1`)
    await plain.said(/will-it/)
    const { code, stdout } = await plain.stop('SIGINT')
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^ready http:\/\/127\.0\.0\.1:\d+ \(chain 31337, questions: 1, pid \d+\)\n$/,
    )
    for (const path of ['/dev/null', '/dev/null/x']) {
      const refused = await shop.run(argvOf`devchain --port 0 --questions 0 --write ${path}`)
      expect([path, refused.code]).toEqual([path, 74])
    }
  })
})
