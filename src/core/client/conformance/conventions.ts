/** Rules of §1 (conventions of all routes), §2.3 and §4.1 rule 1 (eligibility), and the errors of §7 that any caller can see. */
import * as z from 'zod'
import { Address } from '../../protocol/schema.js'
import type { Bench } from './bench.js'
import { at, expectShape, expectStatus, expectThat, Fault, given, malformed, NotSeen, notServed, type Rule, rule } from './rule.js'
import { VersionObject } from './shapes.js'

const eligibility = (bench: Bench, address: string = bench.stranger) =>
  bench.probe.send({ method: 'GET', path: `/v1/proposals/eligibility/${address}` })
const upper = (hex: string) => `0x${hex.slice(2).toUpperCase()}`

/** What is asked without any question. */
export const conventionRules: readonly Rule[] = [
  rule('1-trailing-slash', '§1', 'read', 'paths are exact: no trailing slash', async ({ probe, stranger }) =>
    expectStatus(await probe.send({ method: 'GET', path: `/v1/proposals/eligibility/${stranger}/`, wrong: 'a trailing slash' }), 404, 400),
  ),
  rule('1-percent-encoding', '§1', 'read', 'paths are exact: no percent-encoded aliases', async ({ probe, stranger }) =>
    expectStatus(
      await probe.send({ method: 'GET', path: `/v1/proposals/%65ligibility/${stranger}`, wrong: 'an encoded letter' }),
      404,
      400,
    ),
  ),
  rule('1-content-type', '§1', 'read', 'request bodies have Content-Type: application/json', async ({ probe, ports }) =>
    expectStatus(
      await probe.send({
        method: 'POST',
        path: '/propose/batch/status',
        headers: { 'content-type': 'text/plain' },
        body: { candidate_ids: [ports.random.uuid()] },
        wrong: 'Content-Type: text/plain',
      }),
      400,
      415,
      422,
    ),
  ),
  rule('1-json-body', '§1', 'read', 'request bodies are JSON', async ({ probe }) =>
    expectStatus(
      await probe.send({ method: 'POST', path: '/propose/batch/status', body: '{"candidate_ids":[', wrong: 'a body cut short' }),
      ...malformed,
    ),
  ),
  rule('1-lowercase-address', '§1', 'read', 'addresses are canonical lowercase', async ({ probe, stranger }) => {
    // A random address has a letter but once in 10 million million.
    const path = `/v1/proposals/eligibility/${upper(stranger)}`
    return expectStatus(await probe.send({ method: 'GET', path, wrong: 'an address in capitals' }), ...notServed)
  }),
  rule('1-lowercase-question-id', '§1', 'read', 'question ids are canonical lowercase', async (bench) => {
    const { question_id } = await bench.context()
    const path = `/v1/proposals/${upper(question_id)}/signing-data`
    return expectStatus(
      await bench.probe.send({ method: 'POST', path, body: await bench.proposal(), wrong: 'a question id in capitals' }),
      ...notServed,
    )
  }),
  rule('1-slug-characters', '§1', 'read', 'slugs contain only lowercase letters, digits and hyphens', async (bench) =>
    expectStatus(
      await bench.probe.send({
        method: 'POST',
        path: '/v1/proposals/Some_Slug/signing-data',
        body: await bench.proposal(),
        wrong: 'a slug with a capital and an underscore',
      }),
      ...notServed,
    ),
  ),
  rule('1-slug-identifies', '§1', 'read', 'identifier is a question id or a market slug', async (bench) => {
    const { slug, question_id } = await bench.context()
    if (slug === undefined) throw new NotSeen('no slug is pinned for the first open question')
    const seen = await bench.probe.send({ method: 'POST', path: `/v1/proposals/${slug}/signing-data`, body: await bench.proposal() })
    expectStatus(seen, 200)
    expectThat(at(seen.json, 'question_id') === question_id, seen, 'the slug named another question than the pinned one')
    return slug
  }),
  rule('1-cors-explicit', '§1', 'read', 'browser origins need explicit CORS configuration', async ({ probe, stranger }) => {
    const origin = 'https://conformance.invalid'
    const seen = await probe.send({ method: 'GET', path: `/v1/proposals/eligibility/${stranger}`, headers: { origin } })
    const allowed = seen.headers.get('access-control-allow-origin')
    expectThat(
      allowed !== '*' && allowed !== origin,
      seen,
      `an origin that nobody configured was allowed (${allowed === '*' ? '*' : 'by name'})`,
    )
    return 'no such origin is allowed'
  }),
  rule('2.3-eligibility-fields', '§2.3', 'read', 'eligibility has canonical address and boolean eligible', async (bench) => {
    const seen = given(await eligibility(bench), 200)
    const { address } = expectShape(seen, z.object({ address: Address, eligible: z.boolean() }))
    expectThat(address === bench.stranger, seen, 'the answer is about another address')
    return 'address and eligible'
  }),
  rule('9-eligibility-version', '§9', 'read', 'eligibility carries the version', async (bench) => {
    expectShape(given(await eligibility(bench), 200), VersionObject)
    return 'version'
  }),
  rule('4.1.1-unknown-wallet', '§4.1 rule 1', 'read', 'an unknown wallet is answered 200 with eligible: false', async (bench) => {
    const seen = await eligibility(bench)
    expectStatus(seen, 200)
    expectThat(at(seen.json, 'eligible') !== true, seen, 'a random wallet is said to be eligible')
    return '200, not eligible'
  }),
  rule('4.1.1-eligible-wallet', '§4.1 rule 1', 'read', 'an allowlisted wallet is answered 200 with eligible: true', async (bench) => {
    const [wallet] = bench.wallets
    if (wallet === undefined) throw new NotSeen('no key of an eligible wallet is given')
    const seen = await eligibility(bench, wallet.address)
    expectStatus(seen, 200)
    expectThat(at(seen.json, 'eligible') === true, seen, `the wallet that was given as eligible is not (${wallet.address})`)
    return '200, eligible'
  }),
  rule('4.1.4-unknown-candidate', '§4.1 rule 4', 'read', 'an unknown candidate is 404', async (bench) => {
    const { question_id } = await bench.context()
    const path = `/v1/proposals/${question_id}/status/${bench.ports.random.uuid()}`
    return expectStatus(await bench.probe.send({ method: 'GET', path, wrong: 'a random candidate id' }), 404)
  }),
  rule('7-unknown-question', '§7', 'read', '404: unknown question', async (bench) => {
    const path = `/v1/proposals/${bench.stranger}${'0'.repeat(24)}/signing-data`
    return expectStatus(await bench.probe.send({ method: 'POST', path, body: await bench.proposal(), wrong: 'a random question id' }), 404)
  }),
  rule('7-unknown-route', '§7', 'read', '404: unknown route', async ({ probe }) =>
    expectStatus(await probe.send({ method: 'GET', path: '/v1/conformance-no-such-route' }), 404),
  ),
  rule('7-wrong-method', '§7', 'read', '405: wrong HTTP method', async ({ probe }) =>
    expectStatus(await probe.send({ method: 'GET', path: '/propose/batch', wrong: 'GET where POST is meant' }), 405),
  ),
]

/** Judged last, by everything that came. */
export const noticedRules: readonly Rule[] = [
  rule('1-no-cookies', '§1', 'read', 'the service does not use browser cookies', async ({ probe: { noticed } }) => {
    if (noticed.cookie !== undefined) throw new Fault(`sent ${noticed.cookie}; the answer set a cookie`)
    return `${noticed.answers} answers`
  }),
  rule('7-error-body', '§7', 'read', 'application errors have error.code and error.detail', async ({ probe: { noticed } }) => {
    if (noticed.badError !== undefined) throw new Fault(`${noticed.badError}, without error.code and error.detail`)
    return `${noticed.answers} answers`
  }),
]
