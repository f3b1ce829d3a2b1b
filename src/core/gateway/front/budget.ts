import type { SharedWindows } from '#storage/postgres/windows'

/** No valid call has more items (§8). */
export const mostSharedItems = 100

export interface BudgetLimits {
  readonly windowMs: number
  readonly perClientItems: number
  readonly globalItems: number
}

export type Charge = Readonly<ReturnType<typeof chargeOf>> & { readonly logEnd?: number }

export interface Budget {
  /**
   * Whole from the client's window; from that of all what its own had left, at most one valid
   * batch. A refused charge is spent too (§8 rule 4).
   */
  charge(client: string, items: number, nowMs: number): Charge | Promise<Charge>
  spent(client: string, nowMs: number): boolean
  spentByAll(nowMs: number): number
  endsInMs(nowMs: number): number
  readonly clients: number
}

export type MemoryBudget = ReturnType<typeof createBudget>

interface Window {
  readonly startMs: number
  readonly spentItems: number
}

const rememberedClients = 65_536

export function createBudget(limits: BudgetLimits, maxClients = rememberedClients) {
  const clients = new Map<string, Window>()
  let everyone: Window | undefined

  const isOpen = (window: Window | undefined, nowMs: number): window is Window =>
    window !== undefined && nowMs - window.startMs < limits.windowMs
  const spend = (window: Window | undefined, items: number, nowMs: number) =>
    isOpen(window, nowMs)
      ? { startMs: window.startMs, spentItems: window.spentItems + items }
      : { startMs: nowMs, spentItems: items }

  return {
    charge(client, items, nowMs) {
      const known = clients.get(client)
      const own = spend(known, items, nowMs)
      if (own.startMs !== known?.startMs) clients.delete(client)
      clients.set(client, own)
      if (clients.size > maxClients) {
        const [oldest] = clients.keys()
        if (oldest !== undefined) clients.delete(oldest)
      }
      const roomItems = limits.perClientItems - (own.spentItems - items)
      const shared = Math.max(0, Math.min(items, mostSharedItems, roomItems))
      everyone = spend(everyone, shared, nowMs)

      const windowOf = ({ spentItems, startMs }: Window) => ({
        spentItems,
        endsInMs: limits.windowMs - (nowMs - startMs),
      })
      return chargeOf(limits, windowOf(own), windowOf(everyone))
    },
    spent(client, nowMs) {
      const own = clients.get(client)
      return (
        (isOpen(own, nowMs) && own.spentItems >= limits.perClientItems) ||
        (isOpen(everyone, nowMs) && everyone.spentItems >= limits.globalItems)
      )
    },
    spentByAll: (nowMs) => (isOpen(everyone, nowMs) ? everyone.spentItems : 0),
    endsInMs: (nowMs) =>
      isOpen(everyone, nowMs) ? limits.windowMs - (nowMs - everyone.startMs) : 0,
    get clients() {
      return clients.size
    },
  } satisfies Budget
}

interface ChargedWindow {
  readonly spentItems: number
  readonly endsInMs: number
}

function chargeOf(limits: BudgetLimits, own: ChargedWindow, everyone: ChargedWindow) {
  const shown = ({ spentItems, endsInMs }: ChargedWindow, limitItems: number) => ({
    admitted: spentItems <= limitItems,
    limitItems,
    remainingItems: Math.max(0, limitItems - spentItems),
    resetSeconds: Math.max(1, Math.ceil(endsInMs / 1000)),
  })
  const [one, other] = [shown(own, limits.perClientItems), shown(everyone, limits.globalItems)]
  const least =
    Number(other.admitted) - Number(one.admitted) ||
    other.remainingItems - one.remainingItems ||
    one.resetSeconds - other.resetSeconds
  // Where both refuse, that is the one which ends later.
  const tighter = least < 0 ? other : one
  return { ...tighter, retryAfterSeconds: tighter.admitted ? undefined : tighter.resetSeconds }
}

export const budgetHeaders = ({ limitItems, remainingItems, resetSeconds }: Charge) => ({
  'ratelimit-limit': String(limitItems),
  'ratelimit-remaining': String(remainingItems),
  'ratelimit-reset': String(resetSeconds),
})

export function sharedBudget(
  limits: BudgetLimits,
  charge: SharedWindows['charge'],
  nowMs: () => number,
): Budget {
  let everyone = { spentItems: 0, endsAtMs: 0 }
  const clients = new Set<string>()
  const endsInMs = (atMs: number) => Math.max(0, everyone.endsAtMs - atMs)
  return {
    async charge(client, items) {
      const charged = await charge(client, items)
      const endsAtMs = nowMs() + charged.everyone.endsInMs
      if (endsAtMs > everyone.endsAtMs + limits.windowMs / 2) clients.clear()
      clients.add(client)
      everyone = { spentItems: charged.everyone.spentItems, endsAtMs }
      return { ...chargeOf(limits, charged.own, charged.everyone), logEnd: charged.end }
    },
    spent: () => false,
    spentByAll: (atMs) => (endsInMs(atMs) > 0 ? everyone.spentItems : 0),
    endsInMs,
    get clients() {
      return clients.size
    },
  }
}

const bitsOf = (parts: readonly number[], width: number) =>
  parts.map((part) => part.toString(2).padStart(width, '0')).join('')

const mappedPrefix = bitsOf([0, 0, 0, 0, 0, 0xffff], 16)

/** 32 or 128 binary digits. IPv4-mapped IPv6 is IPv4; a zone id is dropped. */
function parseAddress(text: string) {
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) {
    const bytes = text.split('.').map(Number)
    return bytes.every((byte) => byte <= 255) ? bitsOf(bytes, 8) : undefined
  }
  const [address = ''] = text.split('%', 1)
  const url = `http://[${address}]/`
  if (!/^[\d.:a-f]+$/i.test(address) || !URL.canParse(url)) return undefined
  const halves = new URL(url).hostname.slice(1, -1).split('::')
  const [head = [], tail = []] = halves.map((half) =>
    half === '' ? [] : half.split(':').map((group) => Number.parseInt(group, 16)),
  )
  const zeros = new Array<number>(8 - head.length - tail.length).fill(0)
  const bits = bitsOf([...head, ...zeros, ...tail], 16)
  return bits.startsWith(mappedPrefix) ? bits.slice(mappedPrefix.length) : bits
}

export function parseCidr(text: string) {
  const [address = '', length, ...rest] = text.split('/')
  const bits = parseAddress(address)
  if (bits === undefined || rest.length > 0) return undefined
  if (length !== undefined && !/^\d{1,3}$/.test(length)) return undefined
  const prefixBits = Number(length ?? bits.length)
  return prefixBits <= bits.length
    ? { prefix: bits.slice(0, prefixBits), bits: bits.length }
    : undefined
}

/**
 * Of X-Forwarded-For, from the right, the first hop that is not trusted, or the last that is. IPv6
 * counts per /64, which is what one subscriber has.
 */
export function clientKey(
  socketAddress: string,
  forwardedFor: string | null | undefined,
  trusted: readonly NonNullable<ReturnType<typeof parseCidr>>[],
) {
  const isTrusted = (address: string) =>
    trusted.some(({ prefix, bits }) => bits === address.length && address.startsWith(prefix))
  let client = parseAddress(socketAddress)
  if (typeof forwardedFor === 'string') {
    const hops = forwardedFor.split(',')
    while (client !== undefined && isTrusted(client)) {
      const next = parseAddress(hops.pop()?.trim() ?? '')
      if (next === undefined) break
      client = next
    }
  }
  if (client === undefined) return socketAddress.slice(0, 64)
  const parts = (width: number) =>
    [0, 1, 2, 3].map((at) => Number.parseInt(client.slice(at * width, (at + 1) * width), 2))
  if (client.length === 32) return parts(8).join('.')
  const groups = parts(16).map((group) => group.toString(16))
  return `${groups.join(':')}::/64`
}
