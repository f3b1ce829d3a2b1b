import { ChainError } from '#ports'
import { UnavailableError, UsageError } from '#protocol/errors'

export const chainUnavailable = (cause: ChainError) =>
  new UnavailableError('chain_unavailable', `the chain could not be read (${cause.kind})`, {
    hint: 'check --rpc-url, then retry',
    cause,
  })

export async function onChain<T>(read: () => Promise<T>) {
  try {
    return await read()
  } catch (error) {
    throw error instanceof ChainError ? chainUnavailable(error) : error
  }
}

/** Often a credential: named by where it came `from` (R5). */
export function requireRpcUrl(url: string, from: string) {
  if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) return url
  throw new UsageError(
    'invalid_rpc_url',
    `${from} is not an http or https URL`,
    'give the node as --rpc-url https://…',
  )
}
