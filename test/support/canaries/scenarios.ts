import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { argvOf } from '../argv.js'
import { questionOf } from '../proposing.js'
import type { World } from './world.js'

export interface Scenario {
  argv(n: number): Words
  readonly bad?: (n: number) => Words
  /**
   * What it prints may hold the signatures that were asked for (R5: `payload`, `-o -`,
   * `--reveal-signature`).
   */
  readonly holdsPayload?: true
  readonly foreground?: true
  readonly late?: true
}
type Words = readonly string[]
type Arguments = Words | ((n: number) => Words)

/** What follows the command; `damaged`: the same in a home of which every file is damaged. */
interface Row extends Omit<Scenario, 'argv' | 'bad'> {
  readonly args?: Arguments
  readonly bad?: Arguments | 'damaged'
}

const perCommand = 5
const withQuestions = ['sign', 'submit', 'batch sign', 'batch submit', 'run'] as const
export const questionsNeeded = withQuestions.length * perCommand + 3

export interface Left {
  readonly journalIds: string[]
  readonly candidateIds: string[]
}

const wallet = (n: number) => `0x${String(n + 1).padStart(40, '0')}`
const someId = '00000000-0000-4000-8000-000000000000'
/** Operator's verbs of a shared store alone. */
const ofShared = /store (init|upgrade|accept-loss)|gateways|leader/

export function scenarios(world: World, left: Left): Readonly<Record<string, Scenario>> {
  const wordsOf = (args: Arguments, n: number) => (typeof args === 'function' ? args(n) : args)
  const called = (name: string, words: Words, isBad: boolean): Words => {
    if (name.startsWith('devchain ') && name !== 'devchain start')
      return argvOf`${name.split(' ')} ${words} --rpc-url ${world.devUrl}`
    if (!name.startsWith('operator ')) return [...name.split(' '), ...words]
    const file = ofShared.test(name)
      ? `${isBad ? 'bad' : 'store'}-shared.json`
      : isBad && 'bad-gateway.json'
    const config = file ? join(world.folder, file) : world.config
    return argvOf`operator --config ${config} ${name.split(' ').slice(1)} ${words}`
  }
  return Object.fromEntries(
    Object.entries(rowsOf(world, left)).map(([name, row]) => {
      const { args = [], bad, ...more }: Row = Array.isArray(row) ? { args: row } : (row as Row)
      const argv = (n: number) => called(name, wordsOf(args, n), false)
      const withBad =
        bad === 'damaged'
          ? (n: number) => [...argv(n), '--home', damagedHome(world)]
          : bad !== undefined
            ? (n: number) => called(name, wordsOf(bad, n), false)
            : name.startsWith('operator ') && ((n: number) => called(name, wordsOf(args, n), true))
      return [name, { ...more, argv, ...(withBad && { bad: withBad }) }]
    }),
  )
}

function rowsOf(world: World, left: Left): Readonly<Record<string, Row | Words>> {
  const { folder, dev, config } = world
  const inFolder = (name: string) => join(folder, name)
  const own = (command: (typeof withQuestions)[number], n: number) =>
    questionOf(dev, withQuestions.indexOf(command) * perCommand + n).question_id
  const { slug, question_id: spare } = questionOf(dev, questionsNeeded - 1)
  const unproposed = questionOf(dev, questionsNeeded - 3).question_id
  const file = (name: string, content: string) => {
    writeFileSync(inFolder(name), content, { mode: 0o600 })
    return inFolder(name)
  }
  const rows = (command: 'batch sign' | 'batch submit' | 'run') => (n: number) => [
    file(
      `rows-${command.split(' ').at(-1)}-${n}.ndjson`,
      `${JSON.stringify({ identifier: own(command, n), outcome: 'p1' })}\n`,
    ),
  ]
  const password = ['--password-file', inFolder('password')]
  const token = argvOf`--uri pkcs11:token=canary;object=canary --pin-file ${inFolder('token.pin')}
    --module`
  const rpcUrl = world.env.PROPOSER_RPC_URL ?? ''
  const pinned = ['--token', dev.trust.tokens[0] ?? '']
  const candidate = (n: number) => left.candidateIds[n % 3] ?? someId
  const journaled = () => left.journalIds[0] ?? ''
  const copy = (to: string) => argvOf`--from ${inFolder('old-store')} --to-file ${inFolder(to)}`
  return {
    'trust init': {
      args: argvOf`--from ${inFolder('dev/trust.json')}
        --trust ${join(world.home, 'trust/default.json')} --yes`,
      bad: ['--from', inFolder('proposer.key')],
    },
    'trust pin': {
      args: (n) => argvOf`--yes ${n === 1 ? ['--receipts'] : pinned}`,
      bad: argvOf`--trust ${inFolder('proposer.key')} ${pinned} --yes`,
    },
    'trust show': { bad: ['--trust', inFolder('proposer.key')] },
    'trust verify': [],
    'config set': {
      args: (n) => argvOf`--profile p${n} rpc-url ${rpcUrl}`,
      bad: ['gateway', rpcUrl],
    },
    'config unset': {
      args: ['headroom-percent'],
      bad: () => argvOf`rpc-url --home ${damagedHome(world)}`,
    },
    version: { bad: ['of-what'] },
    completion: { args: (n) => [['bash', 'zsh', 'fish'][n % 3] ?? 'bash'], bad: ['nothing'] },
    'config get': {
      args: (n) => [n === 1 ? 'gateway' : 'rpc-url'],
      bad: () => argvOf`rpc-url --home ${damagedHome(world)}`,
    },
    'config list': { args: ['--origin'], bad: 'damaged' },
    'config path': { bad: ['--no-such-flag'] },
    'account import': {
      args: (n) => argvOf`own${n} --key-file ${inFolder('proposer.key')} ${password}`,
      bad: argvOf`bad --key-file ${inFolder('password')} ${password}`,
    },
    'account new': { args: (n) => [`new${n}`, ...password], bad: ['new0', ...password] },
    'account add-kms': { args: (n) => argvOf`kms${n} --key ${world.kmsKeys[n % 2] ?? ''}` },
    'account add-pkcs11': {
      args: (n) => [`token${n}`, ...token, world.module],
      bad: ['bad', ...token, inFolder('bad-gateway.json')],
      late: true,
    },
    'account list': { bad: ['--no-such-flag'] },
    'account rename': { args: (n) => [`new${n}`, `renamed${n}`], bad: ['own0', 'own1'] },
    'account remove': { args: (n) => [`renamed${n}`, '--yes'], bad: ['nobody', '--yes'] },
    'account show': { args: ['own0'], bad: 'damaged' },
    'devchain fund': [world.proposer],
    'devchain grant': [wallet(7)],
    'devchain ask': [],
    'devchain set-bond': [slug, '750000000'],
    'devchain set-whitelist': [slug, 'default'],
    'devchain pause': [slug],
    'devchain unpause': [slug],
    'devchain flag': [slug],
    'devchain unflag': [slug],
    'devchain reset': [slug],
    'devchain propose': [slug, '--outcome', 'p2'],
    'devchain dispute': [slug],
    'devchain clarify': [slug, 'Drizzle counts.'],
    'devchain vote': [slug, '--outcome', 'p2'],
    'devchain settle': [slug],
    'devchain warp': ['1s'],
    'devchain start': {
      args: argvOf`--port 0 --questions 1`,
      bad: argvOf`--port 0 --write ${inFolder('password')}`,
      foreground: true,
    },
    demo: { bad: ['--no-such-flag'], foreground: true },
    serve: {
      args: argvOf`--config ${config} --port 0 --set store="./second-store" --log`,
      bad: argvOf`--config ${config} --port 0 --log`,
      foreground: true,
    },
    'funds approve': argvOf`--amount max --yes`,
    funds: [],
    positions: [],
    pnl: [],
    'payouts list': [],
    'payouts claim': ['--yes'],
    check: { args: (n) => [own('sign', n)], bad: ['Not A Question'] },
    eligibility: [],
    context: { args: (n) => [own('sign', n)] },
    sign: {
      args: (n) => {
        const signers = [
          [],
          ['--account', 'own0', ...password],
          ['--signer', world.signerUrl],
          ['--signer', world.signerUrl],
          ['--account', 'own0', ...password],
        ]
        return argvOf`${own('sign', n)} --outcome p2 ${signers[n] ?? []}`
      },
      holdsPayload: true,
    },
    submit: { args: (n) => argvOf`${own('submit', n)} --outcome p2 --client-ref ${`order ${n}`}` },
    'batch context': { args: (n) => [file(`ids-${n}`, `${own('batch sign', n)}\n`)] },
    'batch sign': { args: rows('batch sign'), holdsPayload: true },
    'batch submit': { args: rows('batch submit') },
    run: { args: rows('run') },
    'questions list': [],
    init: ['--yes'],
    conformance: {
      args: (n) => argvOf`${n === 2 ? [] : [world.ready.url]} --question ${unproposed} --read-only`,
      bad: argvOf`--question ${unproposed} --read-only --gateway ${rpcUrl}`,
    },
    status: { args: (n) => [candidate(n)] },
    poll: { args: (n) => argvOf`${candidate(n)} --until validated --timeout 20` },
    'batch status': {
      args: (n) => [file(`candidates-${n}`, `${left.candidateIds.join('\n')}\n`)],
    },
    replay: { args: ['--all'], bad: 'damaged' },
    reconcile: { args: (n) => [own('submit', n)], bad: 'damaged' },
    revoke: {
      args: (n) => [left.journalIds[n] ?? '', ['--print', '--yes'][n] ?? '--dry-run'],
    },
    plan: { args: ['500'], bad: [inFolder('nothing-here')] },
    'journal list': { bad: 'damaged' },
    'journal show': {
      args: (n) => [journaled(), ...(n === 2 ? ['--reveal-signature'] : [])],
      bad: () => argvOf`${journaled()} --home ${damagedHome(world)}`,
      holdsPayload: true,
    },
    'journal verify': { bad: 'damaged' },
    'journal export': { bad: 'damaged' },
    'receipt export': {
      args: (n) => [
        candidate(n),
        ...([['-o', inFolder('receipt.json')], [], ['--reveal-signature']][n] ?? []),
      ],
      bad: () => argvOf`${candidate(0)} --home ${damagedHome(world)}`,
      holdsPayload: true,
    },
    'receipt verify': {
      args: [inFolder('receipt.json')],
      bad: [inFolder('receipt-key.json')],
    },
    doctor: [],
    'support-bundle': {
      args: (n) => argvOf`--config ${config} ${n === 0 ? ['-o', inFolder('bundle.json')] : []}`,
      bad: ['--config', inFolder('bad-gateway.json')],
    },
    'operator list': [],
    'operator status': [],
    'operator trust repin': ['--reason', 'a test', '--yes'],
    'operator top': { late: true },
    'operator allow': [wallet(1)],
    'operator disallow': [wallet(1)],
    'operator pause': [],
    'operator resume': [],
    'operator budget': [],
    'operator receipts list': [],
    'operator receipts rotate': ['--reason', 'a test'],
    'operator questions list': [],
    'operator questions add': [spare, '--slug', 'renamed'],
    'operator questions import': [
      file('questions.json', JSON.stringify([{ question_id: spare, slug: 'renamed' }])),
    ],
    'operator questions remove': [spare],
    'operator candidates list': [],
    'operator candidates show': { args: (n) => [candidate(n)] },
    'operator candidates explain': { args: (n) => [candidate(n)] },
    'operator candidates reject': {
      args: (n) => [left.candidateIds.at(-1 - (n % 2)) ?? someId, '--reason', 'a test'],
      late: true,
    },
    'operator store verify': [],
    'operator store backup': { args: (n) => [inFolder(`backup-${n}`)], bad: [folder] },
    'operator store compact': [],
    'operator store export': ['--csv'],
    'operator store repair': [],
    'operator store init': [],
    'operator store upgrade': [],
    'operator store accept-loss': ['--reason', 'tried'],
    'operator gateways': [],
    'operator leader resign': [],
    'operator store copy': { args: copy('copy.url'), bad: copy('bad.url') },
  }
}

function damagedHome({ folder, home, canaries }: World): string {
  const path = join(folder, 'damaged')
  if (existsSync(path)) return path
  mkdirSync(path, { mode: 0o700 })
  if (existsSync(join(home, 'journal')))
    cpSync(join(home, 'journal'), join(path, 'journal'), {
      recursive: true,
      filter: (one) => !/\/s(\.[0-9a-f]+)?$/.test(one),
    })
  const journal = join(path, 'journal')
  for (const name of existsSync(journal)
    ? readdirSync(journal, { recursive: true, encoding: 'utf8' })
    : []) {
    if (!/log-\d+\.jsonl$/.test(name)) continue
    const text = readFileSync(join(journal, name), 'utf8')
    writeFileSync(join(journal, name), text.replace('"n":', '"m":'))
  }
  const secrets = canaries.map(({ text }) => text).join(' ')
  mkdirSync(join(path, 'keystores'), { mode: 0o700 })
  writeFileSync(join(path, 'keystores', 'own0.json'), `{"crypto": "${secrets}`, { mode: 0o600 })
  writeFileSync(join(path, 'config.json'), `{"profiles": "${secrets}`, { mode: 0o600 })
  return path
}
