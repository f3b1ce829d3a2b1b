/** Failures of the network with the host and the setting that names it (contract §9). */
import { ChainError } from '../../core/ports.js'
import { UnavailableError } from '../../core/protocol/errors.js'
import type { Setting, Settings } from './settings.js'

const words: readonly (readonly [RegExp, string])[] = [
  [/^ENOTFOUND$/, 'host not found'],
  [/^EAI_AGAIN$/, 'host name lookup failed'],
  [/^ECONNREFUSED$/, 'connection refused'],
  [/^ECONNRESET$|^UND_ERR_SOCKET$/, 'connection closed'],
  [/^ETIMEDOUT$|^UND_ERR_\w*TIMEOUT$/, 'connection timed out'],
  [/^E(HOST|NET)UNREACH$/, 'host unreachable'],
  [/CERT|SELF_SIGNED|^ERR_TLS/, 'certificate not accepted'],
]

/**
 * The error with host and setting where the network failed: `RPC node polygon.example: host not
 * found (ENOTFOUND)`. Nothing else of a URL is shown (R5). Any other error as it is.
 */
export function withHost(error: unknown, { rpcUrl, gateway }: Settings): unknown {
  const cause = error instanceof UnavailableError ? error.meta.cause : error
  if (cause instanceof ChainError && cause.kind === 'unavailable' && rpcUrl !== undefined)
    return named(error, 'chain_unavailable', 'RPC node', rpcUrl, cause.message)
  // What says more, as of a payload that was admitted before, keeps its words and its hint.
  const isPlain =
    error instanceof UnavailableError && error.detail.startsWith('no connection to the gateway')
  if (isPlain && gateway !== undefined)
    return named(error, error.code, 'gateway', gateway, error.detail)
  return error
}

const codes = /\b(?:E[A-Z_]{3,}|UND_ERR_[A-Z_]+|[A-Z_]*CERT[A-Z_]*|[A-Z_]*SELF_SIGNED\w*)\b/

function named(
  error: unknown,
  code: string,
  what: string,
  setting: Setting,
  said: string,
): unknown {
  if (!URL.canParse(setting.value)) return error
  const found = codes.exec(said)?.[0] ?? ''
  const word = words.find(([form]) => form.test(found))?.[1]
  const { hint, ...meta } = error instanceof UnavailableError ? error.meta : {}
  const why = word === undefined ? said : `${word} (${found})`
  return new UnavailableError(code, `${what} ${new URL(setting.value).host}: ${why}`, {
    ...meta,
    cause: error,
    hint: word === undefined && hint !== undefined ? hint : `check ${setting.from}, then retry`,
  })
}
