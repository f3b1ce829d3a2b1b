/**
 * Rules of §1 (conventions of all routes), §2.3 and §4.1 rule 1 (eligibility), and the errors of §7
 * that any caller can see.
 */
import type { Bench } from './bench.js'
import {
  at,
  came,
  expectStatus,
  expectThat,
  Fault,
  given,
  malformed,
  NotSeen,
  notServed,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import { expectMembers, expectVersion, isAddress } from './shapes.js'

const eligibility = (bench: Bench, address: string = bench.stranger) =>
  bench.probe.send({ method: 'GET', path: `/v1/proposals/eligibility/${address}` })
const upper = (hex: string) => `0x${hex.slice(2).toUpperCase()}`

/** What is asked without any question. */
export const conventionRules: readonly Rule[] = [
  rule(
    '1-trailing-slash',
    '§1',
    'read',
    'paths are exact: no trailing slash',
    async ({ probe, ports, stranger }) => {
      const wrong = 'a trailing slash'
      const body = { candidate_ids: [ports.random.uuid()] }
      const single = expectStatus(
        await probe.send({ method: 'GET', path: `/v1/proposals/eligibility/${stranger}/`, wrong }),
        404,
        400,
      )
      expectStatus(
        await probe.send({ method: 'POST', path: '/propose/batch/status/', body, wrong }),
        404,
        400,
      )
      return single
    },
    2,
  ),
  rule(
    '1-percent-encoding',
    '§1',
    'read',
    'paths are exact: no percent-encoded aliases',
    async ({ probe, stranger }) => {
      const paths = [
        `/v1/proposals/%65ligibility/${stranger}`,
        `/v1/proposals/eligibility/%30${stranger.slice(1)}`,
      ]
      for (const path of paths)
        expectStatus(
          await probe.send({ method: 'GET', path, wrong: 'an encoded letter' }),
          404,
          400,
          422,
        )
      return 'no alias'
    },
    2,
  ),
  rule(
    '1-content-type',
    '§1',
    'read',
    'request bodies have Content-Type: application/json',
    async (bench) => {
      const { probe, ports } = bench
      const sent = {
        method: 'POST',
        headers: { 'content-type': 'text/plain' },
        wrong: 'Content-Type: text/plain',
      } as const
      const body = { candidate_ids: [ports.random.uuid()] }
      expectStatus(
        await probe.send({ ...sent, path: '/propose/batch/status', body }),
        400,
        415,
        422,
      )
      // A body that nothing is wrong with but how it is labelled.
      const path = await signingDataPath(bench).catch(() => undefined)
      if (path === undefined) return 'the batch routes'
      return expectStatus(
        await probe.send({ ...sent, path, body: await bench.proposal() }),
        400,
        415,
        422,
      )
    },
    2,
  ),
  rule('1-json-body', '§1', 'read', 'request bodies are JSON', async ({ probe }) =>
    expectStatus(
      await probe.send({
        method: 'POST',
        path: '/propose/batch/status',
        body: '{"candidate_ids":[',
        wrong: 'a body cut short',
      }),
      ...malformed,
    ),
  ),
  rule(
    '1-lowercase-address',
    '§1',
    'read',
    'addresses are canonical lowercase',
    async ({ probe, stranger }) => {
      // A random address has a letter but once in 10 million million.
      const path = `/v1/proposals/eligibility/${upper(stranger)}`
      return expectStatus(
        await probe.send({ method: 'GET', path, wrong: 'an address in capitals' }),
        ...notServed,
      )
    },
  ),
  rule(
    '1-lowercase-question-id',
    '§1',
    'read',
    'question ids are canonical lowercase',
    async (bench) => {
      const { question_id } = await bench.context()
      return notTaken(bench, upper(question_id), 'a question id in capitals')
    },
    4,
  ),
  rule(
    '1-slug-characters',
    '§1',
    'read',
    'slugs contain only lowercase letters, digits and hyphens',
    async (bench) => {
      // A slug that means something, so that a gateway which puts it right is seen to.
      const { slug = 'some-slug' } = await bench.context()
      await notTaken(bench, slug.toUpperCase(), 'a slug in capitals')
      return notTaken(
        bench,
        slug.includes('-') ? slug.replaceAll('-', '_') : `${slug}_`,
        'a slug with an underscore',
      )
    },
    8,
  ),
  rule(
    '1-slug-identifies',
    '§1',
    'read',
    'identifier is a question id or a market slug',
    async (bench) => {
      const { slug, question_id } = await bench.context()
      if (slug === undefined) throw new NotSeen('no slug is pinned for the first open question')
      const path = `/v1/proposals/${slug}`
      const seen = await bench.probe.send({
        method: 'POST',
        path: `${path}/signing-data`,
        body: await bench.proposal(),
      })
      if (seen.status === 200)
        expectThat(
          at(seen.json, 'question_id') === question_id,
          seen,
          'the slug named another question than the pinned one',
        )
      else expectThat(seen.status !== 404, seen, 'the slug is not known')
      // The signature authorizes nothing, but the question must be found.
      const submitted = await bench.probe.send({
        method: 'POST',
        path,
        body: await bench.unsigned(),
        wrong: 'a random signature',
      })
      expectThat(submitted.status !== 404, submitted, 'the slug is not known')
      return slug
    },
    2,
  ),
  rule(
    '1-cors-explicit',
    '§1',
    'read',
    'browser origins need explicit CORS configuration',
    async ({ probe, stranger }) => {
      const path = `/v1/proposals/eligibility/${stranger}`
      const origin = 'https://conformance.invalid'
      const preflight = {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'content-type',
      }
      for (const seen of [
        await probe.send({ method: 'GET', path, headers: { origin } }),
        await probe.send({ method: 'OPTIONS', path: '/propose/batch', headers: preflight }),
      ]) {
        const allowed = seen.headers.get('access-control-allow-origin')
        const told = allowed === '*' ? '*' : 'by name'
        expectThat(
          allowed !== '*' && allowed !== origin,
          seen,
          `an origin that nobody configured was allowed (${told})`,
        )
      }
      return 'no such origin is allowed'
    },
    2,
  ),
  rule(
    '2.3-eligibility-fields',
    '§2.3',
    'read',
    'eligibility has canonical address and boolean eligible',
    async (bench) => {
      const seen = given(await eligibility(bench), 200)
      expectMembers(seen, { address: isAddress, eligible: (told) => typeof told === 'boolean' })
      expectThat(
        at(seen.json, 'address') === bench.stranger,
        seen,
        'the answer is about another address',
      )
      return 'address and eligible'
    },
  ),
  rule('9-eligibility-version', '§9', 'read', 'eligibility carries the version', async (bench) =>
    expectVersion(given(await eligibility(bench), 200)),
  ),
  rule(
    '4.1.1-unknown-wallet',
    '§4.1 rule 1',
    'read',
    'an unknown wallet is answered 200 with eligible: false',
    async (bench) => {
      const seen = await eligibility(bench)
      expectStatus(seen, 200)
      expectThat(at(seen.json, 'eligible') !== true, seen, 'a random wallet is said to be eligible')
      return '200, not eligible'
    },
  ),
  rule(
    '4.1.1-eligible-wallet',
    '§4.1 rule 1',
    'read',
    'an allowlisted wallet is answered 200 with eligible: true',
    async (bench) => {
      const [wallet] = bench.wallets
      if (wallet === undefined) throw new NotSeen('no key of an eligible wallet is given')
      const seen = await eligibility(bench, wallet.address)
      expectStatus(seen, 200)
      expectThat(
        at(seen.json, 'eligible') === true,
        seen,
        `the wallet that was given as eligible is not (${wallet.address})`,
      )
      return '200, eligible'
    },
  ),
  rule(
    '7-unknown-question',
    '§7',
    'read',
    '404: unknown question',
    async (bench) => {
      const path = `/v1/proposals/${bench.stranger}${'0'.repeat(24)}`
      const wrong = 'a random question id'
      expectStatus(
        await bench.probe.send({
          method: 'POST',
          path: `${path}/signing-data`,
          body: await bench.proposal(),
          wrong,
        }),
        404,
      )
      // Whether wallet or question is looked at first is left open.
      return expectStatus(
        await bench.probe.send({ method: 'POST', path, body: await bench.unsigned(), wrong }),
        404,
        403,
      )
    },
    2,
  ),
  rule('7-unknown-route', '§7', 'read', '404: unknown route', async ({ probe }) =>
    expectStatus(await probe.send({ method: 'GET', path: '/v1/conformance-no-such-route' }), 404),
  ),
  rule(
    '7-wrong-method',
    '§7',
    'read',
    '405: wrong HTTP method',
    async (bench) => {
      const { probe, stranger } = bench
      const calls: readonly (readonly ['GET' | 'POST', string])[] = [
        ['GET', '/propose/batch'],
        ['POST', `/v1/proposals/eligibility/${stranger}`],
      ]
      for (const [method, path] of calls)
        expectStatus(
          await probe.send({ method, path, wrong: `${method}, which the route does not take` }),
          405,
        )
      return '405'
    },
    2,
  ),
]

const signingDataPath = async (bench: Bench) =>
  `/v1/proposals/${(await bench.context()).question_id}/signing-data`

/** A malformed identifier names nothing on any route, although what it would mean is known. */
async function notTaken(bench: Bench, identifier: string, wrong: string): Promise<string> {
  const { probe } = bench
  const send = (path: string, body: unknown): Promise<Seen> =>
    probe.send({ method: 'POST', path, body, wrong })
  expectStatus(
    await send(`/v1/proposals/${identifier}/signing-data`, await bench.proposal()),
    ...notServed,
  )
  const submitted = await send(`/v1/proposals/${identifier}`, await bench.unsigned())
  expectStatus(submitted, ...notServed)
  for (const seen of [
    await send('/propose/batch/signing-data', { identifiers: [identifier] }),
    await send('/propose/batch', { proposals: [{ ...(await bench.unsignedItem()), identifier }] }),
  ]) {
    const status = seen.status === 200 ? at(seen.json, 'results', 0, 'status_code') : seen.status
    expectThat(
      notServed.some((one) => one === status),
      seen,
      `came ${came(seen)} with an item of ${String(status)}, not ${notServed.join(' or ')}`,
    )
  }
  return 'names nothing'
}

/** Judged last, by everything that came. */
export const noticedRules: readonly Rule[] = [
  rule(
    '1-no-cookies',
    '§1',
    'read',
    'the service does not use browser cookies',
    async ({ probe: { noticed } }) => {
      if (noticed.cookie !== undefined)
        throw new Fault(`sent ${noticed.cookie}; the answer set a cookie`)
      return `${noticed.answers} answers`
    },
  ),
  rule(
    '2.6-never-returned',
    '§2.6',
    'read',
    'signatures are never returned, nor shown in errors',
    async ({ probe: { noticed } }) => {
      if (noticed.signature !== undefined)
        throw new Fault(`sent ${noticed.signature}; the answer holds the signature that was sent`)
      return `${noticed.answers} answers`
    },
    0,
  ),
  rule(
    '7-error-body',
    '§7',
    'read',
    'application errors have error.code and error.detail',
    async ({ probe: { noticed } }) => {
      if (noticed.badError !== undefined)
        throw new Fault(`${noticed.badError}, without error.code and error.detail`)
      return `${noticed.answers} answers`
    },
  ),
]
