import type { DevDescription } from '#devchain/dev-chain'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'

const shop = workshop()
afterAll(() => shop.clean())

interface Ready {
  readonly url: string
  readonly dev: DevDescription
}
interface Told {
  readonly authorizations: readonly {
    readonly position: Record<string, unknown> | null
    readonly next: {
      readonly action: string
      readonly text: string
      readonly command: string | null
    }
  }[]
}

test('contract §6, §9, domain §10: reconcile tells of a dispute of an executed proposal: by whom, what is at stake, what to do', async () => {
  const folder = await shop.folder()
  const { url, dev } = await shop.start(argvOf`serve --dev --port 0 --json --no-log`).line<Ready>()
  const account = dev.accounts.find(({ role }) => role === 'proposer')
  const disputer = dev.accounts.find(({ role }) => role === 'disputer')
  const slug = dev.questions[0]?.slug ?? ''
  const trust = await shop.runHere(
    argvOf`trust init --from - --home ${folder}`,
    {},
    JSON.stringify(dev),
  )
  expect(trust.code).toBe(0)
  const env = {
    PROPOSER_HOME: folder,
    PROPOSER_GATEWAY: url,
    PROPOSER_PRIVATE_KEY: account?.private_key ?? '',
  }
  const node = ['--rpc-url', dev.rpc_url]
  const propose = async (): Promise<void> => {
    for (;;) {
      const { code, stderr } = await shop.runHere(
        argvOf`submit ${slug} --outcome p2 --wait --json ${node}`,
        env,
      )
      // The gateway reads a new round with its next block, and refuses until then.
      if (code === 75 || (code === 5 && stderr.includes('"request_not_open"'))) continue
      expect([code, stderr]).toEqual([0, expect.not.stringContaining('"error"')])
      return
    }
  }
  const dispute = async (): Promise<void> => {
    expect((await shop.runHere(['devchain', 'dispute', slug, ...node], {})).code).toBe(0)
  }
  const reconcile = async (...flags: string[]) => {
    const { code, stdout, stderr } = await shop.runHere(
      ['reconcile', slug, '--json', ...flags],
      env,
    )
    expect([code, stderr]).toEqual([0, expect.not.stringContaining('"error"')])
    return (JSON.parse(stdout) as Told).authorizations.at(-1)
  }

  await propose()
  expect(await reconcile(...node)).toMatchObject({
    position: {
      state: 'open',
      result: null,
      disputed_by: null,
      new_round: false,
      bond: '500000000',
      final_fee: '250000000',
    },
    next: { action: 'none', text: expect.stringMatching(/it can be disputed until \d{4}-/) },
  })

  await dispute()
  const first = await reconcile(...node)
  expect(first?.position).toMatchObject({
    state: 'disputed',
    disputed_by: disputer?.address,
    new_round: true,
  })
  expect(first?.next).toMatchObject({ action: 'sign_anew', command: `proposer context ${slug}` })
  expect(first?.next.text).toContain(`disputed by ${disputer?.address}`)
  expect(first?.next.text).toContain('750 USDC.e')
  expect(first?.next.text).toContain('A new round is open')
  const people = (await shop.runHere(['reconcile', slug, ...node], env)).stdout.replace(/\s+/g, ' ')
  expect(people).toContain('position disputed')
  expect(people).not.toContain('nothing is left to do')
  expect(people).toMatch(/^\S+ closed.*disputed by/)
  const read = await shop.runHere(argvOf`positions --json --fail-on-dispute ${node}`, env)
  expect([read.code, JSON.parse(read.stderr).error.code]).toEqual([7, 'proposal_disputed'])
  const said = /^1 of your executed proposals is disputed, 1 with a new round: proposer positions/
  expect((await shop.runHere(['journal', 'list'], env)).stdout).toMatch(said)
  expect((await shop.runHere(['funds', ...node], env)).stdout).toMatch(said)
  expect((await shop.runHere([], env)).stdout.replace(/\s+/g, ' ')).toContain(
    '1 of your executed proposals is disputed, 1 with a new round: proposer positions --open',
  )
  const listed = JSON.parse((await shop.runHere(argvOf`journal list --json`, env)).stdout)
  const known = { state: 'disputed', disputed_by: disputer?.address, new_round: true }
  expect(listed.authorizations[0].position).toMatchObject(known)
  const exported = await shop.runHere(['journal', 'export'], env)
  expect(JSON.parse(exported.stdout)).toMatchObject({
    ...{ position: 'disputed', result: null, disputed_by: disputer?.address, payout: null },
    position_as_of: expect.any(String),
  })
  const blind = await reconcile()
  expect(blind).toMatchObject({
    position: null,
    next: { action: 'none', text: expect.stringContaining('give --rpc-url') },
  })

  await propose()
  await dispute()
  expect(await reconcile(...node)).toMatchObject({
    position: { state: 'voting', disputed_by: disputer?.address, new_round: false },
    next: { action: 'wait', text: expect.stringContaining('No new round is open') },
  })
})
