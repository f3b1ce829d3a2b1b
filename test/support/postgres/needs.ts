/** Tests on real servers, left out by name where a server is missing. */
import { describe } from 'vitest'
import { found, type PostgresNeed } from './binaries.js'

/**
 * Why tests that need all of it must be left out; `undefined`: they run. Where
 * `PROPOSER_TEST_POSTGRES=required` a missing version 18 is an error; the others stay optional,
 * because npm does not bring them.
 */
function lacks(...needs: readonly PostgresNeed[]): string | undefined {
  const missing = needs.map((need) => ({ need, why: found(need).missing }))
  const required = missing.find(({ need, why }) => need === 18 && why !== undefined)
  if (required !== undefined && process.env.PROPOSER_TEST_POSTGRES === 'required')
    throw new Error(`PROPOSER_TEST_POSTGRES=required, and ${required.why}`)
  return missing.find(({ why }) => why !== undefined)?.why
}

/** `describe` for tests on real servers: left out by name, with the reason, where one is missing. */
export function describeWith(
  needs: readonly PostgresNeed[],
  title: string,
  body: () => void,
): void {
  const why = lacks(...needs)
  const name = why === undefined ? title : `${title} (left out: ${why})`
  if (why !== undefined) process.stderr.write(`${name}\n`)
  describe.skipIf(why !== undefined)(name, body)
}
