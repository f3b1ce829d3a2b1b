import { rulesNamed } from '#conformance/run'
import { receiptDirectory } from '#protocol/receipt'
import { openWrongWorld, type Wrong } from '#support/wrong-gateway/world'

const results = async (wrong: Wrong) => {
  const world = await openWrongWorld(() => wrong, {}, { receipts: true })
  return (await world.run(rulesNamed('receipt'))).map(({ result }) => result)
}
const same: Wrong = (request, next) => next(request)
const altered =
  (change: (headers: Headers, request: Request) => void): Wrong =>
  async (request, next) => {
    const response = await next(request)
    const headers = new Headers(response.headers)
    change(headers, request)
    return new Response(await response.text(), { status: response.status, headers })
  }
const directory =
  (body: string, status = 200): Wrong =>
  async (request, next) =>
    request.url.endsWith(receiptDirectory)
      ? new Response(body, { status, headers: { 'content-type': 'application/json' } })
      : next(request)

test('contract §9: our gateway keeps the three rules', async () => {
  expect(await results(same)).toEqual(['pass', 'pass', 'pass'])
})

test('contract §9: a gateway without receipts is not examined', async () => {
  const none = directory('{"error":{"code":"route_not_found","detail":"none"}}', 404)
  expect(await results(none)).toEqual(['skip', 'skip', 'skip'])
})

test.each<[string, Wrong, readonly string[]]>([
  ['lists no JWK set', directory('{"keys":"none"}'), ['fail', 'fail', 'fail']],
  [
    'lists another key',
    directory(
      '{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"other","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}',
    ),
    ['pass', 'fail', 'pass'],
  ],
  ['signs nothing', altered((headers) => headers.delete('signature')), ['pass', 'fail', 'pass']],
  [
    'signs another body',
    altered((headers) => headers.set('content-digest', `sha-256=:${'A'.repeat(43)}=:`)),
    ['pass', 'fail', 'pass'],
  ],
  [
    'takes any digest',
    (request, next) => {
      const headers = new Headers(request.headers)
      headers.delete('content-digest')
      return next(new Request(request, { headers }))
    },
    ['pass', 'pass', 'fail'],
  ],
])('contract §9: a gateway that %s is told', async (_name, wrong, expected) => {
  expect(await results(wrong)).toEqual(expected)
})
