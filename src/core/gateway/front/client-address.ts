/** Whose budget a call spends, seen through trusted proxies (robustness §5). */

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
export function parseAddress(text: string): AddressBits | undefined {
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
