/**
 * R5, T12: canaries in every place that holds a secret; every command of the program is run until
 * it succeeds, until it fails, and until it crashes, and no canary is found in anything that leaves
 * it.
 */
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import type { Command } from 'commander'
import { verbs } from '#commands/verbs'
import { argvOf } from '#support/argv'
import { figures } from '#support/campaign'
import { type Left, questionsNeeded, type Scenario, scenarios } from '#support/canaries/scenarios'
import {
  canaryWorld,
  filesUnder,
  type Mode,
  modesUnder,
  type Printed,
  signaturesUnder,
  type World,
} from '#support/canaries/world'
import { fakeContext } from '#support/cli'
import { workshop } from '#support/processes'
import { questionOf } from '#support/proposing'
import { hasTerminals, onTerminal } from '#support/terminal'

async function allCommands(): Promise<readonly string[]> {
  const { context } = fakeContext('/nowhere')
  const found: string[] = []
  const walk = (command: Command, path: readonly string[]) => {
    if (command.commands.length === 0 || Reflect.get(command, '_actionHandler') !== null)
      found.push(path.join(' '))
    for (const child of command.commands) walk(child, [...path, child.name()])
  }
  for (const [name, verb] of Object.entries(verbs)) walk((await verb.load())(context), [name])
  return found.sort()
}

const shop = workshop()
const modes: readonly Mode[] = ['text', 'json', 'ndjson']
const closers: (() => Promise<void>)[] = [() => shop.clean()]
const left: Left = { journalIds: [], candidateIds: [] }
let world: World
let table: Readonly<Record<string, Scenario>>

beforeAll(async () => {
  world = await canaryWorld(shop, questionsNeeded)
  closers.push(() => world.close())
  table = scenarios(world, left)
})
afterAll(async () => {
  for (const close of closers.reverse()) await close()
})

const seen = {
  success: new Set<string>(),
  failure: new Set<string>(),
  crash: new Set<string>(),
  reported: new Set<string>(),
}

function keep(printed: string): void {
  const text = printed.replace(/^[<>] .*$/gm, '')
  for (const [, id = ''] of text.matchAll(/"journal_id": ?"([0-9a-f]{12}-\d+)"/g))
    if (!left.journalIds.includes(id)) left.journalIds.push(id)
  for (const [, id = ''] of text.matchAll(/"candidate_id": ?"([0-9a-f-]{36})"/g))
    if (!left.candidateIds.includes(id)) left.candidateIds.push(id)
}

test('T12: every command of the program has a scenario, and no scenario is of none', async () => {
  expect(Object.keys(table).sort()).toEqual(await allCommands())
})

describe('R5: no secret leaves', () => {
  test('a command that succeeds, in each form of output; serve, devchain and demo while they run', async () => {
    const missed: string[] = []
    const succeed = async (wanted: (name: string) => boolean) => {
      for (const [name, { argv, holdsPayload, foreground, late }] of Object.entries(table)) {
        if (foreground || late || !wanted(name)) continue
        for (const [n, mode] of modes.entries()) {
          const { code, text } = await world.run(argv(n), mode, {
            holdsPayload: holdsPayload === true,
          })
          if (code === 0) seen.success.add(name)
          keep(text)
        }
        if (!seen.success.has(name)) missed.push(`${name}: ${world.printed.at(-1)?.text}`)
      }
    }
    const ofChain = (name: string) => name.startsWith('devchain')
    await Promise.all([succeed(ofChain), succeed((name) => !ofChain(name)), foreground()])
    expect(missed).toEqual([])
  })

  test('the one that needs a candidate whose transaction no node takes', async () => {
    const name = 'operator candidates reject'
    const question = questionOf(world.dev, questionsNeeded - 2).question_id
    world.refuse('sends')
    const submitted = await world.run(argvOf`submit ${question} --outcome p2`, 'json')
    keep(submitted.text)
    const { code, text } = await world.run(table[name]?.argv(0) ?? [], 'json')
    world.refuse('nothing')
    expect([submitted.code, code], text).toEqual([0, 0])
    seen.success.add(name)
  })

  test('the one that wants a terminal', async () => {
    const name = 'operator top'
    if (hasTerminals) {
      const terminal = await onTerminal(table[name]?.argv(0) ?? [], world.env)
      await terminal.said(/executor/i)
      terminal.type('\u0003')
      const { code, text } = await terminal.ended
      expect(code, text).toBe(0)
      world.printed.push({ label: `${name} (terminal)`, text, holdsPayload: false })
    }
    seen.success.add(name)
  })

  test('the one that needs a token', async () => {
    const name = 'account add-pkcs11'
    for (const [n, mode] of world.module === '' ? [] : modes.entries()) {
      const { code, text } = await world.run(table[name]?.argv(n) ?? [], mode)
      expect(code, text).toBe(0)
    }
    seen.success.add(name)
  })

  test('one that fails: everybody who is asked refuses, and repeats all that it was told', async () => {
    const fail = async (name: string, { argv, bad }: Scenario) => {
      world.refuse(bad === undefined ? 'all' : 'nothing')
      const runs = modes.map((mode) => world.run((bad ?? argv)(3), mode))
      for (const { code } of await Promise.all(runs)) if (code !== 0) seen.failure.add(name)
    }
    const rows = Object.entries(table).filter(([, { foreground }]) => foreground !== true)
    // A batch waits up to a minute for a node that refuses.
    const isSlow = ([name]: (typeof rows)[number]) => /^batch (sign|submit)$/.test(name)
    await Promise.all(rows.filter(isSlow).map((row) => fail(...row)))
    for (const row of rows) if (!isSlow(row)) await fail(...row)
    const told = (name: string) =>
      world.printed.findLast(({ label }) => label.startsWith(name))?.text
    const missed = rows.flatMap(([name]) =>
      seen.failure.has(name) ? [] : [`${name}: ${told(name)}`],
    )
    world.refuse('nothing')
    expect(missed).toEqual([])
  })
})

async function foreground(): Promise<void> {
  for (const [name, { argv, bad, foreground }] of Object.entries(table)) {
    if (foreground !== true) continue
    for (const mode of name === 'demo' ? (['text'] as const) : modes) {
      const flag = mode === 'text' ? [] : [`--${mode}`]
      const running = shop.start([...argv(0), ...flag], { env: world.env, cwd: world.folder })
      if (name !== 'demo') await running.line().catch(() => undefined)
      const ended = name === 'demo' ? await running.ended : await running.stop()
      if (ended.code === 0) seen.success.add(name)
      world.printed.push({
        label: `${name} (${mode})`,
        text: `${ended.stdout}\n${ended.stderr}`,
        holdsPayload: false,
      })
      const failed = await shop.run([...(bad ?? argv)(3), ...flag], {
        env: world.env,
        cwd: world.folder,
      })
      if (failed.code !== 0) seen.failure.add(name)
      world.printed.push({
        label: `${name} (${mode}, bad)`,
        text: `${failed.stdout}\n${failed.stderr}`,
        holdsPayload: false,
      })
    }
  }
}

/**
 * Loaded before the program: what it printed first is followed by an error that nobody foresaw,
 * holding a secret, and once that is reported by SIGABRT. Whatever Node.js offers to write about
 * such ends is asked for.
 */
const crashCode = `
  import fs from 'node:fs'
  import { syncBuiltinESMExports } from 'node:module'
  const words = fs.readFileSync(new URL('words', import.meta.url), 'utf8')
  let isOver = false
  const printed = () => {
    if (!isOver) setImmediate(() => { throw Object.assign(new Error(words), { secret: words, path: words }) })
    isOver = true
  }
  for (const stream of [process.stdout, process.stderr]) {
    const { write } = stream
    stream.write = function (...rest) {
      printed()
      return write.apply(this, rest)
    }
  }
  // What goes to files and pipes goes without node's streams.
  const { writeSync } = fs
  fs.writeSync = (descriptor, ...rest) => {
    if (descriptor === 1 || descriptor === 2) printed()
    return writeSync(descriptor, ...rest)
  }
  syncBuiltinESMExports()
  process.on('exit', () => process.abort())`

test('R5: a command that ends by an error nobody foresaw and by SIGABRT leaves no secret and no report behind', async () => {
  const reports = join(world.folder, 'reports')
  const preload = join(world.folder, 'damaged', 'crash.mjs')
  mkdirSync(reports)
  writeFileSync(preload, crashCode)
  writeFileSync(
    join(world.folder, 'damaged', 'words'),
    world.canaries.map(({ text }) => text).join(' '),
  )
  const flags = argvOf`--report-uncaught-exception --report-on-fatalerror --report-on-signal
    --report-directory=${reports}`
  const options = [...flags, `--import=file://${preload}`].join(' ')
  const crash = async (name: string, { argv, holdsPayload }: Scenario, n: number) => {
    const mode = modes[n % modes.length] ?? 'text'
    const args = mode === 'text' ? argv(4) : [...argv(4), `--${mode}`]
    const env = {
      ...world.env,
      NODE_OPTIONS: options,
      PROPOSER_PRIVATE_KEY: `0x${world.canaries[2]?.text}`,
    }
    const ended = await shop.run([...args], { env, cwd: world.folder })
    world.printed.push({
      label: `${name} (crashed, ${mode})`,
      text: `${ended.stdout}\n${ended.stderr}`,
      holdsPayload: holdsPayload === true,
    })
    expect(ended.signal, `${name}: ${ended.stdout}${ended.stderr}`).toBe('SIGABRT')
    seen.crash.add(name)
    if (/unexpected failure|internal_error/.test(ended.stderr)) seen.reported.add(name)
  }
  const queue = Object.entries(table).map(
    ([name, scenario], n) =>
      () =>
        crash(name, scenario, n),
  )
  await Promise.all(
    [0, 1].map(async () => {
      for (let next = queue.shift(); next; next = queue.shift()) await next()
    }),
  )
  expect(seen.crash.size).toBe(Object.keys(table).length)
  expect(seen.reported.size).toBeGreaterThan(50)
  expect(readdirSync(reports)).toEqual([])
})

test('T12: every command has succeeded, failed and crashed', () => {
  for (const runs of [seen.success, seen.failure, seen.crash])
    expect([...runs].sort()).toEqual(Object.keys(table).sort())
})

test('R5: the gateway that served it all has told no secret in log, metrics, health and refusals', async () => {
  const { url, admin_url: admin } = world.ready
  for (const refused of [false, true]) {
    world.refuse(refused ? 'all' : 'nothing')
    for (const address of [
      `${url}/healthz`,
      `${url}/readyz`,
      `${url}/openapi.json`,
      `${admin}/readyz`,
      `${admin}/metrics`,
      `${admin}/operator/status`,
    ]) {
      const label = `GET ${new URL(address).pathname}${refused ? ' (refused)' : ''}`
      world.printed.push({ label, text: await (await fetch(address)).text(), holdsPayload: false })
    }
    const [words] = world.canaries
    const asked = await fetch(`${url}/v1/${words?.text}?key=${words?.text}`, {
      headers: { authorization: `Bearer ${words?.text}` },
    })
    world.printed.push({
      label: 'GET with a secret',
      text: await asked.text(),
      holdsPayload: false,
    })
  }
  world.refuse('nothing')
  const { code, stdout, stderr } = await world.server.stop()
  expect(code).toBe(0)
  expect(stderr.split('\n').length).toBeGreaterThan(50)
  world.printed.push({
    label: 'serve, the log of all',
    text: `${stdout}\n${stderr}`,
    holdsPayload: false,
  })
})

test('R5: no canary in anything that was printed, in any run', () => {
  const traces = world.printed.flatMap(({ text }) => text.match(/^[<>] .*$/gm) ?? [])
  expect(traces.length).toBeGreaterThan(200)
  expect(traces.some((line) => line.startsWith('> POST'))).toBe(true)
  const { outputs, bytes, secrets } = search(world.printed)
  figures('secrets', {
    commands: Object.keys(table).length,
    outputs,
    'bytes searched': bytes,
    secrets,
    succeeded: seen.success.size,
    failed: seen.failure.size,
    crashed: seen.crash.size,
  })
})

test('R5: files hold secrets only where the contract keeps them, and those are for their owner alone', () => {
  const found: string[] = []
  const secrets = secretsOf()
  let looked = 0
  for (const path of filesUnder(world.folder)) {
    const kept = keptAt(path)
    const text = readFileSync(path, 'latin1').toLowerCase()
    looked += 1
    for (const { kind, text: secret } of secrets)
      if (!kept.has(kind) && !kept.has('all') && text.includes(secret))
        found.push(`${path}: ${kind}`)
  }
  expect(looked).toBeGreaterThan(100)
  expect(found).toEqual([])
  for (const place of [
    join(world.home, 'journal'),
    join(world.home, 'keystores'),
    join(world.home, 'budget'),
    join(world.folder, 'dev', 'gateway-store'),
  ]) {
    for (const [path, mode] of modesUnder(place)) expect([path, mode & 0o077]).toEqual([path, 0])
  }
  expect(statSync(join(world.home, 'config.json')).mode & 0o077).toBe(0)
  expect(statSync(join(world.folder, 'bundle.json')).mode & 0o077).toBe(0)
})

function keptAt(path: string): ReadonlySet<string> {
  const inside = relative(world.folder, path).split(sep)
  const [first = '', second = ''] = inside
  if (
    /\.key$|\.url$|\.pin$|^password$|(gateway|shared)\.json$|^damaged$/.test(
      inside.length > 2 ? '' : (inside.at(-1) ?? ''),
    ) ||
    first === 'damaged'
  )
    return new Set(['all'])
  if (
    (first === 'home' && second === 'journal') ||
    inside.includes('gateway-store') ||
    inside.includes('second-store') ||
    inside.includes('old-store') ||
    first.startsWith('backup-')
  ) {
    return new Set([
      'signature',
      'part of a Safe',
      ...(inside.at(-1) === 'admin.token' ? ['admin token'] : []),
    ])
  }
  if (first === 'receipt-key.json') return new Set(['receipt key'])
  // A profile may hold the URLs of node and gateway (contract §7); the file is readable by its owner only.
  if (first === 'home' && second === 'config.json')
    return new Set(['basePath', 'rpcUser', 'rpcPassword', 'rpcPath', 'rpcQuery'])
  return new Set()
}

function secretsOf(): readonly { readonly kind: string; readonly text: string }[] {
  const token = readFileSync(
    join(world.folder, 'dev', 'gateway-store', 'admin.token'),
    'utf8',
  ).trim()
  const signatures = signaturesUnder(world.folder)
  expect(signatures.length).toBeGreaterThan(5)
  const { keys } = JSON.parse(readFileSync(join(world.folder, 'receipt-key.json'), 'utf8'))
  const rotated = keys.map(({ d }: { d: string }) => ({ kind: 'receipt key', text: d }))
  return [
    ...[...world.canaries, ...rotated, { kind: 'admin token', text: token }].flatMap(
      ({ kind, text }) => formsOf(text).map((form) => ({ kind, text: form.toLowerCase() })),
    ),
    ...signatures.map((hex) => ({ kind: 'signature', text: hex.slice(0, 64) })),
  ]
}

function formsOf(text: string): readonly string[] {
  const ofBytes = (bytes: Buffer) => [
    bytes.toString('base64').replace(/=+$/, ''),
    bytes.toString('base64url'),
  ]
  const forms = [text, ...ofBytes(Buffer.from(text)), Buffer.from(text).toString('hex')]
  if (!/^[0-9a-f]{64}$/.test(text)) return [...new Set(forms)]
  return [
    ...new Set([...forms, ...ofBytes(Buffer.from(text, 'hex')), BigInt(`0x${text}`).toString()]),
  ]
}

function search(outputs: readonly Printed[]): {
  readonly outputs: number
  readonly bytes: number
  readonly secrets: number
} {
  const secrets = secretsOf()
  const found: string[] = []
  let bytes = 0
  for (const { label, text, holdsPayload } of outputs) {
    const inside = text.toLowerCase()
    bytes += inside.length
    for (const { kind, text: secret } of secrets) {
      if (inside.includes(secret) && !(holdsPayload && kind === 'signature'))
        found.push(`${label}: ${kind}`)
    }
  }
  expect([...new Set(found)]).toEqual([])
  return {
    outputs: outputs.length,
    bytes,
    secrets: new Set(secrets.map(({ kind, text }) => (kind === 'signature' ? text : kind))).size,
  }
}
