/**
 * Real components that tests run with. Where one is not installed, its tests are left out by name;
 * with `CI_REQUIRE_ALL=1` they fail. `PROPOSER_TEST_POSTGRES=required` asks that of PostgreSQL 18
 * alone, which comes with npm.
 */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, join } from 'node:path'
import { found, type PostgresNeed } from './postgres/binaries.js'

const firstOf = (paths: readonly string[]) => paths.find((path) => existsSync(path))
const program = (...names: readonly string[]) =>
  firstOf(
    [...(process.env.PATH ?? '').split(delimiter), '/usr/bin', '/usr/sbin'].flatMap((folder) =>
      names.map((name) => join(folder, name)),
    ),
  )
const require = createRequire(import.meta.url)
function resolved(resolve: () => string): string | undefined {
  try {
    return resolve()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return undefined
    throw error
  }
}

const components = {
  Chromium: [() => program('chromium', 'google-chrome'), 'apt install chromium'],
  nginx: [() => program('nginx'), 'apt install nginx'],
  openssl: [() => program('openssl'), 'apt install openssl'],
  promtool: [() => program('promtool'), 'apt install prometheus'],
  'systemd-analyze': [() => program('systemd-analyze'), 'apt install systemd'],
  'softhsm2-util': [() => program('softhsm2-util'), 'apt install softhsm2'],
  'libsofthsm2.so': [
    () =>
      firstOf([
        '/usr/lib/softhsm/libsofthsm2.so',
        '/usr/lib64/pkcs11/libsofthsm2.so',
        '/usr/local/lib/softhsm/libsofthsm2.so',
        '/opt/homebrew/lib/softhsm/libsofthsm2.so',
      ]),
    'apt install softhsm2',
  ],
  'pkcs11-tool': [() => program('pkcs11-tool'), 'apt install opensc'],
  pkcs11js: [
    () => resolved(() => require.resolve('pkcs11js/build/Release/pkcs11.node')),
    'npm ci, with a C++ compiler',
  ],
  'Safe contracts': [
    () => resolved(() => require.resolve('@safe-global/safe-contracts/package.json')),
    'npm ci',
  ],
} as const satisfies Record<string, readonly [find: () => string | undefined, from: string]>

export type Component = PostgresNeed | keyof typeof components

export function pathOf(component: keyof typeof components): string {
  const [find, from] = components[component]
  const path = find()
  if (path === undefined) throw new Error(`no ${component} (${from})`)
  return path
}

function whyMissing(component: Component): string | undefined {
  if (component === 18 || component === 15 || component === 'pgbouncer')
    return found(component).missing
  const [find, from] = components[component]
  return find() === undefined ? `no ${component} (${from})` : undefined
}

export function lackOf(
  needs: readonly Component[],
  env: NodeJS.ProcessEnv = process.env,
  missingOf = whyMissing,
): { readonly why: string; readonly isError: boolean } | undefined {
  const missing = needs.flatMap((need) => {
    const why = missingOf(need)
    return why === undefined ? [] : [{ need, why }]
  })
  if (missing.length === 0) return undefined
  return {
    why: missing.map(({ why }) => why).join(', '),
    isError:
      env.CI_REQUIRE_ALL === '1' ||
      (env.PROPOSER_TEST_POSTGRES === 'required' && missing.some(({ need }) => need === 18)),
  }
}

function leftOut(needs: readonly Component[], title: string): string | undefined {
  const lack = lackOf(needs)
  if (lack === undefined) return undefined
  if (lack.isError) {
    test(title, () => {
      throw new Error(`${lack.why}; this run wants it`)
    })
    return 'failed'
  }
  const name = `${title} (left out: ${lack.why})`
  process.stderr.write(`${name}\n`)
  return name
}

export function describeWith(needs: readonly Component[], title: string, body: () => void): void {
  const name = leftOut(needs, title)
  if (name !== 'failed') describe.skipIf(name !== undefined)(name ?? title, body)
}

export function testWith(
  needs: readonly Component[],
  title: string,
  body: () => Promise<void> | void,
): void {
  const name = leftOut(needs, title)
  if (name !== 'failed') test.skipIf(name !== undefined)(name ?? title, body)
}
