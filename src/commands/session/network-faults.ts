import { ChainError } from '#ports'
import { UnavailableError } from '#protocol/errors'
import { codeText } from '#protocol/network-words'
import type { Setting, Settings } from './settings.js'

/**
 * Host and setting of what failed (contract §9); nothing else of a URL (R5). Others as they are.
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
  const fault = codeText(codes.exec(said)?.[0] ?? '')
  const { hint, ...meta } = error instanceof UnavailableError ? error.meta : {}
  return new UnavailableError(code, `${what} ${new URL(setting.value).host}: ${fault ?? said}`, {
    ...meta,
    cause: error,
    hint: fault === undefined && hint !== undefined ? hint : `check ${setting.from}, then retry`,
  })
}
