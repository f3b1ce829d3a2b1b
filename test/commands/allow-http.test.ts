/** contract §9, `allow-http`: plain http for the hosts it names, and for nobody else. */
import { requireSignerUrl } from '#io/external-signer'
import type { Fetch } from '#ports'
import { mayBePlain, plainHttpHosts } from '#protocol/plain-http'
import { eachHome, run } from '#support/cli'

const wallet = `0x${'ab'.repeat(20)}`
const home = eachHome()
let asked: string[] = []
beforeEach(() => {
  asked = []
})

const fetch: Fetch = async (url) => {
  asked.push(String(url))
  return Response.json({ version: 'v1', proposer: wallet, eligible: true })
}
const ask = (gateway: string, env: Record<string, string> = {}, ...flags: string[]) =>
  run(home.path, ['eligibility', wallet, '--gateway', gateway, '--json', ...flags], { env, fetch })

test.each([
  ['http://gateway.internal:8787', 'gateway.internal:8787'],
  ['http://gateway.internal:8787', 'gateway.internal'],
  ['http://GATEWAY.internal', 'other:1, Gateway.Internal:80'],
  ['http://10.0.0.5:8787', '10.0.0.4:8787 10.0.0.5:8787'],
  ['http://[fd00::5]:8787', '[fd00::5]:8787'],
])('%s is asked where the setting has %s', async (gateway, PROPOSER_ALLOW_HTTP) => {
  expect((await ask(gateway, { PROPOSER_ALLOW_HTTP })).code).toBe(0)
  expect(asked).toHaveLength(1)
})

test.each([
  ['http://gateway.internal:8787', undefined],
  ['http://gateway.internal:8788', 'gateway.internal:8787'],
  ['http://gateway.internal.evil.example', 'gateway.internal'],
  ['http://evil.example', 'gateway.internal'],
  ['http://evil.gateway.internal', 'gateway.internal'],
  ['http://gateway.internal@evil.example', 'gateway.internal'],
])('%s is not asked where the setting has %s', async (gateway, hosts) => {
  const ran = await ask(gateway, hosts === undefined ? {} : { PROPOSER_ALLOW_HTTP: hosts })
  expect(ran.code).toBe(2)
  expect(JSON.parse(ran.stderr).error).toMatchObject({ code: 'invalid_base_url' })
  expect(asked).toEqual([])
})

test('the hint says how a host is named, and a setting is kept with the profile', async () => {
  expect(JSON.parse((await ask('http://gateway.internal')).stderr).error.hint).toContain(
    '`proposer config set allow-http',
  )
  const set = (key: string, value: string) => run(home.path, ['config', 'set', key, value])
  expect((await set('gateway', 'http://gateway.internal:8787')).code).toBe(2)
  expect((await set('allow-http', 'gateway.internal:8787')).code).toBe(0)
  expect((await set('gateway', 'http://gateway.internal:8787')).code).toBe(0)
  expect((await run(home.path, `eligibility ${wallet}`, { fetch })).code).toBe(0)
  expect(asked).toHaveLength(1)
  const listed = await run(home.path, 'config get allow-http')
  expect(listed.stdout.trim()).toBe('gateway.internal:8787')
})

test.each(['*', 'http://gateway.internal', 'a b/c', 'gateway:', ','])(
  'a list with %j is refused: exit 2',
  async (PROPOSER_ALLOW_HTTP) => {
    expect(plainHttpHosts(PROPOSER_ALLOW_HTTP)).toBeUndefined()
    const ran = await ask('https://gateway.example', { PROPOSER_ALLOW_HTTP })
    expect(JSON.parse(ran.stderr).error).toMatchObject({ code: 'bad_value', exit_code: 2 })
    expect((await run(home.path, ['config', 'set', 'allow-http', PROPOSER_ALLOW_HTTP])).code).toBe(
      2,
    )
  },
)

test('loopback names need no setting', () => {
  for (const url of ['http://localhost', 'http://127.0.0.1:1', 'http://[::1]:1'])
    expect(mayBePlain(new URL(url))).toBe(true)
  expect(mayBePlain(new URL('http://localhost.evil.example'))).toBe(false)
})

test('--signer keeps to the same rule', () => {
  const signer = 'http://signer.internal:1'
  expect(() => requireSignerUrl(signer)).toThrow('must be https')
  expect(() => requireSignerUrl(signer, ['signer.internal:2'])).toThrow('must be https')
  expect(requireSignerUrl(signer, ['signer.internal:1'])).toBe(signer)
})
