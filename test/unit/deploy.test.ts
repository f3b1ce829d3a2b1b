/** deploy/: the compose file and what it names fit together, and are what the pages say. */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { parseYaml } from '@redocly/openapi-core'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parseConfig } from '../../src/core/gateway/config.js'
import { blocksIn, root, section } from '../support/readme.js'

const folder = join(root, 'deploy')
const read = (path: string) => readFileSync(join(folder, path), 'utf8')

interface Service {
  readonly image: string
  readonly secrets?: readonly string[]
  readonly volumes?: readonly string[]
  readonly networks: readonly string[] | Record<string, { ipv4_address?: string } | undefined>
  readonly depends_on?: Readonly<Record<string, { condition: string }>>
  readonly read_only?: boolean
  readonly healthcheck?: unknown
}
interface Compose {
  readonly services: Readonly<Record<string, Service>>
  readonly secrets: Readonly<Record<string, { file: string }>>
  readonly volumes: Readonly<Record<string, unknown>>
}
const compose = parseYaml(read('compose.yaml')) as Compose
const services = Object.entries(compose.services)

describe('the compose file', () => {
  test('has two gateways, a balancer, a primary and a standby', () => {
    expect(Object.keys(compose.services).sort()).toEqual([
      ...['balancer', 'gateway-1', 'gateway-2', 'primary', 'rights', 'standby', 'tables'],
    ])
    expect(compose.services['gateway-1']).toEqual(compose.services['gateway-2'])
    expect(compose.services['gateway-1']?.read_only).toBe(true)
  })

  test.each(services)(
    '%s: files, secrets, volumes and services that it names are there',
    (_, one) => {
      for (const volume of one.volumes ?? []) {
        const [from = ''] = volume.split(':')
        expect(
          from.startsWith('./') ? existsSync(join(folder, from)) : from in compose.volumes,
        ).toBe(true)
      }
      for (const secret of one.secrets ?? []) expect(Object.keys(compose.secrets)).toContain(secret)
      for (const name of Object.keys(one.depends_on ?? {}))
        expect(Object.keys(compose.services)).toContain(name)
    },
  )

  test('R5: its secrets are files that the repository does not hold', () => {
    expect(existsSync(join(folder, 'secrets'))).toBe(false)
    for (const { file } of Object.values(compose.secrets)) expect(file).toMatch(/^\.\/secrets\//)
    expect(read('compose.yaml')).not.toMatch(/PASSWORD: /)
  })

  test('contract §7: its gateway.json is a configuration, and believes the balancer alone', () => {
    const config = parseConfig(JSON.parse(read('gateway.json')), 'deploy/gateway.json')
    expect(config.store_file).toBe('/run/secrets/store.url')
    const { networks } = compose.services.balancer ?? {}
    const { inside } = networks as Record<string, { ipv4_address?: string }>
    expect(config.proxy.trusted_cidrs).toEqual([`${inside?.ipv4_address}/32`])
  })

  test('its rights are those that the page names', () => {
    const [sql = ''] = blocksIn(section('Roles and rights', 'docs/operating.md'), 'sql')
    const grants = (text: string) => text.match(/^GRANT .*$/gm)
    expect(grants(read('postgres/rights.sql'))).toEqual(grants(sql))
  })

  test('both servers have the settings that an acknowledged admission rests on', () => {
    const settings = read('postgres/postgresql.conf')
    for (const line of ['fsync = on', 'full_page_writes = on', 'synchronous_commit = on'])
      expect(settings).toContain(`\n${line}\n`)
    expect(read('postgres/replication.sh')).toContain("synchronous_standby_names = 'standby'")
    expect(read('postgres/standby.sh')).toContain('application_name=standby')
  })

  test.each(readdirSync(join(folder, 'postgres')).filter((name) => name.endsWith('.sh')))(
    '%s is a script that bash can read',
    (name) => {
      expect(spawnSync('bash', ['-n', join(folder, 'postgres', name)]).status).toBe(0)
    },
  )
})

describe('the image', () => {
  const dockerfile = read('Dockerfile')

  test('is not run as root, tells its health, and copies what is there', () => {
    expect(dockerfile).toMatch(/^USER 10001:10001$/m)
    expect(dockerfile).toMatch(/^HEALTHCHECK .*\n.*\/readyz/m)
    const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(
      ([, paths = '']) => paths.split(' '),
    )
    expect(copied.length).toBeGreaterThan(8)
    expect(copied.filter((path) => !existsSync(join(root, path)))).toEqual([])
    const kept = readFileSync(join(folder, 'Dockerfile.dockerignore'), 'utf8').split('\n')
    expect(copied.filter((path) => !kept.includes(`!${path}`))).toEqual([])
    const { files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    expect(files).not.toContain('deploy')
  })
})

/** nginx of this machine, if there is one. */
const nginx = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin']
  .map((path) => join(path, 'nginx'))
  .find(existsSync)
const left = nginx === undefined ? ' (left out: no nginx; Debian: apt install nginx)' : ''
if (left !== '') process.stderr.write(`nginx.conf is read by nginx${left}\n`)

test.skipIf(nginx === undefined)(`nginx.conf is read by nginx${left}`, () => {
  const place = mkdtempSync(join(tmpdir(), 'proposer-nginx-'))
  onTestFinished(() => rmSync(place, { recursive: true }))
  const path = join(place, 'nginx.conf')
  // Names of the compose network mean nothing here.
  writeFileSync(
    path,
    read('nginx.conf')
      .replaceAll(/gateway-[12]:/g, '127.0.0.1:')
      .replaceAll('/tmp/', `${place}/`),
  )
  expect(() =>
    execFileSync(nginx ?? '', ['-t', '-q', '-e', 'stderr', '-p', place, '-c', path]),
  ).not.toThrow()
})
