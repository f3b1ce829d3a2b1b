const loopback = /^(localhost|\[::1\]|127(\.\d{1,3}){3})$/
const hostOrPort = /^(\[[0-9a-f:]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:\d{1,5})?$/

export function plainHttpHosts(text: string) {
  const hosts = text
    .toLowerCase()
    .split(/[\s,]+/)
    .filter((one) => one !== '')
  return hosts.length > 0 && hosts.every((one) => hostOrPort.test(one)) ? hosts : undefined
}

/** Without a port a name stands for every port of that host. */
export const mayBePlain = (
  { hostname, port }: Pick<URL, 'hostname' | 'port'>,
  hosts: readonly string[] = [],
) =>
  loopback.test(hostname) ||
  hosts.includes(hostname) ||
  hosts.includes(`${hostname}:${port || '80'}`)

/** As the rest of a sentence. */
export function urlFault(text: string, hosts?: readonly string[]) {
  if (!URL.canParse(text)) return 'is not a URL'
  const url = new URL(text)
  const { protocol, username, password, hash } = url
  if (protocol !== 'https:' && protocol !== 'http:') return 'must begin with https://'
  if (username !== '' || password !== '') return 'must not hold a user name or password'
  if (hash !== '') return 'must not hold a fragment'
  if (protocol === 'http:' && !mayBePlain(url, hosts))
    return 'must be https: http is for loopback addresses and hosts in allow-http'
  return undefined
}
