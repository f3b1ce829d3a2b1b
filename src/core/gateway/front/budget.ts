import type { SharedWindows } from '#storage/postgres/windows'

/**
 * Fixed windows, per client address and for all (§8, contract §2), in monotonic milliseconds
 * (R13); whose window a call spends is seen through trusted proxies (robustness §5).
 */

/** No valid call has more items (§8). */
export const mostSharedItems = 100

export interface BudgetLimits {
  readonly windowMs: number
  readonly perClientItems: number
  readonly globalItems: number
}

export interface Charge {
  readonly admitted: boolean
  readonly limitItems: number
  readonly remainingItems: number
  readonly resetSeconds: number
  /** Only when refused: until every window that refused has ended. */
  readonly retryAfterSeconds: number | undefined
  /** Of a shared store: up to here the call has to know everything. */
  readonly logEnd?: number
}

export interface Budget {
  /**
   * Whole from the client's window; from that of all what its own had left, at most one valid
   * batch. A refused charge is spent too (§8 rule 4): hammering never pays, and only for the
   * hammerer.
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

/** About 7 MB (R17). */
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
      // A new window goes to the end of the map: its first entry opened longest ago.
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
  const views = [
    { limitItems: limits.perClientItems, window: own },
    { limitItems: limits.globalItems, window: everyone },
  ].map(({ limitItems, window }) => ({
    limitItems,
    remainingItems: Math.max(0, limitItems - window.spentItems),
    refused: window.spentItems > limitItems,
    resetSeconds: Math.max(1, Math.ceil(window.endsInMs / 1000)),
  }))
  const refusing = views.filter((view) => view.refused)
  const [tighter] = (refusing.length > 0 ? refusing : views).sort(
    (a, b) => a.remainingItems - b.remainingItems || b.resetSeconds - a.resetSeconds,
  )
  if (!tighter) throw new RangeError('a budget has two windows')
  const { limitItems, remainingItems, resetSeconds } = tighter
  const admitted = refusing.length === 0
  const retryAfterSeconds = Math.max(...refusing.map((view) => view.resetSeconds))
  return {
    admitted,
    limitItems,
    remainingItems,
    resetSeconds,
    retryAfterSeconds: admitted ? undefined : retryAfterSeconds,
  }
}

export function budgetHeaders(charge: Charge): Record<string, string> {
  return {
    'ratelimit-limit': String(charge.limitItems),
    'ratelimit-remaining': String(charge.remainingItems),
    'ratelimit-reset': String(charge.resetSeconds),
  }
}

export function sharedBudget(
  limits: BudgetLimits,
  windows: SharedWindows,
  nowMs: () => number,
): Budget {
  let everyone = { spentItems: 0, endsAtMs: 0 }
  const clients = new Set<string>()
  const endsInMs = (atMs: number) => Math.max(0, everyone.endsAtMs - atMs)
  return {
    async charge(client, items) {
      const charged = await windows.charge(client, items)
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

/** 32 or 128 binary digits. */
type AddressBits = string

interface Cidr {
  readonly prefix: AddressBits
  readonly bits: number
}

const bitsOf = (parts: readonly number[], width: number) =>
  parts.map((part) => part.toString(2).padStart(width, '0')).join('')

const mappedPrefix = bitsOf([0, 0, 0, 0, 0, 0xffff], 16)

/** IPv4-mapped IPv6 is IPv4; a zone id is dropped. */
function parseAddress(text: string): AddressBits | undefined {
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) {
    const bytes = text.split('.').map(Number)
    return bytes.every((byte) => byte <= 255) ? bitsOf(bytes, 8) : undefined
  }
  const [address = ''] = text.split('%', 1)
  const url = `http://[${address}]/`
  if (!/^[\d.:a-f]+$/i.test(address) || !URL.canParse(url)) return undefined
  // A host is written with lowercase groups, and with `::` once at most.
  const halves = new URL(url).hostname.slice(1, -1).split('::')
  const [head = [], tail = []] = halves.map((half) =>
    half === '' ? [] : half.split(':').map((group) => Number.parseInt(group, 16)),
  )
  const zeros = new Array<number>(8 - head.length - tail.length).fill(0)
  const bits = bitsOf([...head, ...zeros, ...tail], 16)
  return bits.startsWith(mappedPrefix) ? bits.slice(mappedPrefix.length) : bits
}

export function parseCidr(text: string): Cidr | undefined {
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
 * X-Forwarded-For counts only as far as the hops that wrote it are trusted: from the right, the
 * first untrusted one is the client; where the list runs out, the last that was trusted. IPv6
 * counts per /64, which is what one subscriber has.
 */
export function clientKey(
  socketAddress: string,
  forwardedFor: string | null,
  trusted: readonly Cidr[],
) {
  const isTrusted = (address: AddressBits) =>
    trusted.some(({ prefix, bits }) => bits === address.length && address.startsWith(prefix))
  let client = parseAddress(socketAddress)
  if (forwardedFor !== null) {
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
