/**
 * Every screen on a terminal of its own, 80 and 40 columns wide: what matters stands first, no line
 * is wider, and what has no room is named (contract §6, §9).
 */
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import { type Client, makeClient, questionOf, type ServeReady } from '#support/proposing'
import { hasTerminals, onTerminal, tooWide, wordsOn } from '#support/terminal'

interface Screen {
  readonly args: readonly string[]
  readonly code: number
  readonly keys?: readonly (readonly [asked: RegExp, keys: string])[]
  readonly says: readonly [first: RegExp, ...more: RegExp[]]
  readonly lacks?: RegExp
  readonly table?: true
  readonly env?: Readonly<Record<string, string>>
}

const operator = ['operator', '--config', '$config'] as const
const yes = [/\[y\/N\]/, 'y\n'] as const
const no = [/\[y\/N\]/, 'n\n'] as const
const ctrlC = '\u0003'

const screens: readonly Screen[] = [
  {
    args: ['questions', 'list'],
    code: 0,
    table: true,
    says: [/^(note: .*? )?QUESTION/, /750 USDC\.e/, /requested/],
  },
  {
    args: ['trust', 'pin', '$slug4'],
    code: 2,
    keys: [no],
    says: [/^(the chain says )?Will|^the chain says/, /750 USDC\.e/, /requested/, /declined/],
  },
  { args: ['trust', 'pin', '$slug4'], code: 0, keys: [yes], says: [/./, /pinned in/] },
  { args: argvOf`submit no-such-slug --outcome yes`, code: 2, says: [/^error: /] },
  {
    args: argvOf`submit ${'$slug0'} --outcome maybe`,
    code: 2,
    says: [/^error: .*"maybe"/, /\(p1\).*\(p2\)/, /hint: /],
  },
  {
    args: argvOf`batch submit ${'$rows'} --dry-run`,
    code: 0,
    table: true,
    says: [/^ROW QUESTION ANSWER AMOUNT/, /\(p2\)/, /3 would sign/, /2,250 USDC\.e/],
  },
  {
    args: argvOf`submit ${'$slug0'} --outcome p2 --amount 750`,
    code: 2,
    says: [/^error: /, /750usdc/, /750raw/],
  },
  {
    args: argvOf`submit ${'$slug0'} --outcome p2 --amount 0.0000001usdc`,
    code: 2,
    says: [/^error: /, /decimals/],
  },
  {
    args: ['eligibility', '0x90f79bf6EB2c4f870365E785982E1f101E93b906'],
    code: 2,
    says: [/^error: .*checksum/],
  },
  {
    args: ['funds'],
    code: 0,
    says: [/^wallet 0x/, /[\d,]{5,}\.?\d* POL/, /,\d{3} USDC\.e/],
  },
  {
    args: ['run', '$rows'],
    code: 2,
    keys: [no],
    says: [/./, /2,250 USDC\.e/, /declined/],
  },
  {
    args: ['batch', 'submit', '$rows'],
    code: 2,
    keys: [no],
    says: [/2,250 USDC\.e/, /declined/],
  },
  {
    args: ['run', '$rows'],
    code: 0,
    keys: [yes],
    says: [/./, /3 rows: .*3 executed/, /2,250 USDC\.e/],
  },
  {
    args: ['run', '$rows'],
    code: 0,
    says: [/./, /3 rows: .*3 executed/],
    lacks: /\[y\/N\]/,
  },
  {
    args: argvOf`serve --dev --port 0 --questions 2`,
    code: 0,
    keys: [[/ready http[\s\S]*--wait/, ctrlC]],
    says: [
      /./,
      /export PROPOSER_HOME=\S+ export PROPOSER_TRUST=/,
      /proposer submit \S+ --outcome yes/,
    ],
  },
  {
    args: argvOf`submit ${'$slug3'} --outcome p2 --yes`,
    code: 0,
    says: [/^\S.* \(p2\), 750 USDC\.e (warn: .* )?accepted [0-9a-f-]{36}/],
  },
  {
    args: ['status', '$candidate'],
    code: 0,
    says: [/^[0-9a-f-]{36} \w+ed /, /\(p2\)/],
  },
  {
    args: argvOf`journal list --field authorizations.0.candidate_id`,
    code: 0,
    says: [/^[0-9a-f-]{36}$/],
  },
  {
    args: ['-v', 'eligibility'],
    code: 0,
    says: [/> GET \S+eligibility/, /may propose/],
    lacks: /0x[0-9a-f]{64}/,
  },
  {
    args: [...operator, 'questions', 'list'],
    code: 0,
    table: true,
    says: [/^QUESTION/, /questions file/],
  },
  {
    args: [...operator, 'candidates', 'list'],
    code: 0,
    table: true,
    says: [/^CANDIDATE STATUS ANSWER QUESTION/, /[0-9a-f-]{36} executed/],
  },
  {
    args: [...operator, 'candidates', 'explain', '$candidate'],
    code: 0,
    says: [/^[0-9a-f-]{36} \w+ed /, /p2/, /750 USDC\.e/, /next: /],
  },
  { args: ['reconcile', '$slug0'], code: 0, says: [/^question/, /executed/, /next: /] },
  { args: ['plan', '$rows'], code: 0, says: [/^\d+ requests in \d+ window/] },
  { args: ['doctor'], code: 0, says: [/^ok trust: /, /ok eligibility: /] },
  { args: ['config', 'list'], code: 0, says: [/^home \//, /gateway http/, /not set/] },
  { args: ['config', 'set', 'rpc-url'], code: 2, says: [/^error: .*missing/, /hint: /] },
  { args: ['config', 'unset', 'rpc-url'], code: 0, says: [/^unset \S*rpc-url/] },
  {
    args: argvOf`--profile typo doctor`,
    code: 2,
    says: [/^error: .*typo/, /default|polygon/],
  },
  { args: ['account', 'list'], code: 0, says: [/^no accounts/] },
  {
    args: ['account', 'new', 'main'],
    code: 0,
    env: { PROPOSER_PASSWORD_FILE: '$password' },
    says: [/main/, /0x[0-9a-f]{40}/],
  },
  {
    args: ['account', 'rename', 'main', 'other'],
    code: 0,
    says: [/other/],
  },
  {
    args: ['account', 'list'],
    code: 0,
    says: [/^other 0x[0-9a-f]{40}/],
  },
  { args: ['account', 'remove', 'other'], code: 0, keys: [yes], says: [/other/] },
  {
    args: [],
    code: 0,
    says: [/^Propose answers/, /note gateway: http/, /proposer doctor/],
  },
  { args: ['submit', '--help'], code: 0, says: [/^Usage: proposer submit/, /--outcome/] },
  { args: ['subnit'], code: 2, says: [/^error: /, /submit/] },
  { args: [...operator, 'status'], code: 0, says: [/^gateway ready/, /block \d+/] },
  {
    args: argvOf`${operator} pause --reason upgrade --by ann`,
    code: 0,
    says: [/paused/],
  },
  { args: [...operator, 'list'], code: 0, says: [/^admission is paused/, /ann/] },
  { args: [...operator, 'resume'], code: 0, says: [/open|resumed/] },
  {
    args: [...operator, 'store', 'backup', '$backup'],
    code: 0,
    says: [/^copied \d+ records/, /sound/],
  },
  {
    args: [...operator, 'store', 'verify'],
    code: 0,
    says: [/^sound: /, /no nonce bound twice/],
  },
  {
    args: argvOf`serve --config ${'$other'} --check`,
    code: 0,
    says: [/^ok config: /, /metrics/],
  },
  {
    args: argvOf`eligibility --gateway http://gateway.example:8787`,
    code: 2,
    says: [/^error: .*http/, /allow-http/],
  },
  {
    args: argvOf`serve --config ${'$faulty'} --check`,
    code: 2,
    says: [/^FAIL config: \S+:3:3: "chian"/, /chain/],
  },
  {
    args: [...operator, 'status'],
    code: 0,
    says: [/^gateway ready/, /admin http:\/\/127\.0\.0\.1:\d+/],
  },
]

const shop = workshop()
let dev: ServeReady['dev']
const clients = new Map<number, Client>()
const words = new Map<number, Map<string, string>>()

async function openClient(columns: number, n: number, folder: string, gateway: string) {
  const client = await makeClient(
    shop,
    dev,
    { PROPOSER_GATEWAY: gateway, PROPOSER_RPC_URL: dev.rpc_url, NO_COLOR: '1' },
    n,
  )
  const home = client.env.PROPOSER_HOME ?? ''
  const questions = Array.from({ length: 5 }, (_, at) => questionOf(dev, 5 * n + at))
  const { slugs, ...trust } = dev.trust
  const { [questions[4]?.slug ?? '']: _, ...pinned } = slugs
  await writeFile(join(home, 'trust.json'), JSON.stringify({ ...trust, slugs: pinned }))
  const rows = questions
    .slice(0, 3)
    .map(({ slug }) => `${slug},${slug.includes('-vs-') ? 'p2' : 'yes'}`)
  await writeFile(join(home, 'rows.csv'), ['identifier,outcome', ...rows].join('\n'))
  await writeFile(join(home, 'password'), 'a long password\n')
  await chmod(join(home, 'password'), 0o600)
  const config = JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8'))
  const other = {
    ...config,
    store: join(home, 'store'),
    listen: { host: '127.0.0.1', port: 0 },
    admin: { port: 0 },
    metrics: { host: '127.0.0.1', port: 0 },
  }
  await writeFile(join(folder, `other-${n}.json`), `// for scrapers\n${JSON.stringify(other)}`)
  await writeFile(join(folder, `faulty-${n}.json`), '{\n  // a comment\n  "chian": {}\n}\n')
  clients.set(columns, client)
  words.set(
    columns,
    new Map([
      ...questions.map(({ slug }, at) => [`$slug${at}`, slug] as const),
      ['$config', join(folder, 'gateway.json')],
      ['$other', join(folder, `other-${n}.json`)],
      ['$faulty', join(folder, `faulty-${n}.json`)],
      ['$rows', join(home, 'rows.csv')],
      ['$password', join(home, 'password')],
      ['$backup', join(home, 'backup')],
    ]),
  )
}

const widths = [80, 40] as const

beforeAll(async () => {
  const { folder, ...started } = await shop.devChain(10)
  dev = started.dev
  const config = join(folder, 'gateway.json')
  const gateway = shop.start(argvOf`serve --config ${config} --port 0 --json`)
  const { url } = await gateway.line<ServeReady>()
  for (const [n, columns] of widths.entries()) await openClient(columns, n, folder, url)
})

describe.runIf(hasTerminals).each(widths)('on a terminal of %i columns', (columns) => {
  const filled = (word: string) => words.get(columns)?.get(word) ?? word
  const titled = screens.map((screen) => ({
    ...screen,
    title: ['proposer', ...screen.args].join(' '),
  }))

  test.each(titled)('$title', async ({ args, code, keys = [], says, lacks, table, env }) => {
    const client = clients.get(columns)
    if (client === undefined) throw new Error('the world did not open')
    const argv = args.map(filled)
    const given = Object.fromEntries(Object.entries(env ?? {}).map(([k, v]) => [k, filled(v)]))
    const terminal = await onTerminal(argv, { ...client.env, ...given }, { columns })
    for (const [asked, typed] of keys) {
      await terminal.said(asked)
      terminal.type(typed)
    }
    const { text, ...ended } = await terminal.ended
    const said = wordsOn(text)
    expect(ended.code, text).toBe(code)
    expect(tooWide(text, columns)).toEqual([])
    for (const pattern of says) expect(said).toMatch(pattern)
    if (lacks) expect(said).not.toMatch(lacks)
    const [candidate] = /[0-9a-f]{8}-[0-9a-f-]{27}/.exec(said) ?? []
    if (candidate !== undefined && args[0] === 'submit')
      words.get(columns)?.set('$candidate', candidate)
    if (table) {
      const piped = await shop.runHere(argv, client.env)
      const missing = piped.stdout.split(/\s+/).filter((word) => !said.includes(word))
      if (missing.length > 0) expect(said).toMatch(/…|no room for/)
    }
  })
})
