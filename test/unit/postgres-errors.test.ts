import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { postgresDatabase } from '../../src/core/io/postgres.js'

const message = (type: string, body: Buffer | string) => {
  const bytes = Buffer.from(body)
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeInt32BE(bytes.length + 4, 1)
  return Buffer.concat([head, bytes])
}
const greeting = Buffer.concat([message('R', '\0\0\0\0'), message('Z', 'I')])

/** A server that answers a statement without parameters with this error. */
async function serverSaying(severity: string, code: string): Promise<string> {
  const failure = message('E', `S${severity}\0C${code}\0Mno\0\0`)
  const server = createServer((socket) => {
    socket.once('data', () => {
      socket.write(greeting)
      socket.on('data', () => socket.write(Buffer.concat([failure, message('Z', 'I')])))
    })
    socket.on('error', () => undefined) // the client ends the session
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
