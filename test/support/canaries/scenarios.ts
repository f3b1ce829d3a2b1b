import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { argvOf } from '../argv.js'
import { questionOf } from '../proposing.js'
import type { World } from './world.js'

export interface Scenario {
  argv(n: number): readonly string[]
  readonly bad?: (n: number) => readonly string[]
  readonly stdin?: string
  /**
   * What it prints may hold the signatures that were asked for (R5: `payload`, `-o -`,
   * `--reveal-signature`).
   */
  readonly holdsPayload?: true
  readonly foreground?: true
  readonly late?: true
}

const perCommand = 5
const withQuestions = ['sign', 'submit', 'batch sign', 'batch submit', 'run'] as const
export const questionsNeeded = withQuestions.length * perCommand + 3

export interface Left {
  readonly journalIds: string[]
  readonly candidateIds: string[]
}

export function scenarios(world: World, left: Left): Readonly<Record<string, Scenario>> {
  const { folder, config, dev } = world
  const own = (command: (typeof withQuestions)[number], n: number) =>
    questionOf(dev, withQuestions.indexOf(command) * perCommand + n).question_id
  const spare = questionOf(dev, questionsNeeded - 1)
  const unproposed = questionOf(dev, questionsNeeded - 3).question_id
  const file = (name: string, content: string) => {
    writeFileSync(join(folder, name), content, { mode: 0o600 })
    return join(folder, name)
  }
  const rows = (command: 'batch sign' | 'batch submit' | 'run') => (n: number) => [
    ...command.split(' '),
    file(
      `rows-${command.split(' ').at(-1)}-${n}.ndjson`,
      `${JSON.stringify({ identifier: own(command, n), outcome: 'p1' })}\n`,
    ),
  ]
  const password = ['--password-file', join(folder, 'password')]
  const token = [
    ...['--uri', 'pkcs11:token=canary;object=canary'],
    ...['--pin-file', join(folder, 'token.pin'), '--module'],
  ]
  const operator = (...words: string[]): Scenario => ({
    argv: () => ['operator', '--config', config, ...words],
    bad: () => ['operator', '--config', join(folder, 'bad-gateway.json'), ...words],
  })
  const shared = (...words: string[]): Scenario => ({
    argv: () => ['operator', '--config', join(folder, 'store-shared.json'), ...words],
    bad: () => ['operator', '--config', join(folder, 'bad-shared.json'), ...words],
  })
  const copy = (to: string) => [
    ...argvOf`operator --config ${config} store copy`,
    ...['--from', join(folder, 'old-store'), '--to-file', join(folder, to)],
  ]
  const damaged = (...words: string[]): Scenario => ({
    argv: () => words,
    bad: () => [...words, '--home', damagedHome(world)],
  })
  const devchain = (...words: string[]): Scenario => ({
    argv: () => ['devchain', ...words, '--rpc-url', world.devUrl],
  })
  const wallet = (n: number) => `0x${String(n + 1).padStart(40, '0')}`
  const someId = '00000000-0000-4000-8000-000000000000'
  return {
    'trust init': {
      argv: () => argvOf`trust init --from ${join(folder, 'dev', 'trust.json')} --trust
        ${join(world.home, 'trust', 'default.json')} --yes`,
      bad: () => argvOf`trust init --from ${join(folder, 'proposer.key')}`,
    },
    'trust pin': {
      argv: (n) => [
        ...argvOf`trust pin --yes`,
        ...(n === 1 ? ['--receipts'] : ['--token', dev.trust.tokens[0] ?? '']),
      ],
      bad: () => [
        'trust',
        'pin',
        '--trust',
        join(folder, 'proposer.key'),
        '--token',
        dev.trust.tokens[0] ?? '',
        '--yes',
      ],
    },
    'trust show': {
      argv: () => ['trust', 'show'],
      bad: () => argvOf`trust show --trust ${join(folder, 'proposer.key')}`,
    },
    'trust verify': { argv: () => ['trust', 'verify'] },
    'config set': {
      argv: (n) => [
        'config',
        'set',
        '--profile',
        `p${n}`,
        'rpc-url',
        world.env.PROPOSER_RPC_URL ?? '',
      ],
      bad: () => ['config', 'set', 'gateway', world.env.PROPOSER_RPC_URL ?? ''],
    },
    'config unset': {
      argv: () => ['config', 'unset', 'headroom-percent'],
      bad: () => argvOf`config unset rpc-url --home ${damagedHome(world)}`,
    },
    version: { argv: () => ['version'], bad: () => ['version', 'of-what'] },
    completion: {
      argv: (n) => ['completion', ['bash', 'zsh', 'fish'][n % 3] ?? 'bash'],
      bad: () => ['completion', 'nothing'],
    },
    'config get': {
      argv: (n) => ['config', 'get', n === 1 ? 'gateway' : 'rpc-url'],
      bad: () => argvOf`config get rpc-url --home ${damagedHome(world)}`,
    },
    'config list': {
      argv: () => argvOf`config list --origin`,
      bad: () => argvOf`config list --home ${damagedHome(world)}`,
    },
    'config path': {
      argv: () => ['config', 'path'],
      bad: () => argvOf`config path --no-such-flag`,
    },
    'account import': {
      argv: (n) => argvOf`account import own${n} --key-file ${join(folder, 'proposer.key')}
        ${password}`,
      bad: () => argvOf`account import bad --key-file ${join(folder, 'password')} ${password}`,
    },
    'account new': {
      argv: (n) => ['account', 'new', `new${n}`, ...password],
      bad: () => ['account', 'new', 'new0', ...password],
    },
    'account add-kms': {
      argv: (n) => ['account', 'add-kms', `kms${n}`, '--key', world.kmsKeys[n % 2] ?? ''],
    },
    'account add-pkcs11': {
      argv: (n) => ['account', 'add-pkcs11', `token${n}`, ...token, world.module],
      bad: () => ['account', 'add-pkcs11', 'bad', ...token, join(folder, 'bad-gateway.json')],
      late: true,
    },
    'account list': {
      argv: () => ['account', 'list'],
      bad: () => argvOf`account list --no-such-flag`,
    },
    'account rename': {
      argv: (n) => ['account', 'rename', `new${n}`, `renamed${n}`],
      bad: () => ['account', 'rename', 'own0', 'own1'],
    },
    'account remove': {
      argv: (n) => argvOf`account remove renamed${n} --yes`,
      bad: () => argvOf`account remove nobody --yes`,
    },
    'account show': {
      argv: () => ['account', 'show', 'own0'],
      bad: () => argvOf`account show own0 --home ${damagedHome(world)}`,
    },
    'devchain fund': devchain('fund', world.proposer),
    'devchain grant': devchain('grant', wallet(7)),
    'devchain ask': devchain('ask'),
    'devchain set-bond': devchain('set-bond', spare.slug, '750000000'),
    'devchain set-whitelist': devchain('set-whitelist', spare.slug, 'default'),
    'devchain pause': devchain('pause', spare.slug),
    'devchain unpause': devchain('unpause', spare.slug),
    'devchain flag': devchain('flag', spare.slug),
    'devchain unflag': devchain('unflag', spare.slug),
    'devchain reset': devchain('reset', spare.slug),
    'devchain propose': devchain('propose', spare.slug, '--outcome', 'p2'),
    'devchain dispute': devchain('dispute', spare.slug),
    'devchain clarify': devchain('clarify', spare.slug, 'Drizzle counts.'),
    'devchain vote': devchain('vote', spare.slug, '--outcome', 'p2'),
    'devchain settle': devchain('settle', spare.slug),
    'devchain warp': devchain('warp', '1s'),
    'devchain start': {
      argv: () => argvOf`devchain start --port 0 --questions 1`,
      bad: () => argvOf`devchain start --port 0 --write ${join(folder, 'password')}`,
      foreground: true,
    },
    demo: { argv: () => ['demo'], bad: () => ['demo', '--no-such-flag'], foreground: true },
    serve: {
      argv: () => argvOf`serve --config ${config} --port 0 --set store="./second-store" --log`,
      bad: () => argvOf`serve --config ${config} --port 0 --log`,
      foreground: true,
    },
    'funds approve': { argv: () => argvOf`funds approve --amount max --yes` },
    funds: { argv: () => ['funds'] },
    positions: { argv: () => ['positions'] },
    pnl: { argv: () => ['pnl'] },
    'payouts list': { argv: () => ['payouts', 'list'] },
    'payouts claim': { argv: () => argvOf`payouts claim --yes` },
    check: { argv: (n) => ['check', own('sign', n)], bad: () => ['check', 'Not A Question'] },
    eligibility: { argv: () => ['eligibility'] },
    context: { argv: (n) => ['context', own('sign', n)] },
    sign: {
      argv: (n) => [
        ...argvOf`sign ${own('sign', n)} --outcome p2`,
        ...([
          [],
          ['--account', 'own0', ...password],
          ['--signer', world.signerUrl],
          ['--signer', world.signerUrl],
          ['--account', 'own0', ...password],
        ][n] ?? []),
      ],
      holdsPayload: true,
    },
    submit: {
      argv: (n) => ['submit', own('submit', n), '--outcome', 'p2', '--client-ref', `order ${n}`],
    },
    'batch context': {
      argv: (n) => ['batch', 'context', file(`ids-${n}`, `${own('batch sign', n)}\n`)],
    },
    'batch sign': { argv: rows('batch sign'), holdsPayload: true },
    'batch submit': { argv: rows('batch submit') },
    run: { argv: rows('run') },
    'questions list': { argv: () => ['questions', 'list'] },
    init: { argv: () => ['init', '--yes'] },
    conformance: {
      argv: (n) => [
        'conformance',
        ...(n === 2 ? [] : [world.ready.url]),
        '--question',
        unproposed,
        '--read-only',
      ],
      bad: () => [
        'conformance',
        '--question',
        unproposed,
        '--read-only',
        '--gateway',
        world.env.PROPOSER_RPC_URL ?? '',
      ],
    },
    status: { argv: (n) => ['status', left.candidateIds[n % 3] ?? someId] },
    poll: {
      argv: (n) => [
        'poll',
        left.candidateIds[n % 3] ?? someId,
        '--until',
        'validated',
        '--timeout',
        '20',
      ],
    },
    'batch status': {
      argv: (n) => [
        'batch',
        'status',
        file(`candidates-${n}`, `${left.candidateIds.join('\n')}\n`),
      ],
    },
    replay: {
      argv: () => ['replay', '--all'],
      bad: () => argvOf`replay --all --home ${damagedHome(world)}`,
    },
    reconcile: {
      argv: (n) => ['reconcile', own('submit', n)],
      bad: (n) => ['reconcile', own('submit', n), '--home', damagedHome(world)],
    },
    revoke: {
      argv: (n) => [
        'revoke',
        left.journalIds[n] ?? '',
        ...(n === 0 ? ['--print'] : n === 1 ? ['--yes'] : ['--dry-run']),
      ],
    },
    plan: { argv: () => ['plan', '500'], bad: () => ['plan', join(folder, 'nothing-here')] },
    'journal list': damaged('journal', 'list'),
    'journal show': {
      argv: (n) => [
        'journal',
        'show',
        left.journalIds[0] ?? '',
        ...(n === 2 ? ['--reveal-signature'] : []),
      ],
      bad: () => ['journal', 'show', left.journalIds[0] ?? '', '--home', damagedHome(world)],
      holdsPayload: true,
    },
    'journal verify': damaged('journal', 'verify'),
    'journal export': damaged('journal', 'export'),
    'receipt export': {
      argv: (n) => [
        ...['receipt', 'export', left.candidateIds[n % 3] ?? someId],
        ...([['-o', join(folder, 'receipt.json')], [], ['--reveal-signature']][n] ?? []),
      ],
      bad: () => [
        ...['receipt', 'export', left.candidateIds[0] ?? someId],
        ...['--home', damagedHome(world)],
      ],
      holdsPayload: true,
    },
    'receipt verify': {
      argv: () => ['receipt', 'verify', join(folder, 'receipt.json')],
      bad: () => ['receipt', 'verify', join(folder, 'receipt-key.json')],
    },
    doctor: { argv: () => ['doctor'] },
    'support-bundle': {
      argv: (n) => [
        'support-bundle',
        '--config',
        config,
        ...(n === 0 ? ['-o', join(folder, 'bundle.json')] : []),
      ],
      bad: () => ['support-bundle', '--config', join(folder, 'bad-gateway.json')],
    },
    'operator list': operator('list'),
    'operator status': operator('status'),
    'operator trust repin': operator('trust', 'repin', '--reason', 'a test', '--yes'),
    'operator top': { ...operator('top'), late: true },
    'operator allow': operator('allow', wallet(1)),
    'operator disallow': operator('disallow', wallet(1)),
    'operator pause': operator('pause'),
    'operator resume': operator('resume'),
    'operator budget': operator('budget'),
    'operator receipts list': operator('receipts', 'list'),
    'operator receipts rotate': operator('receipts', 'rotate', '--reason', 'a test'),
    'operator questions list': operator('questions', 'list'),
    'operator questions add': operator('questions', 'add', spare.question_id, '--slug', 'renamed'),
    'operator questions import': operator(
      'questions',
      'import',
      file('questions.json', JSON.stringify([{ question_id: spare.question_id, slug: 'renamed' }])),
    ),
    'operator questions remove': operator('questions', 'remove', spare.question_id),
    'operator candidates list': operator('candidates', 'list'),
    'operator candidates show': lateOperator((n) => [
      'candidates',
      'show',
      left.candidateIds[n % 3] ?? someId,
    ]),
    'operator candidates explain': lateOperator((n) => [
      'candidates',
      'explain',
      left.candidateIds[n % 3] ?? someId,
    ]),
    'operator candidates reject': {
      ...lateOperator((n) => [
        'candidates',
        'reject',
        left.candidateIds.at(-1 - (n % 2)) ?? someId,
        '--reason',
        'a test',
      ]),
      late: true,
    },
    'operator store verify': operator('store', 'verify'),
    'operator store backup': {
      argv: (n) => ['operator', '--config', config, 'store', 'backup', join(folder, `backup-${n}`)],
      bad: () => argvOf`operator --config ${config} store backup ${folder}`,
    },
    'operator store compact': operator('store', 'compact'),
    'operator store export': operator('store', 'export', '--csv'),
    'operator store repair': operator('store', 'repair'),
    'operator store init': shared('store', 'init'),
    'operator store upgrade': shared('store', 'upgrade'),
    'operator store accept-loss': shared('store', 'accept-loss', '--reason', 'tried'),
    'operator gateways': shared('gateways'),
    'operator leader resign': shared('leader', 'resign'),
    'operator store copy': {
      argv: () => copy('copy.url'),
      bad: () => copy('bad.url'),
    },
  }

  function lateOperator(words: (n: number) => readonly string[]): Scenario {
    return {
      argv: (n) => ['operator', '--config', config, ...words(n)],
      bad: (n) => ['operator', '--config', join(folder, 'bad-gateway.json'), ...words(n)],
    }
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
