/**
 * `--dry-run` of the verbs that write or send: what would be done is printed, and nothing is done
 * (contract §6).
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { devAddresses } from '#devchain/dev-contracts'
import { type Argv, eachHome, type Ran, run, writeTrust } from '#support/cli'
import { createFakeChain } from '#support/fake-chain'
import { pins, type ScriptedGateway, scriptedGateway } from '#support/scripted-gateway'

const key = `0x${'11'.repeat(32)}`
const address = '0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a'
const wallet = `0x${'ab'.repeat(20)}`
const questionId = `0x${'7c'.repeat(32)}`

const home = eachHome()
let gateway: ScriptedGateway
let env: Record<string, string>
beforeEach(() => {
  gateway = scriptedGateway()
  writeFileSync(join(home.path, 'key'), `${key}\n`, { mode: 0o600 })
  writeFileSync(join(home.path, 'pins.json'), JSON.stringify(pins))
  writeFileSync(join(home.path, 'entries.json'), JSON.stringify([{ question_id: questionId }]))
  const chain = {
    id: 31337,
    rpc_urls: ['http://127.0.0.1:1'],
    signed_proposer: devAddresses.signedProposer,
  }
  const lists = {
    oracles: [devAddresses.oracle],
    requesters: [{ address: devAddresses.adapter, kind: 'uma-ctf-adapter' }],
    tokens: [devAddresses.token],
  }
  writeFileSync(join(home.path, 'gateway.json'), JSON.stringify({ chain: { ...chain, ...lists } }))
  env = {
    PROPOSER_GATEWAY: gateway.url,
    PROPOSER_KEY_FILE: join(home.path, 'key'),
    PROPOSER_RPC_URL: 'http://user:pw@127.0.0.1:1/key',
  }
})

const ask = (argv: Argv, more: Record<string, string> = {}) =>
  run(home.path, argv, { env: { ...env, ...more }, fetch: gateway.fetch, chain: createFakeChain() })
/** Every file below the home, with what it holds. */
const disk = () =>
  Object.fromEntries(
    readdirSync(home.path, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .map((path) => [path, readFileSync(path, 'utf8')]),
  )
const previewOf = (ran: Ran): Record<string, unknown> => {
  expect(ran.code, ran.stderr).toBe(0)
  return JSON.parse(ran.stdout)
}

const act = (name: string, ...more: string[]) => ['operator', ...name.split(' '), ...more]
test.each([
  [['config', 'set', 'account', 'hot'], 'set profiles.default.account in '],
  [['config', 'unset', 'account'], 'unset profiles.default.account in '],
  [['account', 'new', 'hot'], 'make a key and write it to '],
  [['account', 'import', 'hot', '--key-file', 'key'], `write the key of ${address} to `],
  [['trust', 'init', '--from', 'pins.json'], 'write '],
  [['trust', 'init', '--from', 'pins.json', '--profile', 'fresh'], 'write '],
  [['support-bundle', '-o', 'bundle.json'], 'write '],
  [['replay', '--all'], 'send nothing'],
  [['devchain', 'start', '--write', 'dev'], 'start a chain on port 8545 and write its files to '],
  [['devchain', 'ask', 'some-slug'], 'ask some-slug at http://127.0.0.1:1'],
  [['devchain', 'dispute', 'some-slug'], 'dispute some-slug at http://127.0.0.1:1'],
  [['devchain', 'pause', 'some-slug'], 'pause some-slug at http://127.0.0.1:1'],
  [
    ['devchain', 'propose', 'some-slug', '--outcome', 'p1'],
    'propose some-slug --outcome p1 at http://127.0.0.1:1',
  ],
  [
    ['devchain', 'set-bond', 'some-slug', '600000000'],
    'set-bond some-slug 600000000 at http://127.0.0.1:1',
  ],
  [
    ['devchain', 'set-whitelist', 'some-slug', 'nobody'],
    'set-whitelist some-slug nobody at http://127.0.0.1:1',
  ],
  [['devchain', 'fund', wallet, '5'], `fund ${wallet} 5 at http://127.0.0.1:1`],
  [['devchain', 'grant', wallet], `grant ${wallet} at http://127.0.0.1:1`],
  [act('allow', wallet), 'carry out allow on '],
  [act('disallow', wallet), 'carry out disallow on '],
  [act('pause'), 'carry out pause on '],
  [act('resume'), 'carry out resume on '],
  [act('questions add', questionId), 'carry out questions/add on '],
  [act('questions import', 'entries.json'), 'carry out questions/add on '],
  [act('questions remove', questionId), 'carry out questions/remove on '],
  [
    act('candidates reject', '11111111-1111-4111-8111-111111111111', '--reason', 'x'),
    'carry out candidates/reject on ',
  ],
])('contract §6: %j --dry-run tells what it would do, and does nothing', async (argv, would) => {
  const before = disk()
  const preview = previewOf(await ask([...argv, '--dry-run', '--json']))
  expect(preview).toMatchObject({
    schema: 'proposer.preview/1',
    dry_run: true,
    would: expect.stringContaining(would),
  })
  const forPeople = await ask([...argv, '--dry-run'])
  expect(forPeople.stdout).toContain(`would ${would}`)
  expect(forPeople.stdout + JSON.stringify(preview)).not.toContain('pw@')
  expect(disk()).toEqual(before)
  expect(gateway.calls).toEqual([])
})

test('contract §6: --dry-run refuses what the command would refuse', async () => {
  mkdirSync(join(home.path, 'keystores'))
  writeFileSync(join(home.path, 'keystores', 'hot.json'), '{}')
  for (const argv of [
    ['account', 'new', 'hot'],
    ['account', 'new', '../up'],
    ['config', 'set', 'colour', 'red'],
    ['trust', 'init', '--from', 'entries.json'],
    ['devchain', 'dispute', 'No Slug'],
    ['operator', 'allow', '0x1'],
    ['replay', 'abcdef012345-1'],
  ]) {
    expect((await ask([...argv, '--dry-run'])).code, argv.join(' ')).toBe(2)
  }
})

test('contract §6, R7: replay --dry-run names what would be sent, sends nothing, and the replay after it does', async () => {
  writeTrust(home.path, pins)
  // Busy for longer than the command waits, however slow the machine.
  gateway.faults.push(...Array(50).fill({ status: 503, code: 'server_busy' }))
  const offline = { PROPOSER_RPC_URL: '' }
  const sent = await ask(
    `submit ${gateway.question.question_id} --outcome p2 --timeout 2 --json`,
    offline,
  )
  expect(sent.code, sent.stderr).toBe(75)
  const { calls, received } = gateway
  const [before, bodies, files] = [calls.length, received.length, disk()]
  const preview = previewOf(await ask('replay --dry-run --json', offline))
  expect(preview).toMatchObject({
    journal_ids: [expect.stringMatching(/^[0-9a-f]{12}-1$/)],
    origin: gateway.url,
  })
  expect([calls.length, received.length]).toEqual([before, bodies])
  expect(disk()).toEqual(files)
  gateway.faults.length = 0
  expect((await ask('replay --json', offline)).code).toBe(0)
})

test('contract §6: trust init --dry-run tells that it would replace what is pinned', async () => {
  expect((await ask('trust init --from pins.json')).code).toBe(0)
  writeFileSync(join(home.path, 'other.json'), JSON.stringify({ ...pins, chain_id: 1 }))
  const preview = previewOf(await ask('trust init --from other.json --dry-run --json'))
  expect(preview).toMatchObject({
    replaces: true,
    chain_id: 1,
    would: expect.stringContaining('replace '),
  })
  expect(existsSync(join(home.path, 'trust', 'default.json'))).toBe(true)
  expect(JSON.parse(readFileSync(join(home.path, 'trust', 'default.json'), 'utf8'))).toMatchObject({
    chain_id: pins.chain_id,
  })
})
