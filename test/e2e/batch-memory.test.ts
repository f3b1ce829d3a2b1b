/**
 * R17: a batch of ten thousand is signed in little more memory than its journal's records take,
 * whatever the size of its questions.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { generatePrivateKey } from 'viem/accounts'
import { serveHttp } from '#support/http-server'
import { workshop } from '#support/processes'
import { pins, questionContext } from '#support/scripted-gateway'

const shop = workshop()

const items = 10_000
const megabyte = 1024 * 1024
const title = (n: number) =>
  `Question ${n}, which is asked at some length, as questions are. `.repeat(20)

async function serveQuestions(count: number) {
  const titles = new Map(
    Array.from({ length: count }, (_, n) => [questionContext(title(n)).question_id, n]),
  )
  const byId: ReadonlyMap<string, number> = titles
  const contextOf = (identifier: string) => questionContext(title(byId.get(identifier) ?? 0))
  const server = await serveHttp((_request, body, response) => {
    const { identifiers } = JSON.parse(body) as { identifiers: string[] }
    const results = identifiers.map((identifier) => ({
      identifier,
      status_code: 200,
      signing_data: contextOf(identifier),
    }))
    const budget = {
      'ratelimit-limit': '1000000',
      'ratelimit-remaining': '1000000',
      'ratelimit-reset': '60',
    }
    response
      .writeHead(200, { 'content-type': 'application/json', ...budget })
      .end(JSON.stringify({ results }))
  })
  return { ...server, questionIds: [...titles.keys()] }
}

test('R17: from the thousandth to the ten-thousandth item, `batch sign` comes to need less than 64 MB more', async () => {
  const gateway = await serveQuestions(items)
  try {
    const folder = await shop.folder()
    const home = join(folder, 'home')
    await mkdir(home, { mode: 0o700 })
    await writeFile(join(folder, 'key'), `${generatePrivateKey()}\n`, { mode: 0o600 })
    await writeFile(join(folder, 'trust.json'), JSON.stringify(pins))
    const rows = gateway.questionIds.map(
      (identifier, n) =>
        `${JSON.stringify({ identifier, outcome: 'p2', client_ref: `row ${n}` })}\n`,
    )
    await writeFile(join(folder, 'rows.ndjson'), rows.join(''))
    const probe = pathToFileURL(join(import.meta.dirname, '..', 'support', 'memory-probe.js'))
    const { code, stdout, stderr } = await shop.run(
      ['batch', 'sign', join(folder, 'rows.ndjson')],
      {
        env: {
          PROPOSER_HOME: home,
          PROPOSER_GATEWAY: gateway.url,
          PROPOSER_KEY_FILE: join(folder, 'key'),
          PROPOSER_TRUST: join(folder, 'trust.json'),
          NODE_OPTIONS: `--import ${probe.href}`,
          MEMORY_FILE: join(folder, 'memory.json'),
        },
      },
    )
    expect(code, stderr.slice(-1_000)).toBe(0)
    const signed = stdout.trimEnd().split('\n')
    expect(signed).toHaveLength(items)
    expect(signed.map((line) => (JSON.parse(line) as { identifier: string }).identifier)).toEqual(
      gateway.questionIds,
    )
    const bytes = JSON.parse(await readFile(join(folder, 'memory.json'), 'utf8')) as number[]
    const [atThousand = 0] = bytes
    expect(bytes).toHaveLength(items / 1_000)
    expect((Math.max(...bytes) - atThousand) / megabyte).toBeLessThan(64)
  } finally {
    gateway.close()
  }
}, 300_000)
