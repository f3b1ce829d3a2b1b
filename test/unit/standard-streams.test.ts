import { execFileSync } from 'node:child_process'
import { closeSync, constants, openSync, readFileSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { standardOutput } from '../../src/core/io/standard-streams.js'
import { workshop } from '../support/processes.js'

const shop = workshop()
afterAll(() => shop.clean())

/** Stands in for node's own stream: keeps what is written. */
function ownStream(isTTY = false) {
  const written: Uint8Array[] = []
  return {
    isTTY,
    columns: 72,
    writableLength: 0,
    write: (text: string | Uint8Array) => written.push(typeof text === 'string' ? new TextEncoder().encode(text) : text),
    on: () => undefined,
    bytes: () => Buffer.concat(written),
  }
}

const never = () => {
  throw new Error('opened')
}

// Windows uses node's streams alone.
describe.skipIf(process.platform === 'win32')("stdout and stderr without node's streams", () => {
  test('a file gets every byte in order, also beyond ASCII, and no stream is opened', async () => {
    const path = join(await shop.folder(), 'out')
    const descriptor = openSync(path, 'w')
    const sink = standardOutput(descriptor as 1, never)
    sink.write('one é\n')
    sink.write(`${'two '.repeat(50_000)}\n`)
    closeSync(descriptor)
    expect(readFileSync(path, 'utf8')).toBe(`one é\n${'two '.repeat(50_000)}\n`)
    expect(sink).toMatchObject({ isTTY: false, writableLength: 0 })
  })

  test("R23: a pipe whose reader takes nothing: node's stream takes over in the middle, nothing is lost or doubled", async () => {
    const path = join(await shop.folder(), 'pipe')
    execFileSync('sh', ['-c', 'mkfifo "$0"', path])
    // Both ends in one, so that neither waits for the other to be opened; a write to it would wait for a reader.
    const descriptor = openSync(path, constants.O_RDWR)
    const stream = ownStream()
    const sink = standardOutput(descriptor as 1, () => stream as never)
    const text = Array.from({ length: 40_000 }, (_, index) => `${index} é`).join('\n')
    sink.write(text)
    sink.write('the end')
    const buffer = Buffer.alloc(1 << 20)
    const inPipe = buffer.subarray(0, readSync(descriptor, buffer))
    closeSync(descriptor)
    expect(inPipe.length).toBeGreaterThan(0)
    expect(Buffer.concat([inPipe, stream.bytes()]).toString()).toBe(`${text}the end`)
  })

  test('what cannot be written is told to the listeners, and thrown where there is none', async () => {
    const path = join(await shop.folder(), 'read-only')
    const descriptor = openSync(path, constants.O_RDONLY | constants.O_CREAT, 0o600)
    const sink = standardOutput(descriptor as 1, never)
    expect(() => sink.write('text')).toThrow('EBADF')
    const told: unknown[] = []
    sink.on('error', (error: Error) => told.push(error))
    sink.write('text')
    closeSync(descriptor)
    expect(told).toEqual([expect.objectContaining({ code: 'EBADF' })])
  })
})
