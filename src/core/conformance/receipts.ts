/** Answers that prove themselves: an offer beyond the service spec, examined where a gateway makes it. */
import { readKeySet } from '../client/gateway/receipt-directory.js'
import { judgeReceipt, type ReceiptKey, receiptDirectory } from '../protocol/receipt.js'
import type { Bench } from './bench.js'
import { type ProbeCall, routes } from './probe.js'
import { expectStatus, expectThat, NotSeen, rule, rulesOf, type Seen } from './rule.js'

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
