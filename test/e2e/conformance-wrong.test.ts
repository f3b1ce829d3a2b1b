/**
 * What `conformance` signs, sends and asks before it does, against gateways in memory; the table of
 * wrong ones is in test/contract.
 */
import { type BenchParts, type Bet, createBench, unexecutableRaw } from '#conformance/bench'
import { rules, runRules } from '#conformance/run'
import { UsageError } from '#protocol/errors'
import { lyingAboutBonds } from '#support/wrong-gateway/between'
import { faultThat } from '#support/wrong-gateway/faults'
import { openWrongWorld } from '#support/wrong-gateway/world'

const signing = { admit: true, execute: false, overrun: false } as const

describe('contract §6: conformance', () => {
  test('every check passes on our own gateway, none is left out', async () => {
    const world = await openWrongWorld(undefined, {}, { receipts: true })
    const checks = await world.run()
    expect(checks.filter(({ result }) => result !== 'pass')).toEqual([])
    expect(checks.map(({ id }) => id)).toEqual(rules.map(({ id }) => id))
    // What was signed is journaled with its attempts (R4), each under a nonce of its own (R6), and
    // no signature is in a report (R5).
    const { authorizations } = await world.parts.journal.load()
    expect(authorizations.length).toBeGreaterThan(5)
    expect(authorizations.filter(({ attempts }) => attempts.length === 0)).toEqual([])
    expect(new Set(authorizations.map(({ signed }) => signed.terms.nonce)).size).toBe(
      authorizations.length,
    )
    const told = JSON.stringify(checks)
    expect(
      authorizations.filter(({ signed }) => told.includes(JSON.parse(signed.body).signature)),
    ).toEqual([])
  })

  test('R8: an authorization is signed beside an open one of its question and wallet only where it names that one', async () => {
    const { parts, run } = await openWrongWorld()
    await run()
    const { authorizations } = await parts.journal.load()
    const seen = new Map<string, (typeof authorizations)[number]>()
    for (const one of authorizations) {
      const key = `${one.signed.questionId} ${one.signed.terms.proposer}`
      const before = seen.get(key)
      const isClosed = before?.attempts.some(({ end }) => end?.class === 'refused') ?? true
      expect(isClosed || one.signed.supersedes === before?.id).toBe(true)
      seen.set(key, one)
    }
    expect(seen.size).toBeGreaterThan(3)
  })

  test('contract §6: without --allow-execution everything that is signed is for more than any wallet holds, and nothing executes', async () => {
    const { parts, run, ledger } = await openWrongWorld(
      undefined,
      { execute: false, overrun: false },
      { receipts: true },
    )
    const checks = await run()
    expect(checks.filter(({ result }) => result === 'fail')).toEqual([])
    const skipped = checks.filter(({ result }) => result === 'skip').map(({ id }) => id)
    // The first payload may fail in validation before its rival comes.
    expect(skipped.filter((id) => !/-conflict$/.test(id))).toEqual(
      rules.filter(({ tier }) => tier === 'execute' || tier === 'overrun').map(({ id }) => id),
    )
    const { authorizations } = await parts.journal.load()
    const payable = authorizations.filter(
      ({ signed }) => BigInt(signed.terms.amount) < unexecutableRaw,
    )
    expect(
      payable.map(({ signed, attempts }) => [signed.terms.amount, attempts.at(-1)?.end?.status]),
    ).toEqual([
      ['1', 422],
      ['1', 422],
      ['1', 422],
      ['1', 422],
    ])
    const held = await Promise.all(
      authorizations.map(({ candidateId }) =>
        candidateId === undefined ? undefined : ledger.get(candidateId),
      ),
    )
    expect(held.filter((candidate) => candidate?.progress.status === 'executed')).toEqual([])
    expect(ledger.slots()).toEqual([])
  })

  test.each<readonly [string, (bondRaw: bigint) => bigint, BenchParts['may']]>([
    ['one unit more', (bond) => bond + 1n, signing],
    ['a million tokens', () => 1_000_000_000_001n, signing],
    ['one unit less', (bond) => bond - 1n, signing],
    ['two units', () => 2n, signing],
    ['one unit', () => 1n, signing],
    ['none', () => 0n, signing],
    ['just below what nobody has', () => unexecutableRaw - 1n, signing],
    ['more than anybody has', () => unexecutableRaw + 1n, signing],
    ['the largest number there is', () => 2n ** 256n - 1n, signing],
  ])(
    'R21: a gateway that tells a bond of %s gets nothing signed but one unit, or more than any wallet holds',
    async (_name, lie, may) => {
      const world = await openWrongWorld(lyingAboutBonds(lie), may)
      const checks = await world.run()
      const { authorizations } = await world.parts.journal.load()
      const amounts = [...new Set(authorizations.map(({ signed }) => signed.terms.amount))]
      expect(
        amounts.filter((amount) => amount !== '1' && BigInt(amount) < unexecutableRaw),
      ).toEqual([])
      expect(world.ledger.slots()).toEqual([])
      expect(
        checks.filter(({ id, result }) => /bond-minimum|bond-code/.test(id) && result === 'fail'),
      ).toEqual([])
    },
  )

  test.each([
    ['2.1-bond-minimum', 'admits less than the bond'],
    ['7-bond-code', 'admits less than the bond'],
    ['2.7-bond-minimum', 'admits an item below the bond'],
    ['7-batch-bond-code', 'admits an item below the bond'],
  ])('§2.1: %s fails at a gateway that %s, and says how to take it back', async (id, does) => {
    const world = await openWrongWorld(faultThat(does).make, signing)
    const [check] = await world.run(rules.filter((one) => one.id === id))
    const [authorization] = (await world.parts.journal.load()).authorizations
    expect(check).toMatchObject({
      id,
      result: 'fail',
      detail: expect.stringContaining(`proposer revoke ${authorization?.id}`),
    })
    expect(authorization?.signed.terms.amount).toBe('1')
  })

  test('contract §6: --max-amount caps whatever is signed that a wallet could pay', async () => {
    const { parts } = await openWrongWorld()
    const bench = await createBench({ ...parts, maxAmountRaw: 10n })
    const [wallet] = parts.wallets
    if (wallet === undefined) throw new Error('there is no wallet')
    const pair = { wallet, context: bench.context() }
    await expect(bench.sign(pair, { amountRaw: 11n })).rejects.toThrow('--max-amount')
    const careful = await createBench({ ...parts, may: { ...parts.may, execute: false } })
    await expect(careful.sign(pair, { amountRaw: 2n })).rejects.toThrow('--allow-execution')
    expect((await parts.journal.load()).authorizations).toEqual([])
    expect((await bench.sign(pair, { amountRaw: 10n })).signed.terms.amount).toBe('10')
  })

  test('contract §6: what executes is shown before it is signed, and not signed where that is declined', async () => {
    const { parts: all, ledger } = await openWrongWorld()
    const { chain: _chain, ...parts } = all
    const shown: Bet[] = []
    const declined: BenchParts = {
      ...parts,
      confirmBet: async (bet) => {
        shown.push(bet)
        throw new UsageError('declined', 'declined', { hint: 'answer y' })
      },
    }
    const { checks } = await runRules(
      declined,
      rules.filter(({ tier }) => tier === 'execute'),
      () => undefined,
    )
    expect(new Set(checks.map(({ result, detail }) => `${result} ${detail}`))).toEqual(
      new Set(['skip declined']),
    )
    const last = (await createBench(parts)).usable.at(-1)
    expect(shown).toEqual([
      {
        context: last,
        proposer: parts.wallets[1]?.address,
        outcome: 'p2',
        label: 'Yes',
        amountRaw: BigInt(last?.bond.required_bond ?? ''),
        bondIsConfirmed: false,
      },
    ])
    expect((await parts.journal.load()).authorizations).toEqual([])
    expect(ledger.slots()).toEqual([])
  })

  test('contract §6: with --read-only nothing is signed and nothing admitted', async () => {
    const { parts, run, ledger } = await openWrongWorld(undefined, {
      admit: false,
      execute: false,
      overrun: false,
    })
    const checks = await run()
    expect(checks.filter(({ result }) => result === 'fail')).toEqual([])
    expect(checks.filter(({ result }) => result === 'pass').length).toBeGreaterThan(70)
    expect((await parts.journal.load()).authorizations).toEqual([])
    expect(ledger.active()).toEqual([])
  })
})
