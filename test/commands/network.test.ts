/** Failures of the network, and what -v tells (contract §9; R5). */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ChainError, type Fetch, TransportError } from '#ports'
import { type Argv, type RunOptions, run } from '#support/cli'
import { type Desk, openDesk } from '#support/desk'
import { createFakeChain } from '#support/fake-chain'
import { pins } from '#support/scripted-gateway'

let { home, gateway } = {} as Desk
beforeEach(async () => {
  ;({ home, gateway } = await openDesk())
})

const rpcUrl = 'https://user:secretword@polygon.example/v2/secretpath?key=secretquery'
const wallet = `0x${'ab'.repeat(20)}`
const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, argv, {
    fetch: gateway.fetch,
    ...more,
    env: { PROPOSER_KEY_FILE: join(home, 'key'), ...more.env },
  })

/** A chain whose every read fails so. */
function deadChain(message: string) {
  const fail = async () => {
    throw new ChainError('unavailable', message)
  }
  return Object.assign(createFakeChain(), { chainId: fail, block: fail, call: fail, balance: fail })
}

describe('a node', () => {
  test.each([
    ['--rpc-url', ['--rpc-url', rpcUrl], {}],
    ['PROPOSER_RPC_URL', [], { PROPOSER_RPC_URL: rpcUrl }],
  ])('that is not there is named with its setting, %s', async (from, flags, env) => {
    const chain = deadChain('no RPC node of 1 can be used (1: host not found (ENOTFOUND))')
    const { code, stderr } = await ask(['funds', ...flags], {
      env: env as Record<string, string>,
      chain,
    })
    expect([code, stderr]).toEqual([
      75,
      `error: RPC node polygon.example: host not found (ENOTFOUND)\nhint: check ${from}, then retry\n`,
    ])
  })

  test('that answers nothing of use says what it said', async () => {
    const { code, stderr } = await ask(['funds', '--rpc-url', rpcUrl], {
      chain: deadChain('HTTP 401'),
    })
    expect([code, stderr]).toEqual([75, expect.stringContaining('polygon.example: HTTP 401')])
    expect(stderr).not.toContain('secret')
  })
})

test('a gateway that refuses connections is named with its setting, and no path of it', async () => {
  const fetch: Fetch = async () => {
    throw new TransportError(
      'connect',
      'ECONNREFUSED',
      'no connection to the gateway (ECONNREFUSED)',
    )
  }
  const { code, stderr } = await ask(
    `eligibility ${wallet} --gateway https://gateway.example/secretpath`,
    { fetch },
  )
  expect([code, stderr]).toEqual([
    75,
    expect.stringMatching(
      /^error: gateway gateway\.example: connection refused \(ECONNREFUSED\)\nhint: check --gateway/,
    ),
  ])
  expect(stderr).not.toContain('secret')
})

const submit = ['submit', 'will-it-hold', '--outcome', 'p2', '--json']
const traces = (stderr: string) => stderr.split('\n').filter((line) => /^[<>] /.test(line))

test.each([
  ['-v', ['-v'], {}],
  ['--verbose', ['--verbose'], {}],
  ['PROPOSER_DEBUG', [], { PROPOSER_DEBUG: '1' }],
])('%s: requests and responses, and no signature', async (_name, flags, env) => {
  const { code, stdout, stderr } = await ask([...submit, ...flags, '--gateway', gateway.url], {
    env: env as Record<string, string>,
  })
  expect([code, JSON.parse(stdout)]).toEqual([0, expect.objectContaining({ outcome: 'accepted' })])
  const lines = traces(stderr)
  expect(lines.some((line) => /^> POST .*\/v1\/proposals\//.test(line))).toBe(true)
  expect(lines.some((line) => /^< 202 in \d+ ms \{/.test(line))).toBe(true)
  const { signature = '' } = JSON.parse(gateway.received[0] ?? '{}') as { signature?: string }
  expect(signature).toMatch(/^0x[0-9a-f]{130}$/)
  expect(stderr).toContain(`${signature.slice(0, 10)}…(65 bytes)`)
  expect(stderr).not.toContain(signature.slice(2, 34))
})

test('a gateway in this process: its calls too', async () => {
  const { chain_id: id, slugs: _, ...contracts } = { ...pins, slugs: {} }
  const chain = { id, rpc_urls: ['http://127.0.0.1:1'], ...contracts }
  const path = join(home, 'gateway.json')
  writeFileSync(path, JSON.stringify({ chain }))
  const argv = ['eligibility', wallet, '--local', path, '-v']
  const { stderr } = await ask(argv, { chain: createFakeChain() })
  const route = `http://localhost/v1/proposals/eligibility/${wallet}`
  expect(traces(stderr)).toContain(`> GET ${route} `)
  expect(stderr).toMatch(/^< 200 in \d+ ms \{/m)
})

test('Gamma: its route, and nothing of a path before it', async () => {
  const fetch: Fetch = async () => Response.json([])
  const argv = ['questions', 'list', '--source', 'gamma', '-v', '--rpc-url', rpcUrl]
  const url = 'https://gamma.example/secret'
  const { stderr } = await ask([...argv, '--gamma-url', url], { fetch, chain: createFakeChain() })
  expect(stderr).toMatch(/^> GET https:\/\/gamma\.example\/…\/markets\?closed=false&/m)
  expect(stderr).not.toContain('secret')
})

test('without it nothing is told', async () => {
  const env = { PROPOSER_DEBUG: '0' }
  const { stderr } = await ask([...submit, '--gateway', gateway.url], { env })
  expect(traces(stderr)).toEqual([])
})

test('a gateway that repeats its own path in a refusal does not get it onto the screen', async () => {
  const fetch: Fetch = async (input, init) => {
    const detail = `refused: ${String(input)} ${init?.method}`
    return Response.json({ error: { code: 'schema_violation', detail } }, { status: 422 })
  }
  const url = `${gateway.url}/secretpath`
  const { stderr } = await ask(['eligibility', wallet, '--gateway', url, '-v'], { fetch })
  expect(traces(stderr).join('\n')).toContain('[hidden]')
  expect(stderr).not.toContain('secret')
})
