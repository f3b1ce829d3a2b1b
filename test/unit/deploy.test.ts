import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parseYaml } from '@redocly/openapi-core'
import { parseConfig } from '#gateway/config'
import { createMeters, createMetrics } from '#io/serving/admin-metrics'
import { fewProposals } from '#protocol/vitals'
import { run } from '#support/cli'
import { describeWith, pathOf, testWith } from '#support/components'
import { temporaryFolder } from '#support/folders'
import { statusParts } from '#support/front'
import { blocksIn, root, section } from '#support/readme'

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

  test('what it starts, asks and opens is there: the verb and its flags, the port, the path of the configuration', async () => {
    const { bin } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    const listOf = (key: string) =>
      JSON.parse(new RegExp(`^${key} (\\[.*\\])$`, 'm').exec(dockerfile)?.[1] ?? '[]')
    expect(Object.keys(bin)).toEqual(listOf('ENTRYPOINT'))
    const [verb, ...rest] = listOf('CMD')
    const help = await serveFlags()
    expect([verb, flagsOf(rest).filter((flag) => !help.includes(`${flag} `))]).toEqual([
      'serve',
      [],
    ])
    const path = rest[rest.indexOf('--config') + 1]
    expect(compose.services['gateway-1']?.volumes).toContain(`./gateway.json:${path}:ro`)
    const { port } = parseConfig(JSON.parse(read('gateway.json')), 'deploy').listen
    expect(dockerfile).toMatch(new RegExp(`^EXPOSE ${port}`, 'm'))
    expect(dockerfile).toContain(`http://127.0.0.1:${port}/readyz`)
    expect(dockerfile.match(/^FROM (.*)$/gm)?.at(-1)).toMatch(/-slim$/)
  })
})

describe('nginx', () => {
  const reads = (folder: string, text: string) => {
    const path = join(folder, 'nginx.conf')
    // A test of nginx binds what it is to listen on: ports may be somebody's here.
    let sockets = 0
    writeFileSync(
      path,
      text.replaceAll(/listen [^ ;]+/g, () => `listen unix:${folder}/${sockets++}.sock`),
    )
    expect(() =>
      execFileSync(pathOf('nginx'), ['-t', '-q', '-e', 'stderr', '-p', folder, '-c', path]),
    ).not.toThrow()
  }

  testWith(['nginx'], 'nginx reads both files: the balancer', () => {
    const folder = temporaryFolder()
    reads(
      folder,
      read('nginx.conf')
        .replaceAll(/gateway-[12]:/g, '127.0.0.1:')
        .replaceAll('/tmp/', `${folder}/`),
    )
  })

  testWith(['nginx', 'openssl'], 'nginx reads both files: one gateway with TLS', () => {
    const folder = temporaryFolder()
    const key = join(folder, 'privkey.pem')
    execFileSync(
      pathOf('openssl'),
      [
        ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'],
        ...['-subj', '/CN=gateway.example', '-keyout', key, '-out', join(folder, 'fullchain.pem')],
      ],
      { stdio: 'ignore' },
    )
    const server = read('nginx/gateway.conf').replaceAll(
      '/etc/letsencrypt/live/gateway.example/',
      `${folder}/`,
    )
    reads(folder, `pid ${folder}/pid;\nevents {}\nhttp {\naccess_log off;\n${server}\n}\n`)
  })

  test('§9: the whole server block passes what the gateway needs, and its admin listener to nobody', () => {
    const server = read('nginx/gateway.conf')
    for (const line of [
      'proxy_http_version 1.1;',
      'proxy_set_header X-Forwarded-For $remote_addr;',
      'client_max_body_size 2m;',
    ]) {
      expect(server).toContain(line)
      expect(read('nginx.conf')).toContain(line)
    }
    expect(server).toContain('server 127.0.0.1:8787;')
    expect(server).not.toContain('8788')
  })
})

const flagsOf = (words: readonly string[]) => words.filter((word) => word.startsWith('--'))
const serveFlags = async () => {
  const home = temporaryFolder()
  return (await run(home, 'serve --help')).stdout
}

describe('the service', () => {
  const unit = read('systemd/proposer.service')
  const [, command = ''] = /^ExecStart=(.*)$/m.exec(unit) ?? []

  test('robustness §5: writes no core files, gives the drain its ten seconds, and takes flags that serve has', async () => {
    expect(unit).toMatch(/^LimitCORE=0$/m)
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1])).toBeGreaterThan(10)
    const [program = '', verb, ...rest] = command.split(' ')
    const { bin } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    expect([Object.keys(bin).includes(basename(program)), verb]).toEqual([true, 'serve'])
    const help = await serveFlags()
    expect(flagsOf(rest).length).toBeGreaterThan(2)
    expect(flagsOf(rest).filter((flag) => !help.includes(`${flag} `))).toEqual([])
  })

  test('has one folder to write in, which is made for its user, as the user is', () => {
    const value = (key: string) => new RegExp(`^${key}=(.*)$`, 'm').exec(unit)?.[1]
    const folder = `/var/lib/${value('StateDirectory')}`
    expect(value('WorkingDirectory')).toBe(folder)
    expect(unit).toContain(`PROPOSER_HOME=${folder}/`)
    expect(value('ProtectSystem')).toBe('strict')
    const user = read('systemd/sysusers.conf').split('\n').at(-2)
    expect(user).toBe(`u ${value('User')} - "proposer gateway" ${folder}`)
  })

  testWith(['systemd-analyze'], 'systemd reads the unit', () => {
    const path = join(temporaryFolder(), 'proposer.service')
    writeFileSync(path, unit.replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`))
    const { status, stderr } = spawnSync(pathOf('systemd-analyze'), ['verify', path], {
      encoding: 'utf8',
    })
    expect([status, stderr]).toEqual([0, ''])
  })
})

interface Rule {
  readonly alert: string
  readonly expr: string
  readonly labels: { readonly severity: string }
  readonly annotations: { readonly summary: string; readonly action: string }
}
const { groups } = parseYaml(read('prometheus/alerts.yml')) as {
  groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[]
}
const rules = groups.flatMap(({ rules }) => rules)
const dashboard = JSON.parse(read('grafana/dashboard.json'))
const queries: readonly string[] = [
  ...dashboard.panels.flatMap(({ targets = [] }: { targets?: { expr: string }[] }) =>
    targets.map(({ expr }) => expr),
  ),
  ...dashboard.templating.list.map(({ query }: { query: string }) => query),
]

test.each([
  ['the alerts', rules.map(({ expr }) => expr)],
  ['the dashboard', queries],
])('%s: every metric is one of /metrics, with the labels that it has there', (_, all) => {
  const registry = createMetrics({
    ...statusParts({ requestCounts: () => [], readiness: () => [] }),
    meters: createMeters({ isShared: true }),
  })
  const faults: string[] = []
  let count = 0
  for (const [, name = '', braces = ''] of all
    .join('\n')
    .matchAll(/\b(proposer_[a-z]\w*)(\{[^}]*\})?/g)) {
    count += 1
    const metric = registry.getSingleMetric(name.replace(/_(bucket|sum|count)$/, '')) as
      | { readonly labelNames: readonly string[] }
      | undefined
    if (metric === undefined) faults.push(name)
    const known = [...(metric?.labelNames ?? []), 'job', 'instance', 'le']
    for (const [, label = ''] of braces.matchAll(/(\w+)\s*[=!]/g))
      if (!known.includes(label)) faults.push(`${name}{${label}}`)
  }
  expect(count).toBeGreaterThan(20)
  expect(faults).toEqual([])
})

test('what is scraped is the port that the gateways of the set open for it', () => {
  const { metrics } = parseConfig(JSON.parse(read('gateway.json')), 'deploy/gateway.json')
  expect(metrics?.host).toBe('0.0.0.0')
  const { scrape_configs } = parseYaml(read('prometheus/prometheus.yml')) as {
    scrape_configs: readonly { static_configs: readonly { targets: readonly string[] }[] }[]
  }
  expect(scrape_configs[0]?.static_configs[0]?.targets).toEqual(
    ['gateway-1', 'gateway-2'].map((name) => `${name}:${metrics?.port}`),
  )
  expect(Object.keys(compose.services)).toEqual(expect.arrayContaining(['gateway-1', 'gateway-2']))
})

test('each alert says how urgent it is and what to do', () => {
  for (const { alert, labels, annotations } of rules) {
    expect([alert, labels.severity]).toEqual([alert, expect.stringMatching(/^(page|ticket)$/)])
    expect(annotations.action).not.toBe('')
  }
  expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length)
  expect(groups.map(({ name }) => name)).toEqual(['proposer', 'proposer-shared'])
  const low = rules.find(({ alert }) => alert === 'ProposerLowBalance')?.expr
  expect(low).toBe(`proposer_executor_paid_proposals < ${fewProposals}`)
})

describeWith(['promtool'], 'promtool reads rules and settings', () => {
  test.each([
    ['check', 'rules', 'alerts.yml'],
    ['test', 'rules', 'alerts.test.yml'],
    ['check', 'config', 'prometheus.yml'],
  ])('promtool %s %s %s', (...words) => {
    const { status, stderr } = spawnSync(pathOf('promtool'), words, {
      cwd: join(folder, 'prometheus'),
      encoding: 'utf8',
    })
    expect([status, stderr]).toEqual([0, expect.any(String)])
  })
})
