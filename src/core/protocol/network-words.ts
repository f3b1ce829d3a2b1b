const words: readonly (readonly [RegExp, string])[] = [
  [/^ENOTFOUND$/, 'host not found'],
  [/^EAI_AGAIN$/, 'host name lookup failed'],
  [/^ECONNREFUSED$/, 'connection refused'],
  [/^ECONNRESET$|^EPIPE$|^UND_ERR_SOCKET$/, 'connection closed'],
  [/^ETIMEDOUT$|^UND_ERR_\w*TIMEOUT$/, 'connection timed out'],
  [/^E(HOST|NET)UNREACH$/, 'host unreachable'],
  [/CERT|SELF_SIGNED|^ERR_TLS/, 'certificate not accepted'],
]

export function codeText(code: string) {
  const word = words.find(([form]) => form.test(code))?.[1]
  return word && `${word} (${code})`
}

/** Messages of sockets name addresses (R5). */
export function networkFault(error: unknown) {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : ''
  const shown = /^[A-Z][A-Z0-9_]{2,63}$/.exec(String(code))?.[0]
  return codeText(shown ?? '') ?? `connection failed${shown === undefined ? '' : ` (${shown})`}`
}
