/** What lies between a client and the gateway, and what may go wrong there (robustness §8, T7). */
import { type Fetch, TransportError } from '#ports'
import type { SimFiles } from '../sim-files.js'
import type { Call, GatewayProcess } from './gateway-process.js'
import type { History, Payload } from './history.js'
import type { networkFaults } from './script.js'
import type { SimTime } from './time.js'

export type NetworkFault = (typeof networkFaults)[number]

export interface Network {
  readonly faults: NetworkFault[]
  readonly last: Map<string, Call>
  fetchOf(machine: string, disk: SimFiles): Fetch
  deliver(call: Call): Promise<Answer>
  flush(): Promise<void>
}

type Answer = Awaited<ReturnType<GatewayProcess['handle']>>

const html = (status: number): Answer => ({
  status,
  headers: new Headers({ 'content-type': 'text/html', 'retry-after': '1' }),
  text: '<html>Sorry</html>',
})
const json = (status: number, code: string): Answer => ({
  status,
  headers: new Headers({ 'content-type': 'application/json', 'retry-after': '1' }),
  text: JSON.stringify({ error: { code, detail: 'Not now.' } }),
})
const isSubmission = ({ method, path }: Call) =>
  method === 'POST' && (path === '/propose/batch' || /^\/v1\/proposals\/[^/]+$/.test(path))
const lost = (code: string) => new TransportError('exchange', code, 'the connection was lost')

export function createNetwork(gateway: GatewayProcess, history: History, time: SimTime): Network {
  const late: Call[] = []
  const waiting = time.clockOf('network', () => true)

  const deliver = async (call: Call): Promise<Answer> => {
    const answer = await gateway.handle(call)
    if (isSubmission(call))
      history.answered(gateway.disk, payloadsOf(call), answer.status, answer.text)
    else if (/\/status/.test(call.path)) history.toldStatus(gateway.disk, answer.text)
    return answer
  }

  const payloadsOf = ({ body = '{}' }: Call): readonly Payload[] => {
    const { signature, proposals } = JSON.parse(body) as {
      signature?: string
      proposals?: { signature: string }[]
    }
    return (proposals ?? [{ signature: signature ?? '' }]).flatMap(
      (one) => history.payloads.get(one.signature) ?? [],
    )
  }

  const meet = async (fault: NetworkFault | undefined, call: Call): Promise<Answer> => {
    if (fault !== undefined) history.count('network faults')
    switch (fault) {
      case undefined:
        return deliver(call)
      case 'no-connection':
        throw new TransportError('connect', 'ECONNREFUSED', 'nobody listens')
      case 'lost-request':
        throw lost('EPIPE')
      case 'lost-answer':
        await deliver(call)
        throw lost('ECONNRESET')
      case 'html-502-before':
        return html(502)
      case 'html-504-after':
        await deliver(call)
        return html(504)
      case 'html-200-after':
        await deliver(call)
        return html(200)
      case 'json-500-after':
        await deliver(call)
        return json(500, 'internal_error')
      case 'json-429':
        return json(429, 'rate_limited')
      case 'twice': {
        const [first] = await Promise.all([deliver(call), deliver(call)])
        return first
      }
      case 'late':
        late.push(call)
        throw lost('ETIMEDOUT')
      case 'slow': {
        const answer = await deliver(call)
        await waiting.sleep(3_000)
        return answer
      }
    }
  }

  const note = (
    payload: Payload,
    status: number,
    item: { readonly status_code: number } | undefined,
    isJson: boolean,
  ) => {
    const code = item?.status_code ?? status
    const sending = payload.sendings.at(-1)
    if (!sending) return
    if (!isJson) sending.told = 'uncertain'
    else if (code === 200 || code === 202) sending.told = 'accepted'
    else if (code === 409) sending.told = 'conflict'
    else if ([400, 403, 404, 405, 413, 422].includes(code)) sending.told = 'refused'
    else sending.told = code === 429 || code === 503 ? 'deferred' : 'uncertain'
  }

  const network: Network = {
    faults: [],
    last: new Map(),
    deliver,
    async flush() {
      for (const call of late.splice(0)) {
        await deliver(call).catch((error: unknown) => {
          if (!(error instanceof TransportError)) throw error
        })
      }
    },
    fetchOf: (machine, disk) => async (input, init) => {
      const { pathname } = new URL(String(input))
      const body = typeof init?.body === 'string' ? init.body : undefined
      const call: Call = { method: init?.method ?? 'GET', path: pathname, body }
      const signal = init?.signal
      signal?.throwIfAborted()
      const submits = isSubmission(call)
      const payloads = submits ? history.sent(machine, disk, body ?? '{}') : []
      if (submits) network.last.set(machine, call)
      const work = meet(submits ? network.faults.shift() : undefined, call)
      const stopped = new Promise<never>((_, reject) =>
        signal?.addEventListener('abort', () => reject(lost('UND_ERR_ABORTED')), { once: true }),
      )
      try {
        const { status, headers, text } = await Promise.race([work, stopped])
        const isJson = headers.get('content-type') === 'application/json'
        const items =
          isJson && status === 200
            ? (JSON.parse(text) as { results?: { status_code: number }[] }).results
            : undefined
        for (const [index, payload] of payloads.entries())
          note(payload, status, items?.[index], isJson)
        return new Response(text, { status, headers })
      } catch (error) {
        work.catch(() => undefined)
        const told =
          error instanceof TransportError && error.phase === 'connect' ? 'deferred' : 'uncertain'
        for (const { sendings } of payloads) {
          const sending = sendings.at(-1)
          if (sending) sending.told = told
        }
        throw error
      }
    },
  }
  return network
}
