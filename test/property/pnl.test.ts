import fc from 'fast-check'
import { newFold } from '#client/journal/journal'
import { readPnl, readPositions } from '#client/positions/positions'
import type { Address } from '#protocol/schema'
import { sha256 } from '#support/client-world'
import { ask, createFakeChain, endow, questionText } from '#support/fake-chain'
import {
  block,
  claim,
  contest,
  type FakeRound,
  roundOf,
  settle,
  stakeOn,
  transfer,
} from '#support/fake-stakes'
import { fakeTrust as trust } from '#support/fake-world'
import { SimFiles } from '#support/sim-files'

const wallets: readonly [Address, Address] = [`0x${'a1'.repeat(20)}`, `0x${'b2'.repeat(20)}`]
const disputer: Address = `0x${'d1'.repeat(20)}`
const begun = 10n ** 13n

const act = fc.record({
  kind: fc.constantFrom(
    'stake',
    'stake',
    'contest',
    'settle',
    'settle',
    'block',
    'claim',
    'transfer',
    'look',
  ),
  by: fc.integer({ min: 0, max: 1 }),
  at: fc.nat(),
  flag: fc.boolean(),
  raw: fc.integer({ min: 0, max: 9_999_999 }),
})

test('contract §9: net less locked and deferred, plus other transfers, is what the balance changed', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 5, maxLength: 40 }), async (acts) => {
      const chain = createFakeChain()
      for (const one of [...wallets, disputer]) endow(chain, one, begun)
      chain.mine()
      const files = new SimFiles().process()
      const parts = { chain, trust, view: newFold().view(), files, hash: sha256, home: '/home' }
      const given = new Map<Address, bigint>(wallets.map((one) => [one, 0n]))
      const live: (FakeRound & { contested: boolean })[] = []
      let asked = 0
      for (const { kind, by, at, flag, raw } of acts) {
        const wallet = wallets[by as 0 | 1]
        const round = live[at % Math.max(1, live.length)]
        if (kind === 'stake') {
          const id = ask(chain, questionText(`Question ${asked++}`))
          chain.mine()
          stakeOn(chain, id, wallet, 10n ** 18n, BigInt(raw))
          chain.mine()
          live.push({ ...roundOf(chain, id), contested: false })
        } else if (kind === 'contest' && round?.contested === false) {
          contest(chain, round, disputer, flag)
          round.contested = true
        } else if (kind === 'settle' && round !== undefined) {
          settle(chain, round, flag ? 10n ** 18n : 0n)
          live.splice(live.indexOf(round), 1)
        } else if (kind === 'block') block(chain, wallet, flag)
        else if (kind === 'claim') claim(chain, wallet)
        else if (kind === 'transfer') {
          transfer(chain, wallet, BigInt(raw))
          given.set(wallet, (given.get(wallet) ?? 0n) + BigInt(raw))
        } else if (kind === 'look') await readPositions(parts, wallets)
        chain.mine()
      }
      const { rows, totals, notes } = (await readPnl(parts, wallets, {})).pnl
      const { totals: places } = await readPositions(parts, wallets)
      expect(notes).toEqual([])
      for (const [index, { wallet, net, locked, deferred, moved }] of totals.entries()) {
        const change = (chain.world.balances.get(wallet) ?? 0n) - begun - (given.get(wallet) ?? 0n)
        expect(BigInt(net ?? 'x') - BigInt(locked ?? 'x') - BigInt(deferred ?? 'x')).toBe(change)
        const amounts = rows
          .filter((row) => row.wallet === wallet)
          .map(({ amount }) => amount ?? 'x')
        expect(amounts.reduce((sum, amount) => sum + BigInt(amount), 0n)).toBe(change)
        expect(moved).toBe(String(change))
        expect(places[index]).toMatchObject({ wallet, net, locked, deferred, claimable: deferred })
        const { bonded, disputed } = places[index] ?? {}
        expect(BigInt(bonded ?? 'x') + BigInt(disputed ?? 'x')).toBe(BigInt(locked ?? 'x'))
      }
    }),
    { numRuns: 60 },
  )
})
