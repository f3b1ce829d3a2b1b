/**
 * An oracle that is upgraded under a running gateway and its clients, on anvil (contract §9, domain
 * §10): nothing is signed, admitted or sent until somebody has pinned the new code.
 */
import { join } from 'node:path'
import { devAddresses } from '#devchain/dev-contracts'
import { argvOf } from '#support/argv'
import { upgradeOracle } from '#support/dev-acts'
import { workshop } from '#support/processes'
import { makeClient, questionOf, type ServeReady, untilExecuted } from '#support/proposing'

const shop = workshop()

const next = `0x${'c0de'.repeat(10)}` as const

async function practice() {
  const { dev, folder } = await shop.devChain(4)
  return { dev, path: join(folder, 'gateway.json') }
}

const reasonsOf = async (url: string) => {
  const answer = await fetch(`${url}/readyz`)
  return { status: answer.status, ...((await answer.json()) as { reasons: string[] }) }
}

describe('an oracle that is upgraded', () => {
  test('the gateway admits and sends nothing, and says why, until the operator has pinned it again', async () => {
    const { dev, path } = await practice()
    const pinned = dev.trust.implementations[devAddresses.oracle]?.implementation
    const server = shop.start(argvOf`serve --config ${path} --port 0 --json`)
    const { url, admin_url } = await server.line<ServeReady>()
    const client = await makeClient(shop, dev, { PROPOSER_GATEWAY: url })
    const submit = (n: number) => client.ask('submit', questionOf(dev, n).slug, '--outcome', 'p2')
    const before = await submit(0)
    await untilExecuted(client, String(before.answer.candidate_id))
    const bytes = await client.ask('sign', questionOf(dev, 1).slug, '--outcome', 'p2')
    expect(bytes.code).toBe(0)

    await upgradeOracle(dev.rpc_url, next)
    const changed = `the contract ${devAddresses.oracle} runs ${next} now, pinned is ${pinned}`
    await expect
      .poll(() => reasonsOf(url), { timeout: 10_000 })
      .toMatchObject({ status: 503, reasons: [expect.stringContaining(changed)] })
    const refused = await client.ask(
      'submit',
      questionOf(dev, 1).slug,
      '--outcome',
      'p2',
      '--timeout',
      '2',
    )
    expect(refused).toMatchObject({
      code: 75,
      answer: { detail: expect.stringContaining(changed) },
    })
    const metrics = await (await fetch(`${admin_url}/metrics`)).text()
    expect(metrics).toContain('\nproposer_changed_contracts 1\n')
    await expect
      .poll(() => server.stderr().split('"implementation.changed"').length - 1, { timeout: 5_000 })
      .toBeGreaterThan(0)
    const check = await shop.run(argvOf`serve --config ${path} --check --json`)
    expect([check.code, check.stdout]).toEqual([2, expect.stringContaining(changed)])

    const repin = argvOf`operator trust repin --config ${path} --json`
    const said = argvOf`--reason ${'version 3, looked at'} --by alice`
    const act = await shop.run([...repin, ...said])
    expect(JSON.parse(act.stdout)).toMatchObject({
      act: 'trust/repin',
      changed: [devAddresses.oracle],
      notes: [`${devAddresses.oracle} runs ${next}; pinned was ${pinned}`],
      by: 'alice',
      through: 'gateway',
    })
    await expect.poll(() => reasonsOf(url), { timeout: 10_000 }).toMatchObject({ status: 200 })
    const replayed = await client.ask('submit', questionOf(dev, 1).slug, '--outcome', 'p2')
    expect(replayed.code).toBe(0)
    await untilExecuted(client, String(replayed.answer.candidate_id))
    const status = await shop.run(argvOf`operator status --config ${path} --json`)
    expect(JSON.parse(status.stdout).chain).toMatchObject({
      changed_contracts: 0,
      oracles: [{ address: devAddresses.oracle, version: 3 }],
    })
    await server.stop('SIGTERM')
    const again = shop.start(argvOf`serve --config ${path} --port 0 --json`)
    expect((await reasonsOf((await again.line<ServeReady>()).url)).status).toBe(200)
    expect((await shop.run(argvOf`serve --config ${path} --check --json`)).stdout).not.toContain(
      changed,
    )
  })
})
