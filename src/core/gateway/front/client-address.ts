/**
 * Whose budget a call spends: the client's address in normal form, seen through trusted proxies
 * (robustness §5).
 */

/** 4 or 16 bytes. */
type AddressBytes = readonly number[]

/** A block of addresses in CIDR notation, parsed. */
export interface Cidr {
  readonly bytes: AddressBytes
  readonly bits: number
}

/**
 * Bytes of an IPv4 or IPv6 address, or `undefined`. IPv4-mapped IPv6 is IPv4; a zone id is dropped.
 */
export function parseAddress(text: string): AddressBytes | undefined {
  if (!text.includes(':')) return parseIpv4(text)
  const bytes = parseIpv6(text.split('%', 1)[0] ?? '')
  const mapped = bytes?.slice(0, 12).every((byte, at) => byte === (at < 10 ? 0 : 0xff))
  return mapped ? bytes?.slice(12) : bytes
}

function parseIpv4(text: string): AddressBytes | undefined {
  if (!/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) return undefined
  const bytes = text.split('.').map(Number)
  return bytes.every((byte) => byte <= 255) ? bytes : undefined
}

function parseIpv6(text: string): AddressBytes | undefined {
  if (text.length > 45) return undefined
  const halves = text.split('::')
  if (halves.length > 2) return undefined
  const [head, tail] = halves.map((half) =>
    half === '' ? [] : half.split(':').flatMap(groupBytes),
  )
  if (!head || head.includes(-1) || tail?.includes(-1)) return undefined
  if (!tail) return head.length === 16 ? head : undefined
  const gap = 16 - head.length - tail.length
  return gap >= 2 ? [...head, ...new Array<number>(gap).fill(0), ...tail] : undefined
}

/** Two bytes of a group, four of an embedded IPv4 address, or one -1. */
function groupBytes(group: string): readonly number[] {
  if (/^[0-9a-fA-F]{1,4}$/.test(group)) {
    const value = Number.parseInt(group, 16)
    return [value >> 8, value & 0xff]
  }
  return parseIpv4(group) ?? [-1]
}

/**
 * A CIDR block such as `10.0.0.0/8` or `fd00::/8`; a bare address stands for itself. `undefined`
 * where it is none.
 */
export function parseCidr(text: string): Cidr | undefined {
  const [address = '', bitsText, ...rest] = text.split('/')
  const bytes = parseAddress(address)
  if (!bytes || rest.length > 0) return undefined
  if (bitsText === undefined) return { bytes, bits: bytes.length * 8 }
  const bits = /^\d{1,3}$/.test(bitsText) ? Number(bitsText) : Number.NaN
  return bits <= bytes.length * 8 ? { bytes, bits } : undefined
}

/** Whether the address lies in the block. */
export function contains(block: Cidr, address: AddressBytes): boolean {
  if (block.bytes.length !== address.length) return false
  for (let at = 0; at * 8 < block.bits; at += 1) {
    const mask = 0xff & (0xff << Math.max(0, 8 - (block.bits - at * 8)))
    if (((block.bytes[at] ?? 0) & mask) !== ((address[at] ?? 0) & mask)) return false
  }
  return true
}

/**
 * The client a call is charged to. `socketAddress` is the peer of the connection, `forwardedFor`
 * the X-Forwarded-For header; the header counts only as far as the hops that wrote it are trusted:
 * from the right, the first untrusted one is the client. A list that breaks off or runs out leaves
 * the last hop that was trusted. IPv6 counts per /64, which is what one subscriber has.
 */
export function clientKey(
  socketAddress: string,
  forwardedFor: string | null,
  trusted: readonly Cidr[],
): string {
  const isTrusted = (address: AddressBytes) => trusted.some((block) => contains(block, address))
  let client = parseAddress(socketAddress)
  if (forwardedFor !== null) {
    const hops = forwardedFor.split(',')
    while (client && isTrusted(client)) {
      const hop = hops.pop()
      const next = hop === undefined ? undefined : parseAddress(hop.trim())
      if (!next) break
      client = next
    }
  }
  if (!client) return socketAddress.slice(0, 64)
  if (client.length === 4) return client.join('.')
  const groups = [0, 2, 4, 6].map((at) =>
    (((client[at] ?? 0) << 8) | (client[at + 1] ?? 0)).toString(16),
  )
  return `${groups.join(':')}::/64`
}
