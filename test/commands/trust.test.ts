import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { main } from '#commands/main'
import {
  type Argv,
  eachHome,
  fakeContext,
  lastErrorOf,
  type RunOptions,
  run,
  wordsOf,
} from '#support/cli'
import {
  ask as askOnChain,
  createFakeChain,
  createFakeClock,
  type FakeChain,
  questionText,
} from '#support/fake-chain'
import { adapter, adapterTrust } from '#support/fake-world'
import { contextOnChain, type ScriptedGateway, scriptedGateway } from '#support/scripted-gateway'

const pins = adapterTrust
const elsewhere = `0x${'9'.repeat(40)}`

const home = eachHome()
let chain: FakeChain
beforeEach(() => {
  mkdirSync(join(home.path, 'trust'))
  writeFileSync(path(), JSON.stringify(pins))
  chain = createFakeChain()
})

const path = () => join(home.path, 'trust', 'default.json')
const pinned = () => JSON.parse(readFileSync(path(), 'utf8'))

/** A gateway that names a question of the chain, with what a test changes in what it says. */
function gatewayNaming(
  text: `0x${string}`,
  change: { request?: object; contracts?: object; signing?: object } = {},
): ScriptedGateway {
  const question = askOnChain(chain, text)
  chain.mine(1)
  const context = contextOnChain(chain, text, question)
  return scriptedGateway({
    ...context,
    request: { ...context.request, ...change.request },
    contracts: { ...context.contracts, ...change.contracts },
    signing: { ...context.signing, ...change.signing },
  })
}
const ask = (argv: Argv, gateway?: ScriptedGateway, more: RunOptions = {}) =>
  run(home.path, [...wordsOf(argv), '--json'], {
    ...(gateway === undefined
      ? {}
      : { env: { PROPOSER_GATEWAY: gateway.url }, fetch: gateway.fetch }),
    clock: createFakeClock(chain),
    ...more,
  })

test.skipIf(process.platform === 'win32').each([0o666, 0o664, 0o646])(
  'contract §7: pins that others can change (mode %i) are used by nobody',
  async (mode) => {
    chmodSync(path(), mode)
    const argv = ['sign', 'will-it-hold', '--outcome', 'yes', '--json']
    const env = { PROPOSER_KEY_FILE: join(home.path, 'key') }
    const { code, stdout, stderr } = await run(home.path, argv, { env })
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(lastErrorOf({ stderr })).toMatchObject({
      code: 'trust_writable',
      hint: expect.stringContaining(`chmod go-w ${path()}`),
    })
  },
)

test.each([
  ['another permit2', { contracts: { permit2: elsewhere } }],
  ['another signed_proposer', { contracts: { signed_proposer: elsewhere } }],
  ['another chain', { signing: { chain_id: 1 } }],
])('R9: a gateway that names %s is refused, with --yes too', async (_name, change) => {
  const gateway = gatewayNaming(questionText('Will it hold?'), change)
  for (const yes of [[], ['--yes'], ['--dry-run']]) {
    const ran = await ask(['trust', 'pin', 'will-it-hold', ...yes], gateway)
    expect(ran.code).toBe(2)
    expect(lastErrorOf(ran)).toMatchObject({
      code: 'pins_would_change',
      hint: expect.stringContaining('proposer trust init'),
    })
  }
  expect(pinned()).toEqual(pins)
})

test('R9: another kind of a pinned requester is refused as well', async () => {
  const ran = await ask(['trust', 'pin', '--requester', adapter, '--kind', 'oo-reporter', '--yes'])
  expect(lastErrorOf(ran)).toMatchObject({
    code: 'pins_would_change',
    detail: expect.stringContaining('becomes oo-reporter'),
  })
  expect(pinned()).toEqual(pins)
})

test('R9: with a node what the gateway names is confirmed before it is pinned', async () => {
  const env = { PROPOSER_RPC_URL: 'http://127.0.0.1:8545' }
  const honest = gatewayNaming(questionText('Will it hold?'))
  const beside = (gateway: ScriptedGateway) => ({
    chain,
    env: { ...env, PROPOSER_GATEWAY: gateway.url },
  })
  const done = await ask('trust pin will-it-hold --yes', honest, beside(honest))
  expect([done.code, done.stderr]).toEqual([0, expect.not.stringContaining('"error"')])
  const lying = gatewayNaming(questionText('Will it last?'), {
    request: { requester: elsewhere },
  })
  const before = pinned()
  expect((await ask('trust pin will-it-hold --yes', lying, beside(lying))).code).not.toBe(0)
  const token = await ask(['trust', 'pin', '--token', elsewhere, '--yes'], undefined, {
    chain,
    env,
  })
  expect(lastErrorOf(token)).toMatchObject({
    code: 'trust_not_verified',
    detail: expect.stringContaining(elsewhere),
  })
  expect(pinned()).toEqual(before)
})

test.each(['{"chain_id": 31337, ', '{"chain_id": 31337}'])(
  'contract §7: a damaged file (%s) is named, and not written over',
  async (damaged) => {
    writeFileSync(join(home.path, 'good.json'), JSON.stringify(pins))
    writeFileSync(path(), damaged)
    const { code, stderr } = await ask('trust init --from good.json --yes')
    const hint = `move ${path()} away, then run it again; nothing was written`
    expect([code, stderr]).toEqual([2, expect.stringContaining(hint)])
    expect(readFileSync(path(), 'utf8')).toBe(damaged)
  },
)

test('contract §7: what another process pins while a person is asked is not lost', async () => {
  const other = { ...pins, slugs: { 'will-it-last': `0x${'1'.repeat(64)}` } }
  const { context, stderr } = fakeContext(home.path, { interactive: true })
  const answers = Readable.from(
    (function* () {
      writeFileSync(path(), JSON.stringify(other))
      yield 'y\n'
    })(),
  )
  const argv = ['trust', 'pin', '--token', elsewhere]
  expect(await main(argv, { ...context, stdin: Object.assign(answers, { isTTY: true }) })).toBe(2)
  expect(stderr.written.join('').replace(/\s+/g, ' ')).toContain('rerun the command')
  expect(pinned()).toEqual(other)
})
