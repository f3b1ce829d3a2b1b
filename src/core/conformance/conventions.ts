/** §1, eligibility, and the errors of §7 that any caller can see. */
import { readKeySet } from '../client/gateway/receipt-directory.js'
import { judgeReceipt, type ReceiptKey, receiptDirectory } from '../protocol/receipt.js'
import type { Bench } from './bench.js'
import { type Noticed, type ProbeCall, routes } from './probe.js'
import {
  at,
  came,
  expectMembers,
  expectStatus,
  expectThat,
  expectVersion,
  Fault,
  fitsAddress,
  given,
  isFlag,
  malformed,
  NotSeen,
  notServed,
  type Run,
  rule,
  rulesOf,
  type Seen,
} from './rule.js'

const eligibility = ({ probe, stranger }: Bench, address: string = stranger): Promise<Seen> =>
  probe.send(routes.eligibility(address))
const upper = (hex: string) => `0x${hex.slice(2).toUpperCase()}`

async function refusesAll(
  { probe }: Bench,
  calls: readonly ProbeCall[],
  statuses: readonly number[],
): Promise<string> {
  let actual = ''
  for (const call of calls) actual = expectStatus(await probe.send(call), ...statuses)
  return actual
}

const contextIfAny = (bench: Bench) =>
  bench.context().catch((error: unknown) => {
    if (error instanceof NotSeen) return undefined
    throw error
  })

/** A malformed identifier names nothing on any route, although what it would mean is known. */
async function notTaken(bench: Bench, identifier: string, wrong: string): Promise<string> {
  const { probe } = bench
  await refusesAll(
    bench,
    [
      routes.prepare(identifier, await bench.proposal(), wrong),
      routes.submit(identifier, await bench.unsigned(), wrong),
    ],
    notServed,
  )
  const item = { ...(await bench.unsignedItem()), identifier }
  for (const call of [
    routes.batch('contexts', [identifier], wrong),
    routes.batch('proposals', [item], wrong),
  ]) {
    const seen = await probe.send(call)
    const status = seen.status === 200 ? at(seen.json, 'results', 0, 'status_code') : seen.status
    const isRefused = notServed.some((one) => one === status)
    const expected = `an item of ${String(status)}, expected ${notServed.join(' or ')}`
    expectThat(isRefused, seen, `got ${came(seen)} with ${expected}`)
  }
  return 'names nothing'
}

const noticed =
  (name: Exclude<keyof Noticed, 'answers'>, fault: (sent: string) => string): Run =>
  async ({ probe }) => {
    const found = probe.noticed[name]
    if (found !== undefined) throw new Fault(fault(found))
    return `${probe.noticed.answers} answers`
  }

export const conventionRules = rulesOf('read', {
  '1-trailing-slash': rule('paths are exact: no trailing slash', 2, async (bench) => {
    const wrong = 'a trailing slash'
    const single = routes.eligibility(`${bench.stranger}/`, wrong)
    const batch = routes.batch('statuses', [bench.ports.random.uuid()], wrong)
    const actual = await refusesAll(bench, [single], [404, 400])
    await refusesAll(bench, [{ ...batch, path: `${batch.path}/` }], [404, 400])
    return actual
  }),
  '1-percent-encoding': rule('paths are exact: no percent-encoded aliases', 2, async (bench) => {
    const { stranger } = bench
    const paths = [
      `/v1/proposals/%65ligibility/${stranger}`,
      `/v1/proposals/eligibility/%30${stranger.slice(1)}`,
    ]
    const wrong = 'an encoded letter'
    const calls = paths.map((path): ProbeCall => ({ method: 'GET', path, wrong }))
    await refusesAll(bench, calls, [404, 400, 422])
    return 'no alias'
  }),
  '1-path-case': rule('paths are exact: a capital is another path', 2, async (bench) => {
    const wrong = 'capitals in its path'
    const single = routes.eligibility(bench.stranger, wrong)
    const batch = routes.batch('statuses', [bench.ports.random.uuid()], wrong)
    const paths = { '/v1/proposals': '/V1/Proposals', '/propose/batch': '/propose/Batch' }
    const calls = [single, batch].map((call) => ({
      ...call,
      path: Object.entries(paths).reduce((path, [from, to]) => path.replace(from, to), call.path),
    }))
    await refusesAll(bench, calls, [404, 400])
    return 'no alias'
  }),
  '1-content-type': rule('request bodies have Content-Type: application/json', 4, async (bench) => {
    const statuses = [400, 415, 422]
    const context = await contextIfAny(bench)
    for (const [type, wrong] of [
      ['text/plain', 'Content-Type: text/plain'],
      ['', 'no Content-Type'],
    ] as const) {
      const headers = { 'content-type': type }
      const batch = routes.batch('statuses', [bench.ports.random.uuid()], wrong)
      await refusesAll(bench, [{ ...batch, headers }], statuses)
      // A body that nothing is wrong with but how it is labelled.
      if (context === undefined) continue
      const single = routes.prepare(context.question_id, await bench.proposal(), wrong)
      await refusesAll(bench, [{ ...single, headers }], statuses)
    }
    return context === undefined ? 'the batch routes' : 'all routes'
  }),
  '1-json-body': rule('request bodies are JSON', async (bench) => {
    const call = routes.batch('statuses', [], 'a truncated body')
    return refusesAll(bench, [{ ...call, body: '{"candidate_ids":[' }], malformed)
  }),
  '1-lowercase-address': rule('addresses are canonical lowercase', async (bench) => {
    // A random address has a letter but once in 10 million million.
    const call = routes.eligibility(upper(bench.stranger), 'an address in capitals')
    return refusesAll(bench, [call], notServed)
  }),
  '1-lowercase-question-id': rule('question ids are canonical lowercase', 4, async (bench) => {
    const { question_id } = await bench.context()
    return notTaken(bench, upper(question_id), 'a question id in capitals')
  }),
  '1-slug-characters': rule(
    'slugs contain only lowercase letters, digits and hyphens',
    8,
    async (bench) => {
      // A slug that means something, so that a gateway which puts it right is seen to.
      const { slug = 'some-slug' } = await bench.context()
      await notTaken(bench, slug.toUpperCase(), 'a slug in capitals')
      const underscored = slug.includes('-') ? slug.replaceAll('-', '_') : `${slug}_`
      return notTaken(bench, underscored, 'a slug with an underscore')
    },
  ),
  '1-slug-identifies': rule('identifier is a question id or a market slug', 2, async (bench) => {
    const { slug, question_id } = await bench.context()
    if (slug === undefined) throw new NotSeen('no slug is pinned for the first open question')
    const seen = await bench.probe.send(routes.prepare(slug, await bench.proposal()))
    expectThat(seen.status !== 404, seen, 'the slug is not known')
    const isNamed = seen.status !== 200 || at(seen.json, 'question_id') === question_id
    expectThat(isNamed, seen, 'the slug named another question than the pinned one')
    // The signature authorizes nothing, but the question must be found.
    const body = await bench.unsigned()
    const submitted = await bench.probe.send(routes.submit(slug, body, 'a random signature'))
    expectThat(submitted.status !== 404, submitted, 'the slug is not known')
    return slug
  }),
  '1-cors-explicit': rule(
    'browser origins need explicit CORS configuration',
    2,
    async ({ probe, stranger }) => {
      const origin = 'https://conformance.invalid'
      const headers = {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'content-type',
      }
      for (const call of [
        { ...routes.eligibility(stranger), headers: { origin } },
        { method: 'OPTIONS', path: '/propose/batch', headers } as const,
      ]) {
        const seen = await probe.send(call)
        const allowed = seen.headers.get('access-control-allow-origin')
        const how = allowed === '*' ? '*' : 'by name'
        const isOpen = allowed === '*' || allowed === origin
        expectThat(!isOpen, seen, `an origin that is not configured was allowed (${how})`)
      }
      return 'no such origin is allowed'
    },
  ),
  '2.3-eligibility-fields': rule(
    'eligibility has canonical address and boolean eligible',
    async (bench) => {
      const seen = given(await eligibility(bench), 200)
      expectMembers(seen, { address: fitsAddress, eligible: isFlag })
      const isSame = at(seen.json, 'address') === bench.stranger
      expectThat(isSame, seen, 'the answer is about another address')
      return 'address and eligible'
    },
  ),
  '9-eligibility-version': rule('eligibility carries the version', async (bench) =>
    expectVersion(given(await eligibility(bench), 200)),
  ),
  '4.1.1-unknown-wallet': rule(
    'an unknown wallet is answered 200 with eligible: false',
    async (bench) => {
      const seen = await eligibility(bench)
      expectStatus(seen, 200)
      expectThat(at(seen.json, 'eligible') !== true, seen, 'a random wallet is said to be eligible')
      return '200, not eligible'
    },
  ),
  '4.1.1-eligible-wallet': rule(
    'an allowlisted wallet is answered 200 with eligible: true',
    async (bench) => {
      const [wallet] = bench.wallets
      if (wallet === undefined) throw new NotSeen('no key of an eligible wallet was given')
      const seen = await eligibility(bench, wallet.address)
      expectStatus(seen, 200)
      const fault = `the wallet that was given as eligible is not (${wallet.address})`
      expectThat(at(seen.json, 'eligible') === true, seen, fault)
      return '200, eligible'
    },
  ),
  '7-unknown-question': rule('404: unknown question', 2, async (bench) => {
    const unknown = `${bench.stranger}${'0'.repeat(24)}`
    const wrong = 'a random question id'
    const prepare = routes.prepare(unknown, await bench.proposal(), wrong)
    await refusesAll(bench, [prepare], [404])
    // Whether wallet or question is examined first is left open.
    const submit = routes.submit(unknown, await bench.unsigned(), wrong)
    return refusesAll(bench, [submit], [404, 403])
  }),
  '7-unknown-route': rule('404: unknown route', async (bench) =>
    refusesAll(bench, [{ method: 'GET', path: '/v1/conformance-no-such-route' }], [404]),
  ),
  '7-wrong-method': rule('405: wrong HTTP method', 2, async (bench) => {
    const calls = [
      { method: 'GET', path: '/propose/batch' },
      { method: 'POST', path: `/v1/proposals/eligibility/${bench.stranger}` },
    ] as const
    const wrong = (method: string) => `${method}, which the route does not take`
    await refusesAll(
      bench,
      calls.map((call) => ({ ...call, wrong: wrong(call.method) })),
      [405],
    )
    return '405'
  }),
})

export const closingRules = rulesOf('read', {
  '1-no-cookies': rule(
    'the service does not use browser cookies',
    noticed('cookie', (sent) => `sent ${sent}; the answer set a cookie`),
  ),
  '2.6-never-returned': rule(
    'signatures are never returned, nor shown in errors',
    0,
    noticed('signature', (sent) => `sent ${sent}; the answer holds the signature that was sent`),
  ),
  '7-error-body': rule(
    'application errors have error.code and error.detail',
    noticed('badError', (actual) => `${actual}, without error.code and error.detail`),
  ),
})

/** The listed keys. NotSeen where the gateway signs nothing: it need not. */
async function listed({ probe }: Bench): Promise<readonly ReceiptKey[]> {
  const seen = await probe.send({ method: 'GET', path: receiptDirectory, items: 0 })
  if (seen.status !== 200) throw new NotSeen('this gateway lists no receipt keys')
  const keys = readKeySet(seen.json)
  expectThat(
    keys !== undefined && keys.length > 0,
    seen,
    'the answer is no JWK set with Ed25519 keys',
  )
  return keys ?? []
}

async function answered({ probe, stranger }: Bench) {
  const call: ProbeCall = routes.eligibility(stranger)
  return { call, seen: await probe.send(call) }
}

function proves(bench: Bench, keys: readonly ReceiptKey[], call: ProbeCall, seen: Seen): void {
  const header = (name: string) => seen.headers.get(name) ?? undefined
  const verdict = judgeReceipt(
    { hash: bench.ports.hash, ed25519: bench.ed25519 },
    {
      ...{ method: call.method, path: call.path, status: seen.status, body: seen.text },
      ...{ contentDigest: header('content-digest'), signature: header('signature') },
      signatureInput: header('signature-input'),
    },
    keys,
    Number(bench.nowSeconds()),
  )
  const why = verdict.result === 'proven' ? '' : verdict.detail
  expectThat(verdict.result === 'proven', seen, `its answer is not proven by a listed key: ${why}`)
}

export const receiptRules = rulesOf('read', {
  'receipt-keys': rule(
    'a gateway that signs its answers lists its keys as a JWK set',
    0,
    async (bench) => {
      return `200, ${(await listed(bench)).length} listed`
    },
  ),
  'receipt-signature': rule(
    'a signed answer proves itself by a listed key (RFC 9421)',
    async (bench) => {
      const keys = await listed(bench)
      const { call, seen } = await answered(bench)
      proves(bench, keys, call, seen)
      return `${seen.status}, proven`
    },
  ),
  'receipt-digest': rule(
    'where answers are signed, a wrong Content-Digest is 400 (RFC 9530)',
    async (bench) => {
      await listed(bench)
      const wrong = 'the Content-Digest of another body'
      const call = routes.batch('statuses', ['00000000-0000-4000-8000-000000000000'], wrong)
      const headers = { 'content-digest': `sha-256=:${'A'.repeat(43)}=:` }
      return expectStatus(await bench.probe.send({ ...call, headers }), 400)
    },
  ),
})
