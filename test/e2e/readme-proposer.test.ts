/**
 * README and docs/proposing.md: the session to paste, the script of a day and the support bundle
 * are run as they stand.
 */
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import { proposals, questionOf, type ServeReady } from '#support/proposing'
import { blocksIn, type ShellEnded, section, shell } from '#support/readme'
import { hasTerminals, onTerminal } from '#support/terminal'

const shop = workshop()
const root = join(import.meta.dirname, '../..')

async function patiently(run: () => Promise<ShellEnded>): Promise<ShellEnded> {
  const ended = await run()
  return ended.code !== 0 && /the gateway is overloaded/.test(ended.stdout + ended.stderr)
    ? patiently(run)
    : ended
}

describe.skipIf(!hasTerminals)('README: a first session', () => {
  test('one terminal serves and says what to paste into the other one, which proposes to the end', async () => {
    const folder = await shop.folder()
    for (const name of ['bin', 'dist', 'package.json'])
      await symlink(join(root, name), join(folder, name))
    const [serving = '', proposing = '', ...more] = blocksIn(section('A first session'), 'sh')
    expect(more).toEqual([])
    const [alias = '', command = ''] = serving.split('\n')
    expect(serving).toBe(`${alias}\n${command}\n`)
    expect(proposing).toMatch(`${alias}\n`)
    expect(command).toMatch(/^proposer serve --dev$/)
    const args = [...command.split(' ').slice(1), '--port', '0']
    const serves = await onTerminal(args, { TMPDIR: folder }, { columns: 80 })
    try {
      await serves.said(/--outcome yes --wait\r?\n/)
      const exports = serves.screen().match(/^export PROPOSER_\w+=\S+/gm) ?? []
      expect(exports).toHaveLength(5)
      const place = /^# here the five export lines.*$/m
      expect(proposing).toMatch(place)
      for (const typed of ['proposer questions list', /proposer submit .*/.exec(proposing)?.[0]])
        expect(serves.screen()).toContain(`  ${typed}\r\n`)
      const { code, stdout, stderr } = await patiently(() =>
        shell(
          folder,
          proposing.replace(place, () => exports.join('\n')),
        ),
      )
      expect(code, stderr).toBe(0)
      expect(stdout).toMatch(/^QUESTION +TITLE/m)
      expect(stdout).toMatch(/^executed /m)
      expect(stdout).toMatch(/^QUESTION +ANSWER +STATE +AMOUNT +SIGNED +JOURNAL ID *$/m)
      expect(stdout).toMatch(
        /^Will it rain in Porto on Friday\? +Yes \(p2\) +executed .* [0-9a-f]{12}-1 *$/m,
      )
    } finally {
      serves.type('\u0003')
      await serves.ended
    }
    expect((await serves.ended).code).toBe(0)
    expect((await readdir(folder)).filter((name) => name.startsWith('proposer-'))).toEqual([])
  }, 180_000)
})

const pointed = (script: string, gateway: ServeReady) =>
  script
    .replaceAll('https://gateway.example', gateway.url)
    .replaceAll('https://polygon.example', gateway.dev.rpc_url)
    .replaceAll('PROPOSER_PROFILE=polygon', 'PROPOSER_PROFILE=dev')
    .replaceAll(/ --signed-proposer 0x1{40}/g, '')

describe("docs: set up once, and a day's work", () => {
  test('a key and two addresses are enough; the script proposes every row, and run again it proposes nothing twice', async () => {
    const gateway = await shop
      .start(argvOf`serve --dev --port 0 --questions 3 --json`)
      .line<ServeReady>()
    const account = gateway.dev.accounts.find(({ role }) => role === 'proposer')
    const folder = await shop.folder()
    const env = { PROPOSER_HOME: join(folder, 'home') }
    await writeFile(join(folder, 'key'), `${account?.private_key}\n`, { mode: 0o600 })
    const setUp = blocksIn(section('Set up once', 'docs/proposing.md'), 'sh').join('\n')
    const ready = await patiently(() => shell(folder, pointed(setUp, gateway), { env }))
    expect(ready.code, ready.stdout + ready.stderr).toBe(0)
    expect(ready.stdout).toMatch(/^approved +15,000 USDC\.e$/m)

    const script = blocksIn(section("A day's work", 'docs/proposing.md'), 'sh').join('\n')
    const rows = [0, 1].map((n) => ({
      identifier: questionOf(gateway.dev, n).question_id,
      outcome: 'p2',
      client_ref: `row-${n}`,
    }))
    await writeFile(
      join(folder, 'today.ndjson'),
      rows.map((row) => `${JSON.stringify(row)}\n`).join(''),
    )
    for (const _ of ['run', 'run again']) {
      const { code, stdout, stderr } = await patiently(() =>
        shell(folder, pointed(script, gateway), { env }),
      )
      expect(code, stdout + stderr).toBe(0)
      expect(stdout).toMatch(/^sound: 2 authorizations/m)
      const accounting = (await readFile(join(folder, 'accounting.ndjson'), 'utf8'))
        .trim()
        .split('\n')
      expect(accounting.map((line) => JSON.parse(line).client_ref)).toEqual(['row-0', 'row-1'])
      expect(await proposals(gateway.dev, account?.address ?? '0x')).toHaveLength(2)
    }

    const bundle = blocksIn(section('Asking for support', 'docs/proposing.md'), 'sh').join('\n')
    const written = join(folder, 'bundle')
    await mkdir(written)
    const asked = await shell(written, bundle.replace('some-slug', rows[0]?.identifier ?? ''), {
      env: { ...env, PROPOSER_PROFILE: 'dev' },
    })
    expect(asked.code, asked.stderr).toBe(0)
    const [name = ''] = (await readdir(written)).filter((one) =>
      one.startsWith('proposer-support-'),
    )
    const document = JSON.parse(await readFile(join(written, name), 'utf8'))
    expect(document).toMatchObject({ schema: 'proposer.support-bundle/1' })
    expect(JSON.stringify(document)).toContain('row-0')
    expect(JSON.stringify(document)).not.toContain('row-1')
  }, 180_000)
})

describe('docs: tab key and manual', () => {
  test('the line for bash puts a script where bash looks for it', async () => {
    const folder = await shop.folder()
    const script = blocksIn(section('Tab key and manual', 'docs/proposing.md'), 'sh').join('\n')
    const { code, stderr } = await shell(folder, script, { env: { HOME: folder } })
    expect([code, stderr]).toEqual([0, ''])
    const written = await readFile(
      join(folder, '.local/share/bash-completion/completions/proposer'),
      'utf8',
    )
    expect(written).toMatch(/^complete .*\bproposer$/m)
  })
})
