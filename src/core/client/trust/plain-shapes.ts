/**
 * What `sign` reads, without zod (see plain.ts). It says what the schema of trust-file.ts says; a
 * test holds them equal.
 */
import { requesterKinds } from '../../chain/round.js'
import { integer, list, members, oneOf, type Read, record, text } from '../../protocol/plain.js'
import { isAddress, isBytes32 } from '../../protocol/words.js'
import type { Trust } from './trust-file.js'

const [address, bytes32] = [text(isAddress), text(isBytes32)]

/** As the schema Trust. Throws ShapeError. */
export const readTrust: Read<Trust> = members(
  {
    chain_id: integer(1),
    permit2: address,
    signed_proposer: address,
    oracles: list(address, 1),
    requesters: list(members({ address, kind: oneOf(...requesterKinds) }, { strict: true }), 1),
    tokens: list(address, 1),
    slugs: (value) => (value === undefined ? {} : record(bytes32)(value)),
  },
  { strict: true },
)
