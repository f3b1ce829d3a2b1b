import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { type AdminListener, listenAdmin } from '#io/serving/admin-listener'
import {
  createPageEvents,
  type EventReader,
  mostReaders,
  type PageSource,
} from '#page/admin-page-events'
import { StorageError } from '#protocol/errors'
import { openFront, statusParts } from '#support/front'
import { exchangeRaw } from '#support/raw-http'

const open: { close(): Promise<void> }[] = []
const sockets: Socket[] = []
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  for (const one of open.splice(0)) await one.close()
})

const id = '00000000-0000-4000-8000-000000000001'
const source = (more: Partial<PageSource> = {}): PageSource => ({
  figures: () => ({ ready: true }),
  failures: async () => ({ count: 0, rows: [] }),
  candidates: async () => [{ candidate_id: id }],
  candidate: async (asked) => (asked === id ? { candidate_id: id, steps: [] } : undefined),
  ...more,
})

async function listening(page: PageSource, pageEveryMs = 10): Promise<AdminListener> {
  const { gateway } = await openFront()
  const desk = {
    token: 'f'.repeat(64),
    looks: {},
    acts: { '/operator/candidates/reject': async () => ({ act: 'done' }) },
  }
  const admin = await listenAdmin({
    ...statusParts(gateway),
    port: 0,
    page,
    pageEveryMs,
    operator: desk,
  })
  open.push(admin)
  return admin
}

function reading(
  { port }: AdminListener,
  headers = '',
): { socket: Socket; heard: () => string; until: (part: string) => Promise<void> } {
  const socket = connect(port, '127.0.0.1')
  sockets.push(socket)
  let text = ''
  socket.setEncoding('utf8').on('data', (part: string) => {
    text += part
  })
  socket.write(`GET /operator/events HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`)
  return {
    socket,
    heard: () => text,
    async until(part) {
      while (!text.includes(part)) {
        if (socket.readableEnded) throw new Error(`the stream ended with ${text.slice(-200)}`)
        await once(socket, 'data')
      }
    },
  }
}

describe("contract §6: the operator's page", () => {
  test('is files that nothing frames, under a policy that runs no inline code; without a source there is none', async () => {
    const admin = await listening(source())
    for (const [path, type] of [
      ['/', 'text/html'],
      ['/page.css', 'text/css'],
      ['/page.js', 'text/javascript'],
      ['/elements.js', 'text/javascript'],
    ] as const) {
      const answer = await fetch(admin.url + path)
      expect([path, answer.status, answer.headers.get('content-type')]).toEqual([
        path,
        200,
        `${type}; charset=utf-8`,
      ])
      const policy = answer.headers.get('content-security-policy')
      expect(policy).toMatch(
        /^default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';/,
      )
      expect(policy).toContain("frame-ancestors 'none'")
      expect(policy).not.toContain('unsafe')
      expect(answer.headers.get('x-content-type-options')).toBe('nosniff')
      expect(answer.headers.get('cache-control')).toBe('no-store')
      // A bundle may hold one byte a character, and nothing of a raw string can be escaped.
      expect(await answer.text()).toMatch(/^[\x20-\x7e\n]+$/)
    }
    const html = await (await fetch(`${admin.url}/`)).text()
    expect(html).not.toMatch(
      / style=| on\w+=|<style|<script(?! type="module" src="page\.js")|https?:/,
    )
    const { gateway } = await openFront()
    const bare = await listenAdmin({ ...statusParts(gateway), port: 0 })
    open.push(bare)
    for (const path of ['/', '/page.js', '/operator/events', `/operator/candidates/${id}`]) {
      expect([path, (await fetch(bare.url + path)).status]).toEqual([path, 404])
    }
  })

  test('is refused to foreign names, to every method but GET, and its events to pages of other sites', async () => {
    const admin = await listening(source())
    const ask = (path: string, host: string, method = 'GET', more = '') =>
      exchangeRaw(
        admin.port,
        `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${more}\r\n`,
      )
    for (const path of ['/', '/page.js', '/operator/events', `/operator/candidates/${id}`]) {
      expect([path, (await ask(path, 'rebound.example')).status]).toEqual([path, 400])
      for (const method of ['POST', 'HEAD', 'OPTIONS'])
        expect([path, method, (await ask(path, 'localhost', method)).status]).toEqual([
          path,
          method,
          405,
        ])
    }
    for (const site of ['cross-site', 'same-site']) {
      expect(
        (await ask('/operator/events', 'localhost', 'GET', `Sec-Fetch-Site: ${site}\r\n`)).status,
      ).toBe(403)
    }
  })

  test('tells one candidate by its id, and leaves the acts beside it alone', async () => {
    const admin = await listening(source())
    const at = async (path: string, init = {}) => {
      const answer = await fetch(`${admin.url}/operator/candidates/${path}`, init)
      return [answer.status, await answer.json()]
    }
    expect(await at(id)).toEqual([200, { candidate_id: id, steps: [] }])
    expect(await at(id.replace(/1$/, '2'))).toMatchObject([
      404,
      { error: { code: 'candidate_not_found' } },
    ])
    expect(await at('..%2f..')).toMatchObject([404, { error: { code: 'route_not_found' } }])
    expect(await at('reject', { method: 'POST' })).toMatchObject([401, {}])
    const broken = source({
      candidate: () =>
        Promise.reject(
          new StorageError('store_damaged', 'it is broken', { httpStatus: 500, hint: '-' }),
        ),
    })
    const other = await listening(broken)
    const answer = await fetch(`${other.url}/operator/candidates/${id}`)
    expect([answer.status, await answer.json()]).toMatchObject([
      500,
      { error: { code: 'store_damaged' } },
    ])
  })
})

test('robustness §5: figures come at each look, so that a hung gateway shows, and lists when something has changed', async () => {
  let ready = false
  const admin = await listening(source({ figures: () => ({ ready }) }))
  const reader = reading(admin)
  await reader.until(`event: candidates\ndata: [{"candidate_id":"${id}"}]\n\n`)
  expect(reader.heard()).toContain('event: failures\ndata: {"count":0,"rows":[]}\n\n')
  expect(reader.heard()).toMatch(/content-type: text\/event-stream/i)
  expect(reader.heard()).toContain('retry: 2000\n\n')
  ready = true
  while ((reader.heard().match(/event: figures\ndata: {"ready":true}\n\n/g) ?? []).length < 2)
    await once(reader.socket, 'data')
  expect(reader.heard().match(/event: candidates/g)).toHaveLength(1)
})

test('robustness §5: end with the listener', async () => {
  const admin = await listening(source())
  const readers = [reading(admin), reading(admin)]
  for (const reader of readers) await reader.until('event: candidates')
  const ended = Promise.all(readers.map(({ socket }) => once(socket, 'close')))
  await admin.close()
  await ended
  // Not broken off: the last chunk has come.
  for (const { heard } of readers) expect(heard()).toMatch(/\r\n0\r\n\r\n$/)
})

test('robustness §5: go on where the store cannot be read, and the list stays as it was told', async () => {
  let isBroken = false
  const unreadable = new StorageError('store_unavailable', 'no disk', {
    httpStatus: 503,
    hint: '-',
  })
  const admin = await listening(
    source({
      figures: () => ({ isBroken }),
      candidates: async () => {
        if (isBroken) throw unreadable
        return []
      },
    }),
  )
  const reader = reading(admin)
  await reader.until('event: candidates\ndata: []')
  isBroken = true
  await reader.until('{"isBroken":true}')
  isBroken = false
  await reader.until('{"isBroken":false}')
  expect(reader.heard().match(/event: candidates/g)).toHaveLength(1)
})

test('R17: a reader that reads nothing is dropped, and the others hear on', async () => {
  let count = 0
  const admin = await listening(
    source({ figures: () => ({ count: count++, weight: 'x'.repeat(100_000) }) }),
  )
  const slow = reading(admin)
  await slow.until('event: candidates')
  slow.socket.pause()
  const quick = connect(admin.port, '127.0.0.1').resume()
  sockets.push(quick)
  quick.write('GET /operator/events HTTP/1.1\r\nHost: localhost\r\n\r\n')
  while (count < 200) await once(quick, 'data')
  slow.socket.resume()
  await once(slow.socket, 'close')
  const before = count
  while (count < before + 2) await once(quick, 'data')
})

function fakeReader(writableLength = 0) {
  const told: string[] = []
  const closing: (() => void)[] = []
  const leave = () => {
    for (const close of closing.splice(0)) close()
  }
  const reader = {
    writableLength,
    write: (text: string) => told.push(text) > 0,
    destroy: leave,
    once: (_: string, close: () => void) => closing.push(close),
  }
  return { told, leave, reader: reader as unknown as EventReader }
}

test('R17: there are eight at most; one that leaves makes room', () => {
  const events = createPageEvents(source())
  const readers = Array.from({ length: mostReaders }, () => fakeReader())
  let begun = 0
  const add = ({ reader }: ReturnType<typeof fakeReader>) => events.add(reader, () => begun++)
  expect(readers.map(add)).toEqual(Array(8).fill(true))
  expect([add(fakeReader()), begun]).toEqual([false, 8])
  readers[3]?.leave()
  expect(events.readers).toBe(7)
  expect(add(fakeReader())).toBe(true)
  for (const { leave } of readers) leave()
})

test('R17: more than 256 KiB unread is the end of a reader', () => {
  const events = createPageEvents(source())
  const slow = fakeReader(256 * 1024 + 1)
  expect(events.add(slow.reader, () => undefined)).toBe(true)
  expect([events.readers, slow.told]).toEqual([0, []])
})
