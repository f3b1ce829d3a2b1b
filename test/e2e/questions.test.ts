import { join } from 'node:path'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { devAccount } from '#devchain/dev-contracts'
import { writeDevFolder } from '#devchain/dev-folder'
import { disputeProposal, proposeDirectly } from '#devchain/dev-verbs'
import { createChain } from '#io/rpc/rpc'
import type { Chain } from '#ports'
import { argvOf } from '#support/argv'
import { type Argv, proposerHome, type RunOptions, run } from '#support/cli'

let dev: DevChain
let chain: Chain & { close(): Promise<void> }
let home: string
const slugs = () => dev.description.questions.map(({ slug }) => slug)

beforeAll(async () => {
  dev = await startDevChain({ questions: 5, proposers: 1 })
  chain = createChain([dev.rpcUrl])
  home = proposerHome(dev.description.trust, devAccount('proposer', 0).private_key)
  await writeDevFolder(join(home, 'dev'), dev.description)
  const [again = '', answered = ''] = slugs()
  await proposeDirectly(dev.rpcUrl, again, 0n)
  await disputeProposal(dev.rpcUrl, again)
  await proposeDirectly(dev.rpcUrl, answered, 10n ** 18n)
})
afterAll(async () => {
  await chain?.close()
  await dev?.stop()
})

const go = (argv: Argv, options: RunOptions = {}) =>
  run(home, argv, {
    chain,
    ...options,
    env: {
      PROPOSER_RPC_URL: dev.rpcUrl,
      PROPOSER_KEY_FILE: join(home, 'key'),
      ...options.env,
    },
  })
const list = async (argv: Argv = [], options: RunOptions = {}) => {
  const ran = await go(argvOf`questions list --json ${argv}`, options)
  expect(ran).toMatchObject({ code: 0 })
  return JSON.parse(ran.stdout)
}
const slugsIn = (document: { questions: { slug: string }[] }) =>
  document.questions.map(({ slug }) => slug)

test('contract §9: on the dev chain it works by itself, the round that a dispute opened again first', async () => {
  const [again = '', answered = '', ...open] = slugs()
  for (const _turn of [1, 2]) {
    const document = await list()
    expect(document).toMatchObject({ source: 'chain', left_out: 0 })
    expect(slugsIn(document)).toEqual([again, ...open])
    expect(document.questions[0]).toMatchObject({ reopened: true, state: 'requested' })
    expect(document.questions[1]).toMatchObject({ reopened: false, proposed_by: null })
  }
  const all = await list('--all')
  expect(all.questions.find(({ slug }: { slug: string }) => slug === answered)).toMatchObject({
    state: 'proposed',
    proposed_by: expect.stringMatching(/^0x/),
  })
})

test('the registry of --local, and a questions.json, say the same', async () => {
  const [, answered = ''] = slugs()
  const expected = slugs().filter((slug) => slug !== answered)
  const local = await list(['--local', join(home, 'dev', 'gateway.json')], {
    env: { PROPOSER_RPC_URL: '' },
  })
  const file = await list(['--questions', join(home, 'dev', 'questions.json')])
  for (const document of [local, file]) {
    expect(document).toMatchObject({ source: 'registry', since: null })
    expect(slugsIn(document)).toEqual(expected)
    expect(document.questions[0]).toMatchObject({ reopened: true })
  }
})

test('a worksheet that is filled in is batch input, and --mine lists what was signed', async () => {
  const sheet = (await go('questions list --csv --limit 2')).stdout
  const filled = sheet.replace(/,(\r?\n)(?=0x|$)/g, ',no$1').replace(/outcome,no/, 'outcome')
  const signed = await go('batch sign - --format csv --json', { stdin: filled })
  expect(signed).toMatchObject({ code: 0 })
  const mine = await list('--mine')
  const ids = sheet.split('\r\n').flatMap((line) => /^0x[0-9a-f]{64}/.exec(line)?.[0] ?? [])
  expect(ids).toHaveLength(2)
  expect(
    mine.questions.map(({ question_id }: { question_id: string }) => question_id).sort(),
  ).toEqual([...ids].sort())
})
