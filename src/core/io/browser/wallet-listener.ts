/**
 * The listener behind the wallet page (contract §9, `--browser`): loopback only, under a random
 * path, for the browser that opens it first, which gets a cookie. Other users of the machine may
 * read an address from a list of processes.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { walletPage } from '#page/pages'
import { type Look, listenForLooks, refused, withJson } from '../serving/looks.js'

export interface WalletRoutes {
  opened(): void
  /** POST, by name; resolves at the latest when `gone` aborts. */
  readonly calls: Readonly<Record<string, (body: unknown, gone: AbortSignal) => Promise<Look>>>
}

export interface WalletListener {
  readonly url: string
  close(): Promise<void>
}

const limitBytes = 64 * 1024
const cookieName = 'proposer-wallet'

interface Place {
  origin: string
  readonly path: string
  readonly cookie: string
  isTaken: boolean
}

export async function listenForWallet(routes: WalletRoutes): Promise<WalletListener> {
  const secret = () => randomBytes(32).toString('base64url')
  const place: Place = { origin: '', path: `/${secret()}/`, cookie: secret(), isTaken: false }
  let inFlight = 0
  let onIdle: (() => void) | undefined
  const listener = await listenForLooks({
    host: '127.0.0.1',
    port: 0,
    // A call may wait for a person.
    timeoutMs: 0,
    // So that the command can end.
    closes: true,
    route(incoming, response) {
      inFlight++
      response.once('close', () => {
        inFlight--
        if (inFlight === 0) onIdle?.()
      })
      return refusalOf(place, incoming) ?? answer(place, routes, incoming, response)
    },
  })
  place.origin = listener.url
  return {
    url: `${place.origin}${place.path}`,
    async close() {
      // A browser keeps connections ready on which it never asks anything.
      if (inFlight > 0)
        await new Promise<void>((idle) => {
          onIdle = idle
        })
      await listener.close()
    },
  }
}

/** Another site, another program, another user: before anything is looked at. */
function refusalOf(place: Place, incoming: IncomingMessage) {
  const { rawHeaders, headers, url = '', method } = incoming
  const hosts = rawHeaders.filter((name, at) => at % 2 === 0 && /^host$/i.test(name))
  if (hosts.length !== 1 || `http://${headers.host}` !== place.origin)
    return refused(400, 'bad_request', 'open the address as the command printed it')
  const site = headers['sec-fetch-site']
  const isForeign =
    (headers.origin !== undefined && headers.origin !== place.origin) ||
    (site !== undefined && site !== 'same-origin' && site !== 'none')
  if (isForeign) return refused(403, 'bad_request', 'this page is not for other sites')
  if (method === 'POST' && headers.origin !== place.origin)
    return refused(403, 'bad_request', 'a call must say that it comes from this page')
  if (!equal(url.slice(0, place.path.length), place.path))
    return refused(404, 'route_not_found', 'there is no such page; the command printed the address')
  const isFirst = !place.isTaken && method === 'GET' && url === place.path
  if (isFirst || showsCookie(place, headers.cookie)) return undefined
  return refused(
    403,
    'page_taken',
    place.isTaken
      ? 'this address is open in another browser; if that was not you, end the command and run it again'
      : 'open the page first',
  )
}

async function answer(
  place: Place,
  { opened, calls }: WalletRoutes,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<Look> {
  const { url = '', method, headers } = incoming
  const name = url.slice(place.path.length)
  const file = Object.hasOwn(walletPage, name) ? walletPage[name] : undefined
  if (file !== undefined && method === 'GET') {
    const isFirst = !place.isTaken
    place.isTaken = true
    if (isFirst) opened()
    const attributes = `Path=${place.path}; HttpOnly; SameSite=Strict`
    const cookie = { 'set-cookie': `${cookieName}=${place.cookie}; ${attributes}` }
    return { status: 200, body: file.body, headers: { ...file.headers, ...(isFirst && cookie) } }
  }
  const call = Object.hasOwn(calls, name) ? calls[name] : undefined
  if (call === undefined || method !== 'POST')
    return refused(404, 'route_not_found', 'the wallet page has no such call')
  if (headers['content-type'] !== 'application/json')
    return refused(400, 'unsupported_media_type', 'a call is application/json')
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  const tooLarge = `a call has at most ${limitBytes} bytes`
  return withJson(incoming, response, limitBytes, tooLarge, (body) => call(body, gone.signal))
}

function showsCookie(place: Place, header: string | undefined) {
  const given = (header ?? '')
    .split(';')
    .map((one) => one.trim().split('='))
    .filter(([name]) => name === cookieName)
  return given.some(([, value = '']) => equal(value, place.cookie))
}

function equal(given: string, wanted: string) {
  const [one, other] = [given, wanted].map((text) => Buffer.from(text)) as [Buffer, Buffer]
  return one.length === other.length && timingSafeEqual(one, other)
}
