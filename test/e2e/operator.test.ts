import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { systemLiveness } from '#io/liveness'
import { proofPath, tokenProof } from '#io/serving/admin-token'
import { acquireLock, type Lock } from '#storage/lock'
import { argvOf } from '#support/argv'
import type { Ran } from '#support/cli'
import { type Running, workshop } from '#support/processes'
import { type Client, makeClient, questionOf, type ServeReady } from '#support/proposing'

const shop = workshop()
let folder = ''
let dev: ServeReady['dev']
let client: Client
let server: Running | undefined
let store = ''

const operator = (...args: string[]): Promise<Ran> =>
  shop.runHere(['operator', '--config', join(folder, 'gateway.json'), ...args], client.env)
async function asked(
  ...args: string[]
): Promise<{ code: number | null; answer: Record<string, unknown> }> {
  const { code, stdout, stderr } = await operator(...args, '--json')
  return {
    code,
    answer:
      code === 0 ? JSON.parse(stdout) : JSON.parse(stderr.trim().split('\n').at(-1) ?? '').error,
  }
}
async function serve(): Promise<ServeReady> {
  server = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0 --json`)
  return server.line<ServeReady>()
}
async function holding(note: string, work: (lock: Lock) => Promise<void>): Promise<void> {
  const lock = await acquireLock(
    { files: systemFiles, liveness: systemLiveness(), random: systemRandom },
    store,
    note,
  )
  try {
    await work(lock)
  } finally {
    await lock.release()
  }
}
const wallet = (n: number) => `0x${n.toString(16).padStart(40, '0')}`

beforeAll(async () => {
  ;({ dev, folder } = await shop.devChain(4))
  store = join(folder, 'gateway-store')
  client = await makeClient(shop, dev, { PROPOSER_RPC_URL: dev.rpc_url })
})

describe('operator on a store that no gateway serves', () => {
  test('R24: looking at a store that does not exist reads as empty and creates nothing; there is none to prove, mend or fold', async () => {
    expect(await asked('list')).toMatchObject({
      code: 0,
      answer: { schema: 'proposer.allowlist/1', admission: { enabled: true }, served: false },
    })
    expect(await asked('candidates', 'list')).toMatchObject({ code: 0, answer: { candidates: [] } })
    expect((await asked('questions', 'list')).answer.questions).toHaveLength(4)
    for (const command of [['verify'], ['repair'], ['repair', '--accept-loss'], ['compact']]) {
      expect(await asked('store', ...command)).toMatchObject({
        code: 2,
        answer: {
          code: 'no_store',
          detail: `no store found at ${store}`,
          hint: expect.stringContaining('`store` in') as string,
        },
      })
    }
    for (const argv of [
      ['budget'],
      ['pause'],
      ['allow', wallet(1)],
      ['questions', 'remove', wallet(0).padEnd(66, '0')],
    ])
      expect(await asked(...argv)).toMatchObject({
        code: 75,
        answer: { code: 'gateway_not_running', hint: expect.stringContaining('proposer serve') },
      })
    expect((await asked('pause')).answer.hint).toContain('edit gateway.json')
    expect(
      await asked('candidates', 'explain', '00000000-0000-4000-8000-000000000000'),
    ).toMatchObject({
      code: 3,
      answer: { code: 'candidate_not_found' },
    })
    expect(existsSync(store)).toBe(false)
    mkdirSync(store, { mode: 0o700 })
  })

  test('R12: a store that another command holds is refused with exit 74, naming it; looking goes on', async () => {
    await holding('a command with --local', async () => {
      expect(await asked('allow', wallet(5))).toMatchObject({
        code: 74,
        answer: { code: 'store_locked', detail: expect.stringContaining(String(process.pid)) },
      })
      expect((await asked('list')).code).toBe(0)
      expect(await asked('budget')).toMatchObject({
        code: 75,
        answer: { detail: expect.stringContaining('(a command with --local) does not listen') },
      })
    })
  })

  test('contract §6: a gateway that starts is waited for; one that goes on starting is exit 74 and says when to come again', async () => {
    await holding('starting', async (lock) => {
      const late = await asked('pause', '--timeout', '0.2')
      expect(late).toMatchObject({
        code: 74,
        answer: {
          code: 'store_locked',
          detail: expect.stringContaining('a gateway that is starting'),
        },
      })
      expect(late.answer.hint).toMatch(/when `serve` has printed its URL.*--timeout/)
      const paused = asked('pause')
      await lock.release()
      expect(await paused).toMatchObject({ code: 75, answer: { code: 'gateway_not_running' } })
    })
  })

  test('contract §6: what has taken the port of a gateway that is gone is shown no token, and not believed', async () => {
    const shown: string[] = []
    const impostor = createServer((incoming, response) => {
      shown.push(JSON.stringify([incoming.method, incoming.headers]))
      const result = { changed: ['admission'], unchanged: [], reason: 'x', notes: [] }
      response.end(JSON.stringify({ ...result, proof: '0'.repeat(64) }))
    })
    await new Promise<void>((listening) => impostor.listen(0, '127.0.0.1', listening))
    const token = '1'.repeat(64)
    writeFileSync(join(store, 'admin.token'), `${token}\n`, { mode: 0o600 })
    try {
      const { port } = impostor.address() as AddressInfo
      await holding(`serve, admin http://127.0.0.1:${port}`, async () => {
        expect(await asked('pause')).toMatchObject({
          code: 4,
          answer: { detail: expect.stringContaining('does not know the token of this store') },
        })
      })
      expect(shown).toHaveLength(1)
      expect(shown.join()).not.toContain(token)
      expect(shown.join()).not.toContain('authorization')
    } finally {
      rmSync(join(store, 'admin.token'))
      impostor.close()
    }
  })

  test('contract §6: of a gateway that hangs, or breaks off its response, an act is unknown (exit 6), a look is put off (exit 75)', async () => {
    let breaks = false
    const dumb = createServer(({ url = '', socket: { localPort } }, response) => {
      const [, nonce] = url.split(proofPath)
      if (nonce === undefined) {
        if (breaks) response.writeHead(200, { 'content-length': '100' }).write('{')
        if (breaks) setTimeout(() => response.destroy(), 50)
        return
      }
      const proof = tokenProof('0'.repeat(64), Number(localPort), nonce)
      response.end(JSON.stringify({ proof }))
    })
    await new Promise<void>((listening) => dumb.listen(0, '127.0.0.1', listening))
    const token = join(store, 'admin.token')
    writeFileSync(token, `${'0'.repeat(64)}\n`, { mode: 0o600 })
    try {
      await holding(
        `serve, admin http://127.0.0.1:${(dumb.address() as AddressInfo).port}`,
        async () => {
          const act = await asked('pause', '--timeout', '0.2')
          expect(act).toMatchObject({
            code: 6,
            answer: {
              code: 'act_unknown',
              detail: expect.stringMatching(/within 0\.\d s.*may have been made/),
            },
          })
          const look = await asked('budget', '--timeout', '0.2')
          expect(look).toMatchObject({
            code: 75,
            answer: {
              code: 'gateway_unanswered',
              detail: expect.stringMatching(
                /^gateway 127\.0\.0\.1:\d+: no response within 0\.2 s$/,
              ),
            },
          })
          expect(JSON.stringify(look.answer)).not.toContain('the act')
          breaks = true
          const lost = { detail: expect.stringContaining('broke off') }
          expect(await asked('pause')).toMatchObject({
            code: 6,
            answer: { code: 'act_unknown', ...lost },
          })
          expect(await asked('budget')).toMatchObject({ code: 75, answer: lost })
          expect(await asked('budget', '--timeout', 'soon')).toMatchObject({
            code: 2,
            answer: { code: 'bad_timeout' },
          })
        },
      )
    } finally {
      rmSync(token)
      dumb.closeAllConnections()
      await new Promise((closed) => dumb.close(closed))
    }
  })
})

describe('operator on a store that a gateway serves', () => {
  let ready: ServeReady
  beforeAll(async () => {
    ready = await serve()
    client = await makeClient(shop, dev, {
      PROPOSER_GATEWAY: ready.url,
      PROPOSER_RPC_URL: dev.rpc_url,
    })
  })

  test('contract §6: acts go through its admin listener and hold at once', async () => {
    expect(readFileSync(join(store, 'admin.token'), 'utf8')).toMatch(/^[0-9a-f]{64}\n$/)
    expect(await asked('pause', '--reason', 'upgrade')).toMatchObject({
      code: 0,
      answer: { changed: ['admission'], through: 'gateway' },
    })
    const { slug } = questionOf(dev, 1)
    const refused = await client.ask('submit', slug, '--outcome', 'p1', '--timeout', '5')
    expect(refused).toMatchObject({ code: 75, answer: { code: 'admission_disabled' } })
    expect((await asked('resume')).code).toBe(0)

    const { question_id } = questionOf(dev, 2)
    const status = async (name: string) => {
      const body = JSON.stringify({ identifiers: [name] })
      const answer = await fetch(`${ready.url}/propose/batch/signing-data`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      })
      return ((await answer.json()) as { results: { status_code: number }[] }).results[0]
        ?.status_code
    }
    expect(await status('another-name')).toBe(404)
    const both = await Promise.all([
      asked('questions', 'add', question_id, '--slug', 'another-name'),
      asked('allow', wallet(21)),
      asked('allow', wallet(21)),
    ])
    expect(both.map(({ code }) => code)).toEqual([0, 0, 0])
    expect(
      both
        .slice(1)
        .map(({ answer }) => (answer.changed as string[]).length)
        .sort(),
    ).toEqual([0, 1])
    expect(await status('another-name')).toBe(200)
    expect((await asked('questions', 'remove', question_id)).code).toBe(0)
    expect([await status('another-name'), await status(question_id)]).toEqual([404, 200])
    expect(await asked('questions', 'add', `0x${'ee'.repeat(32)}`)).toMatchObject({
      code: 3,
      answer: { code: 'question_unknown' },
    })
    expect(await asked('budget')).toMatchObject({
      code: 0,
      answer: { served: true, spent_items: expect.any(Number) },
    })
  })

  test('contract §6: explain answers what happened to a proposal, from the records, without signature or raw bytes', async () => {
    const { slug } = questionOf(dev, 3)
    const submitted = await client.ask('submit', slug, '--outcome', 'p2', '--wait')
    expect(submitted).toMatchObject({ code: 0, answer: { status: 'executed' } })
    const id = String(submitted.answer.candidate_id)
    const { code, answer } = await asked('candidates', 'explain', id)
    expect([code, answer.schema, answer.status, answer.slug]).toEqual([
      0,
      'proposer.candidate-explanation/1',
      'executed',
      slug,
    ])
    const events = (answer.events as { event: string }[]).map(({ event }) => event)
    for (const event of [
      'received',
      'checked',
      'validated',
      'nonce_reserved',
      'signed',
      'sent',
      'mined',
      'indexed',
    ])
      expect(events).toContain(event)
    const shown = await client.ask(
      'journal',
      'show',
      String(submitted.answer.journal_id),
      '--reveal-signature',
    )
    const { signature } = shown.answer.payload as { signature: string }
    const human = (await operator('candidates', 'explain', id)).stdout
    for (const text of [JSON.stringify(answer), human])
      expect(text).not.toContain(signature.slice(2, 40))
    expect(human).toMatch(/bond 750 USDC\.e · authorized 750 USDC\.e/)
    expect(await asked('candidates', 'reject', id, '--reason', 'late')).toMatchObject({
      code: 5,
      answer: { code: 'candidate_final' },
    })
    expect(await asked('candidates', 'list', '--state', 'executed')).toMatchObject({
      answer: { candidates: [{ candidate_id: id }] },
    })
    const { stdout } = await operator('candidates', 'list', '--csv')
    const csv = stdout.split('\r\n')
    expect(csv[0]).toMatch(/^candidate_id,/)
    expect(csv[1]).toContain(id)
    expect((await operator('store', 'export', '--csv')).stdout).toBe(stdout)
    expect((await asked('store', 'export')).answer).toMatchObject({
      schema: 'proposer.operator-store-export/1',
      candidates: [{ candidate_id: id, permit_nonce: expect.any(String) }],
    })
    expect((await asked('candidates', 'show', id)).answer).toMatchObject({
      schema: 'proposer.operator-candidate/1',
      candidate_id: id,
      gas_used: expect.any(String),
      events: answer.events,
    })

    expect(await asked('store', 'compact')).toMatchObject({
      code: 0,
      answer: { through: 'gateway' },
    })
    expect((await operator('store', 'compact')).stdout).toMatch(
      /^the store had \d+ bytes, now \d+\n/,
    )
    expect((await asked('candidates', 'explain', id)).answer.events).toEqual(answer.events)
    expect(await asked('store', 'verify')).toMatchObject({
      code: 0,
      answer: { candidates: { executed: 1 } },
    })
  })

  test('contract §6: a wrong token is exit 4, one that others may read exit 74; neither changes anything', async () => {
    const path = join(store, 'admin.token')
    const token = readFileSync(path, 'utf8')
    writeFileSync(path, `${'0'.repeat(64)}\n`)
    expect(await asked('allow', wallet(31))).toMatchObject({
      code: 4,
      answer: { code: 'unauthorized' },
    })
    writeFileSync(path, token)
    chmodSync(path, 0o644)
    expect(await asked('allow', wallet(31))).toMatchObject({
      code: 74,
      answer: { code: 'admin_token_unusable' },
    })
    chmodSync(path, 0o600)
    expect(await asked('allow', wallet(31))).toMatchObject({
      code: 0,
      answer: { changed: [wallet(31)] },
    })
    expect(await asked('store', 'repair', '--accept-loss')).toMatchObject({
      code: 0,
      answer: { repaired: false },
    })
  })

  test('R23: after the gateway was killed the store is taken over, and the next one knows what was decided', async () => {
    await server?.stop('SIGKILL')
    const disallow = () => asked('disallow', client.proposer, '--reason', 'left us')
    expect(await disallow()).toMatchObject({ code: 75, answer: { code: 'gateway_not_running' } })
    await serve()
    expect((await disallow()).code).toBe(0)
    await server?.stop('SIGKILL')
    const { url } = await serve()
    const eligible = await fetch(`${url}/v1/proposals/eligibility/${client.proposer}`)
    expect(await eligible.json()).toMatchObject({ eligible: false })
    expect((await server?.stop())?.code).toBe(0)
  })

  test('R11: damage is named with file and byte by verify; repair shows what would go, and does it only with --accept-loss', async () => {
    await serve()
    expect((await asked('allow', wallet(41))).code).toBe(0)
    expect((await asked('allow', wallet(42))).code).toBe(0)
    await server?.stop()
    const name =
      readdirSync(store)
        .filter((file) => file.startsWith('log-'))
        .sort()
        .at(-1) ?? ''
    const bytes = readFileSync(join(store, name))
    const at = bytes.indexOf(wallet(41))
    bytes[at + 10] = (bytes[at + 10] ?? 0) ^ 1
    writeFileSync(join(store, name), bytes)
    expect(await asked('store', 'verify')).toMatchObject({
      code: 74,
      answer: {
        code: 'store_damaged',
        detail: expect.stringMatching(new RegExp(`${name} is damaged at byte \\d+`)),
      },
    })
    const planned = await operator('store', 'repair')
    expect([planned.code, planned.stdout]).toEqual([2, expect.stringContaining('lost:')])
    expect(readFileSync(join(store, name)).equals(bytes)).toBe(true)
    const lock = await acquireLock(
      { files: systemFiles, liveness: systemLiveness(), random: systemRandom },
      store,
      'starting',
    )
    expect(await asked('store', 'repair', '--accept-loss')).toMatchObject({
      code: 74,
      answer: { code: 'store_locked' },
    })
    await lock.release()
    expect(readFileSync(join(store, name)).equals(bytes)).toBe(true)
    const done = await asked('store', 'repair', '--accept-loss', '--reason', 'no backup')
    expect(done).toMatchObject({
      code: 0,
      answer: {
        repaired: true,
        loss: { sound_lines: { 'allowlist.set': 1 } },
        saved: [name],
        folder: `${store}.repaired`,
      },
    })
    expect(readFileSync(join(store, name)).equals(bytes)).toBe(true)
    expect(await asked('store', 'repair', '--accept-loss')).toMatchObject({
      code: 2,
      answer: { code: 'store_not_empty' },
    })
    renameSync(store, `${store}.damaged`)
    renameSync(`${store}.repaired`, store)
    expect(await asked('store', 'verify')).toMatchObject({
      code: 0,
      answer: { kinds: { 'store.repaired': 1 } },
    })
    await serve()
    expect(await asked('allow', wallet(42))).toMatchObject({
      code: 0,
      answer: { changed: [wallet(42)] },
    })
  })
})
