/**
 * The package as people get it: what is in the tarball, and that it runs from an empty folder, on
 * this Node.js and on the newest one.
 */
import { execFile } from 'node:child_process'
import { chmod, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { argvOf } from '#support/argv'
import { install, installGlobally, newestNode, type Packed, pack } from '#support/packed'
import { workshop } from '#support/processes'
import { questionOf, type ServeReady } from '#support/proposing'
import manifest from '../../package.json' with { type: 'json' }
import lock from '../../package-lock.json' with { type: 'json' }

const shop = workshop()
const root = join(import.meta.dirname, '../..')
const runs = promisify(execFile)

interface Sbom {
  readonly components: readonly {
    readonly name: string
    readonly version: string
    readonly licenses: readonly { readonly expression?: string }[]
  }[]
}

const bot = `
import { openProposer, readKeyFile, signerFromKey } from 'proposer'
const [gateway, rpcUrl, identifier] = process.argv.slice(2)
const signer = signerFromKey(await readKeyFile('key'))
const proposer = await openProposer({ home: 'home', gateway, rpcUrl, trust: 'trust.json', signer })
try {
  const { outcome, candidate } = await proposer.submit({ identifier, outcome: 'p2' })
  const { candidates } = await proposer.follow(candidate.candidateId)
  console.log(outcome, candidates[0].status)
} finally {
  await proposer.close()
}
`

let packed: Packed
let folder: string

beforeAll(async () => {
  packed = await pack(await shop.folder())
  folder = await shop.folder()
  await install(packed, folder)
}, 240_000)

const installed = () => join(folder, 'node_modules', 'proposer')

const proposer = (node: string, ...args: string[]) =>
  runs(node, [join(folder, 'node_modules', '.bin', 'proposer'), ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', HOME: folder, TMPDIR: folder, NO_COLOR: '1' },
  })

/** What others could write is not run: neither a link nor an open folder is used, and none is no fault. */
async function keepsCompiled(node: string, cache: string): Promise<void> {
  const help = async (XDG_CACHE_HOME: string, env = {}, says = 'Usage:') => {
    const { stdout, stderr } = await runs(node, [join(installed(), 'bin', 'proposer.js'), '-h'], {
      cwd: installed(),
      env: { XDG_CACHE_HOME, ...env },
    })
    expect(stdout).toContain(`${says} proposer <command>`)
    expect(stderr).toBe('')
  }
  const own = join(cache, 'proposer')
  await help(cache)
  expect((await stat(own)).mode & 0o777).toBe(0o700)
  const [front = '', ...more] = (await readdir(own)).sort().filter((name) => !/runtime/.test(name))
  expect([front, more]).toEqual([expect.stringMatching(/^front-/), []])
  const file = join(own, front)
  const kept = await readFile(file)
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  // V8 believes all: a flipped bit and a torn file are neither run nor left there.
  const broken = [kept.subarray(0, 7), kept.subarray(0, -99), Buffer.alloc(kept.length)]
  for (let at = 0; at < kept.length; at += Math.ceil(kept.length / 20))
    broken.push(Buffer.from(kept).fill(~(kept[at] ?? 0), at, at + 1))
  for (const bytes of broken) {
    await writeFile(file, bytes)
    await help(cache)
    expect((await readFile(file)).length).toBeGreaterThan(kept.length / 2)
  }
  const { mtimeMs } = await stat(file)
  await help(cache)
  expect((await stat(file)).mtimeMs).toBe(mtimeMs)
  const part = join(installed(), 'dist', 'parts', front.replace(/\.js.*/, '.js'))
  const source = await readFile(part, 'utf8')
  await writeFile(part, source.replace('Usage:', 'USAGE:'))
  await help(cache, {}, 'USAGE:')
  await writeFile(part, source)
  // Of a full disk: nobody tries again.
  await writeFile(file, '')
  await help(cache)
  expect((await stat(file)).size).toBe(0)
  const elsewhere = `${cache}-elsewhere`
  await rm(own, { recursive: true })
  await help(cache, { NODE_DISABLE_COMPILE_CACHE: '1' })
  expect(await readdir(cache)).toEqual([])
  await mkdir(elsewhere, { mode: 0o700 })
  await symlink(elsewhere, own)
  await help(cache)
  expect(await readdir(elsewhere)).toEqual([])
  await rm(own)
  await mkdir(own)
  await chmod(own, 0o770)
  await help(cache)
  expect(await readdir(own)).toEqual([])
  for (const none of ['/dev/null', 'relative']) await help(none)
  expect(await readdir(installed())).not.toContain('relative')
}

async function works(node: string): Promise<void> {
  expect((await proposer(node, '--version')).stdout).toBe(`${manifest.version}\n`)
  expect((await proposer(node, '--help')).stdout).toMatch(/^Usage: proposer <command>/)
  const { stdout, stderr } = await proposer(node, 'demo', '--json')
  expect(JSON.parse(stdout), stderr).toMatchObject({ schema: 'proposer.demo/1', ok: true })
  await writeFile(
    join(folder, 'import.js'),
    "import { priceOf, version } from 'proposer'\nconsole.log(version.api, priceOf.p2)\n",
  )
  const { stdout: imported } = await runs(node, [join(folder, 'import.js')], { cwd: folder })
  expect(imported).toBe('v1 1000000000000000000\n')
}

describe('the tarball', () => {
  test('it holds what runs, its types and its papers, and nothing else', () => {
    const belongs = [
      /^(package\.json|README\.md|CHANGELOG\.md|SECURITY\.md|LICENSE)$/,
      /^bin\/((proposer|pkcs11)\.js|package\.json)$/,
      /^man\/[\w-]+\.1$/,
      /^docs\/reference\/gateway\.schema\.json$/,
      /^dist\/((main|library)\.js|package\.json)$/,
      /^dist\/sbom\.cdx\.json$/,
      /^dist\/parts\/[\w.-]+\.js$/,
      /^dist\/types\/[\w/-]+\.d\.ts$/,
      /^fixtures\/contracts\/(artifacts|questions)\.json$/,
    ]
    const names = packed.files.map(({ path }) => path)
    expect(names.filter((name) => !belongs.some((pattern) => pattern.test(name)))).toEqual([])
    expect(names).toEqual(
      expect.arrayContaining([
        'bin/proposer.js',
        'dist/main.js',
        'dist/library.js',
        'dist/sbom.cdx.json',
        'dist/types/library.d.ts',
        'LICENSE',
        'README.md',
      ]),
    )
    expect(packed.size).toBeLessThan(2_000_000)
  })

  test('its SBOM lists every package whose text is in it, in the version that is locked, with its licence', async () => {
    const sbom = JSON.parse(
      await readFile(join(installed(), 'dist', 'sbom.cdx.json'), 'utf8'),
    ) as Sbom
    expect(sbom).toMatchObject({
      bomFormat: 'CycloneDX',
      metadata: { component: { name: 'proposer', version: manifest.version } },
    })
    const locked = Object.entries(lock.packages as Record<string, { version?: string }>).map(
      ([path, { version }]) => `${path.replace(/^.*node_modules\//, '')}@${version}`,
    )
    const listed = sbom.components.map(({ name, version }) => `${name}@${version}`)
    expect(listed.filter((one) => !locked.includes(one))).toEqual([])
    expect(sbom.components.filter(({ licenses }) => !licenses[0]?.expression)).toEqual([])
    // The bundler names the module above its text.
    const parts = packed.files.filter(({ path }) => /^dist\/.*\.js$/.test(path))
    const texts = await Promise.all(
      parts.map(({ path }) => readFile(join(installed(), path), 'utf8')),
    )
    const bundled = texts.flatMap((text) =>
      [...text.matchAll(/^\/\/ .*node_modules\/((?:@[^/]+\/)?[^/]+)\//gm)].map(([, name]) => name),
    )
    expect(new Set(bundled)).toEqual(new Set(sbom.components.map(({ name }) => name)))
  })

  test('it names no folder of the machine that built it, and no source map', async () => {
    const texts = await Promise.all(
      (await readdir(installed(), { recursive: true, withFileTypes: true }))
        .filter((entry) => entry.isFile())
        .map(
          async (entry) =>
            [entry.name, await readFile(join(entry.parentPath, entry.name), 'utf8')] as const,
        ),
    )
    expect(texts.length).toBe(packed.files.length)
    // The build names a part by the way to it, which leads out of the copy, because its
    // node_modules are a link.
    const asBuilt = (text: string) =>
      text.replace(/(\.\.\/)+[\w/.-]*?node_modules\//g, 'node_modules/')
    const telling = texts.filter(
      ([, text]) =>
        [root, dirname(packed.path)].some((path) => asBuilt(text).includes(path)) ||
        /^\/\/# sourceMappingURL=/m.test(text),
    )
    expect(telling.map(([name]) => name)).toEqual([])
  })

  test('installed in an empty folder it runs here: version, help, a whole demo, and the library', async () => {
    expect((await readdir(folder)).sort()).toEqual(
      expect.arrayContaining(['node_modules', 'package.json']),
    )
    await works(process.execPath)
  })

  test('what it compiles is kept, in a folder that is ours alone', async () => {
    await keepsCompiled(process.execPath, join(await shop.folder(), 'caches'))
  })

  test('installed without the optional packages the library proposes, and what needs anvil says what to install', async () => {
    const bare = await shop.folder()
    await install(packed, bare, { optional: false })
    const modules = await readdir(join(bare, 'node_modules'))
    const optional = ['@foundry-rs', 'secp256k1', 'pkcs11js', '@aws-sdk', '@google-cloud']
    expect(modules.filter((name) => optional.includes(name))).toEqual([])
    const { dev, url } = await shop
      .start(argvOf`serve --dev --port 0 --questions 1 --json`)
      .line<ServeReady>()
    const key = dev.accounts.find(({ role }) => role === 'proposer')?.private_key
    await writeFile(join(bare, 'key'), `${key}\n`, { mode: 0o600 })
    await writeFile(join(bare, 'trust.json'), JSON.stringify(dev.trust))
    await writeFile(join(bare, 'bot.js'), bot)
    const env = { PATH: process.env.PATH ?? '', HOME: bare, TMPDIR: bare }
    const args = ['bot.js', url, dev.rpc_url, questionOf(dev, 0).slug]
    const { stdout } = await runs(process.execPath, args, { cwd: bare, env })
    expect(stdout).toBe('accepted executed\n')
    const program = join(bare, 'node_modules', '.bin', 'proposer')
    for (const command of [['serve', '--dev'], ['devchain'], ['demo']])
      await expect(
        runs(process.execPath, [program, ...command], { cwd: bare, env }),
      ).rejects.toMatchObject({
        code: 2,
        stderr: expect.stringContaining('npm install @foundry-rs/anvil@'),
      })
    const version = 'projects/p/locations/global/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1'
    for (const [key, wanted] of [
      ['alias/hot', '@aws-sdk/client-kms@3'],
      [version, '@google-cloud/kms@5'],
    ] as const)
      await expect(
        runs(process.execPath, argvOf`${program} account add-kms hot --key ${key}`, {
          cwd: bare,
          env,
        }),
      ).rejects.toMatchObject({
        code: 2,
        stderr: expect.stringContaining(`npm install ${wanted}`),
      })
    const token = argvOf`--uri pkcs11:object=main --module token.so --pin-file pin`
    await writeFile(join(bare, 'pin'), '123456\n', { mode: 0o600 })
    await expect(
      runs(process.execPath, [program, 'account', 'add-pkcs11', 'hsm', ...token], {
        cwd: bare,
        env,
      }),
    ).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /^error: the optional package pkcs11js[^\n]* is not installed, or not built\nhint: [^\n]*npm install pkcs11js@2/,
      ),
    })
    expect((await runs(process.execPath, [program, '--version'], { env })).stdout).toBe(
      `${manifest.version}\n`,
    )
  })

  test('installed globally it brings the manual page', async ({ skip }) => {
    const prefix = await shop.folder()
    if (!(await installGlobally(packed, prefix))) return skip()
    const page = await readFile(join(prefix, 'share', 'man', 'man1', 'proposer.1'), 'utf8')
    expect(page).toContain('proposer')
    expect((await runs(join(prefix, 'bin', 'proposer'), ['--version'])).stdout).toBe(
      `${manifest.version}\n`,
    )
  })

  test('it runs on the newest Node.js that npm has', async ({ skip }) => {
    const place = join(await shop.folder(), 'newest')
    await mkdir(place)
    const node = await newestNode(place)
    if ('missing' in node) {
      process.stderr.write(
        `the newest Node.js could not be had, its test is left out: ${node.missing}\n`,
      )
      return skip()
    }
    const { stdout } = await runs(node.path, ['--version'])
    process.stderr.write(`the tarball on Node.js ${stdout}`)
    await works(node.path)
    await keepsCompiled(node.path, join(place, 'caches'))
  }, 240_000)
})
