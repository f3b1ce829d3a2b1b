import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import type { LoadedConfig } from '#host/config-file'
import { holdDatabase } from '#host/held-store'
import { createClosers } from '#io/closers'
import { postgresDatabase } from '#io/postgres'
import { type Machine, SqlError } from '#ports'

const message = (type: string, body: Buffer | string) => {
  const bytes = Buffer.from(body)
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeInt32BE(bytes.length + 4, 1)
  return Buffer.concat([head, bytes])
}
const greeting = Buffer.concat([message('R', '\0\0\0\0'), message('Z', 'I')])

async function serverSaying(severity: string, code: string): Promise<string> {
  const failure = message('E', `S${severity}\0C${code}\0Mno\0\0`)
  const server = createServer((socket) => {
    socket.once('data', () => {
      socket.write(greeting)
      socket.on('data', () => socket.write(Buffer.concat([failure, message('Z', 'I')])))
    })
    socket.on('error', () => undefined)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `postgres://somebody@127.0.0.1:${(server.address() as AddressInfo).port}/store`
}

test.each([
  ['ERROR', '23505', true],
  ['FEHLER', '23505', true],
  ['ОШИБКА', '40001', true],
  ['FATAL', '57P01', false],
  ['FATAL', '22023', false],
  ['SCHWERWIEGEND', '57P01', false],
  ['FATALE', '25P03', false],
  ['PANIK', 'XX000', false],
])('a server that says %s %s has answered: %s', async (severity, code, isAnswered) => {
  const database = postgresDatabase(await serverSaying(severity, code))
  await expect(database.connect()).rejects.toMatchObject({ code, isAnswered })
  await database.close()
})

async function serverAsking(request: Buffer): Promise<{ url: string; sent: () => string }> {
  let sent = ''
  const server = createServer((socket) => {
    socket.once('data', () => {
      socket.write(message('R', request))
      socket.on('data', (bytes) => {
        sent += bytes.toString('latin1')
        socket.destroy()
      })
    })
    socket.on('error', () => undefined)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  return { url: `postgres://somebody:hunter2@127.0.0.1:${port}/store`, sent: () => sent }
}
const kindOf = (kind: number, rest: string) =>
  Buffer.concat([Buffer.from([0, 0, 0, kind]), Buffer.from(rest)])

test.each([
  ['as it is', kindOf(3, '')],
  ['by MD5', kindOf(5, 'salt')],
])(
  'R5: whoever listens where the database was and asks for the password %s, is told nothing',
  async (_, request) => {
    const { url, sent } = await serverAsking(request)
    const database = postgresDatabase(url)
    await expect(database.connect()).rejects.toMatchObject({
      code: '28000',
      message: expect.stringContaining('does not prove who it is'),
    })
    await database.close()
    expect(sent()).toBe('')
  },
)

test('R5: a server that asks by SCRAM is answered without the password', async () => {
  const { url, sent } = await serverAsking(kindOf(10, 'SCRAM-SHA-256\0\0'))
  const database = postgresDatabase(url)
  await expect(database.connect()).rejects.toMatchObject({ isAnswered: false })
  await database.close()
  expect(sent()).toContain('SCRAM-SHA-256')
  expect(sent()).not.toContain('hunter2')
})

test('a name that begins like a loopback address is elsewhere: TLS, and proof who it is', async () => {
  // The certificate is read before anything is connected; on loopback it would not be.
  const database = postgresDatabase('postgres://a@127.evil.example/x?sslrootcert=/nowhere/ca.pem')
  await expect(database.connect()).rejects.toMatchObject({ code: 'ENOENT' })
})

test('D6: a start waits for a database that is away for a moment, and ends for what no time changes', async () => {
  const away = ['ECONNREFUSED', 'ECONNRESET', '53300', '57P03', '08006']
  const codes = [...away, '28P01']
  const database = {
    name: 'db:5432/store',
    connect: async () => {
      throw new SqlError(codes.shift() ?? '', `it says no (${codes.length})`, false)
    },
  }
  const machine = {
    clock: { nowMs: Date.now, monotonicMs: () => 0, sleep: async () => undefined },
    random: { uuid: () => '', bytes: () => new Uint8Array() },
    edges: { database: async () => database },
    signal: new AbortController().signal,
  } as unknown as Machine
  const waits: string[] = []
  const nothing = () => undefined
  const options = { signer: undefined, onObservation: nothing, onWarning: nothing }
  const onWait = (reason: string) => waits.push(reason)
  const settings = async () => Promise.reject(new Error('no store is made'))
  await expect(
    holdDatabase(
      machine,
      'postgres://db/store',
      { config: {} } as LoadedConfig,
      { ...options, onWait, settings },
      createClosers(),
    ),
  ).rejects.toMatchObject({
    code: 'store_unavailable',
    meta: { exitCode: 74, hint: 'check user, password and pg_hba.conf' },
  })
  expect(waits).toHaveLength(away.length)
})
