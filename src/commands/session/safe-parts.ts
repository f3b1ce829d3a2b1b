/** What `--safe` and `--parts` bring to a signature (contract §9). */
import type { SafePartsFile, SafeSigning } from '../../core/client/propose/safe.js'
import { UsageError } from '../../core/protocol/errors.js'
import type { Context } from '../terminal/context.js'
import { parseJson, readInput } from './inputs.js'
import type { Session, SessionFlags } from './session.js'

/** The intent wants its terms, the signature its parts, and stdin is there once. */
const read = new WeakMap<Session, Promise<SafePartsFile>>()

/** Without a session nothing is read. UsageError `flag_without_meaning`. */
export async function givenParts(
  context: Context,
  session: Session | undefined,
  { parts: path, safe: named }: SessionFlags,
): Promise<SafePartsFile | undefined> {
  if (path === undefined) return undefined
  if (named === undefined)
    throw new UsageError('flag_without_meaning', '--parts belongs to a Safe', {
      hint: 'add --safe <address>, or leave out --parts',
    })
  const safe = session?.account.safe?.address
  if (session === undefined || safe === undefined) return undefined
  const known = read.get(session)
  if (known !== undefined) return known
  const reading = (async () => {
    const { parseParts } = await import('../../core/client/propose/safe.js')
    const { chain_id: chainId } = await session.trust()
    return parseParts(parseJson(await readInput(context, path), path), path, { safe, chainId })
  })()
  read.set(session, reading)
  return reading
}

export async function safeSigning(
  context: Context,
  session: Session,
  flags: SessionFlags,
): Promise<SafeSigning | undefined> {
  const { safe } = session.account
  if (safe === undefined) return undefined
  return {
    safe: safe.address,
    owner: safe.owner?.signer,
    as: typeof flags.asOwner === 'string' ? await safe.owner?.address() : undefined,
    given: await givenParts(context, session, flags),
  }
}
