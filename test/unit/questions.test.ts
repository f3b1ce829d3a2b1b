import { encodeAbiParameters, encodeFunctionResult, keccak256, stringToHex } from 'viem'
import { ooReporterAbi, oracleAbi, yesOrNoQuery } from '#chain/contracts'
import { createRoundReader, type RegistryEntry } from '#chain/questions'
import type { Contracts } from '#chain/round'
import { type Chain, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { createFakeChain, type FakeChain } from '#support/fake-chain'
import {
  ask,
  dispute,
  questionText,
  rivalProposes,
  setCustomBond,
  setPaused,
} from '#support/fake-events'
import {
  adapter,
  bondRaw,
  creator,
  fakeContracts,
  finalFeeRaw,
  oracle,
  questionOf,
  token,
} from '#support/fake-world'
import { resolveRound } from '#support/resolve-round'

async function asked(
  name = 'Rain?',
  resData?: string,
): Promise<{ chain: FakeChain; questionId: Hex }> {
  const chain = createFakeChain()
  const questionId = ask(chain, questionText(name, resData))
  chain.mine()
  return { chain, questionId }
}
const rival: Address = `0x${'9'.repeat(40)}`

test('domain §5.1: the round of a question: request fields, state, bond with final fee, token, outcomes', async () => {
  const { chain, questionId } = await asked()
  const round = await resolveRound(chain, fakeContracts, questionId)
  expect(round).toEqual({
    questionId,
    kind: 'uma-ctf-adapter',
    oracle,
    requester: adapter,
    identifier: yesOrNoQuery,
    timestamp: String(chain.head.timestamp),
    ancillaryData: questionText('Rain?'),
    state: 'requested',
    paused: false,
    token: { address: token, symbol: 'USDC.e', decimals: 6 },
    totalBondRaw: bondRaw + finalFeeRaw,
    rewardRaw: 0n,
    proposer: undefined,
    isReopened: false,
    creator,
    outcomes: [
      { outcome: 'p1', label: 'No', price: '0', allowed: true },
      { outcome: 'p2', label: 'Yes', price: '1000000000000000000', allowed: true },
      { outcome: 'p3', label: 'unknown/50-50', price: '500000000000000000', allowed: true },
    ],
    blockNumber: chain.head.number,
  })
})

test('domain §4: a custom bond counts where its amount is not 0, although isSet says false', async () => {
  const { chain, questionId } = await asked()
  setCustomBond(chain, questionId, 900_000_000n)
  chain.mine()
  expect((await resolveRound(chain, fakeContracts, questionId))?.totalBondRaw).toBe(
    900_000_000n + finalFeeRaw,
  )
  setCustomBond(chain, questionId, 0n)
  chain.mine()
  expect((await resolveRound(chain, fakeContracts, questionId))?.totalBondRaw).toBe(
    bondRaw + finalFeeRaw,
  )
})

test('domain §5.1: states follow the oracle, a dispute shows the new round', async () => {
  const { chain, questionId } = await asked()
  rivalProposes(chain, questionId, rival)
  chain.mine()
  expect((await resolveRound(chain, fakeContracts, questionId))?.state).toBe('proposed')
  dispute(chain, questionId)
  chain.mine()
  expect(await resolveRound(chain, fakeContracts, questionId)).toMatchObject({
    state: 'requested',
    timestamp: String(chain.head.timestamp),
  })
})

test('domain §5.1: everything is read as of one block', async () => {
  const { chain, questionId } = await asked()
  const before = chain.head.number
  rivalProposes(chain, questionId, rival)
  chain.mine()
  const reader = createRoundReader(chain, fakeContracts)
  expect((await reader.read(questionId, undefined, before))?.state).toBe('requested')
})

test('domain §5.1: a paused or flagged question is told as paused, one resolved by hand as resolved', async () => {
  const { chain, questionId } = await asked()
  setPaused(chain, questionId, true)
  chain.mine()
  expect(await resolveRound(chain, fakeContracts, questionId)).toMatchObject({
    paused: true,
    state: 'requested',
  })
  chain.happen((world) =>
    Object.assign(questionOf(world, questionId), { paused: false, flagged: true }),
  )
  chain.mine()
  expect((await resolveRound(chain, fakeContracts, questionId))?.paused).toBe(true)
  chain.happen((world) => (questionOf(world, questionId).resolved = true))
  chain.mine()
  expect((await resolveRound(chain, fakeContracts, questionId))?.state).toBe('resolved')
})

test('domain §5.1: a neg-risk adapter never allows p3', async () => {
  const { chain, questionId } = await asked()
  const negRisk: Contracts = {
    ...fakeContracts,
    requesters: [{ address: adapter, kind: 'uma-ctf-adapter-negrisk' }],
  }
  expect(
    (await resolveRound(chain, negRisk, questionId))?.outcomes.map(({ allowed }) => allowed),
  ).toEqual([true, true, false])
})

test('domain §5.1: an ID whose text does not hash to it, or that nobody knows, is no question', async () => {
  const { chain, questionId } = await asked()
  chain.happen(
    (world) => (questionOf(world, questionId).ancillaryData = questionText('another text')),
  )
  chain.mine()
  expect(await resolveRound(chain, fakeContracts, questionId)).toBeUndefined()
  expect(await resolveRound(chain, fakeContracts, keccak256('0x01'))).toBeUndefined()
})

test('domain §6: an oracle or a token that is not pinned is refused', async () => {
  const { chain, questionId } = await asked()
  expect(
    await resolveRound(chain, { ...fakeContracts, oracles: [rival] }, questionId),
  ).toBeUndefined()
  expect(
    await resolveRound(chain, { ...fakeContracts, tokens: [rival] }, questionId),
  ).toBeUndefined()
})

test('domain §5.1: a registry entry that names another requester keeps the others from being asked', async () => {
  const { chain, questionId } = await asked()
  expect(
    await resolveRound(chain, fakeContracts, questionId, { questionId, requester: rival }),
  ).toBeUndefined()
  expect(
    await resolveRound(chain, fakeContracts, questionId, { questionId, requester: adapter }),
  ).toBeDefined()
})

test('domain §5.1: a node that does not answer is a ChainError, not a missing question', async () => {
  const { chain, questionId } = await asked()
  chain.fault('call', 'unavailable')
  await expect(resolveRound(chain, fakeContracts, questionId)).rejects.toBeInstanceOf(ChainError)
})

test('domain §5.1: an address that is no adapter is named', async () => {
  const { chain, questionId } = await asked()
  const wrong: Contracts = {
    ...fakeContracts,
    requesters: [{ address: rival, kind: 'uma-ctf-adapter' }],
  }
  await expect(resolveRound(chain, wrong, questionId)).rejects.toThrow(rival)
})

test("the entry's request is used as it is, and its ID is not hashed", async () => {
  const { chain, questionId: asHash } = await asked()
  const direct: Contracts = {
    ...fakeContracts,
    requesters: [{ address: adapter, kind: 'direct' }],
  }
  const request = {
    oracle,
    requester: adapter,
    identifier: yesOrNoQuery,
    timestamp: String(chain.head.timestamp),
    ancillaryData: questionText('Rain?'),
  }
  const questionId: Hex = `0x${'77'.repeat(32)}`
  const entry: RegistryEntry = { questionId, request }
  expect(await resolveRound(chain, direct, questionId, entry)).toMatchObject({
    questionId,
    kind: 'direct',
    state: 'requested',
    ...request,
  })
  expect(await resolveRound(chain, direct, asHash)).toBeUndefined()
  const later = { ...request, timestamp: '1' }
  expect(
    await resolveRound(chain, direct, questionId, { questionId, request: later }),
  ).toBeUndefined()
  expect(
    await resolveRound(chain, direct, questionId, {
      questionId,
      request: { ...request, oracle: rival },
    }),
  ).toBeUndefined()
})

describe('OOReporter (domain §5.2)', () => {
  const reporter: Address = `0x${'5'.repeat(40)}`
  const questionId: Hex = `0x${'44'.repeat(32)}`
  const rules = stringToHex('Did it rain? res_data: p1: 0, p2: 1, p3: 0.5.')

  function reporterChain(initialized: boolean): Chain {
    const base = createFakeChain()
    base.mine(3)
    const call: Chain['call'] = async (asked, at) => {
      if (asked.to === reporter) {
        const result = {
          requestTimestamp: initialized ? 1_799_999_000n : 0n,
          reward: 0n,
          proposalBond: 0n,
          liveness: 0n,
          registered: true,
          initialized,
          resolved: false,
          rerequestAllowed: false,
          automaticDisputeRerequestUsed: false,
          requester: rival,
          oracleInitializer: rival,
          priceIdentifier: yesOrNoQuery,
          requestRules: rules,
          outcome: 0n,
          manualRerequestsRemaining: 0n,
          minimumLiveness: 0n,
          maximumLiveness: 0n,
        }
        return encodeFunctionResult({ abi: ooReporterAbi, functionName: 'getRequest', result })
      }
      if (asked.to !== oracle) return base.call(asked, at)
      const selector = asked.data.slice(0, 10)
      if (selector === '0xba4b930c') return encodeAbiParameters([{ type: 'uint8' }], [1])
      if (selector === '0xe92706c6')
        return encodeFunctionResult({
          abi: oracleAbi,
          functionName: 'customBonds',
          result: [0n, false],
        })
      const requestSettings = {
        eventBased: true,
        refundOnDispute: true,
        callbackOnPriceProposed: false,
        callbackOnPriceDisputed: true,
        callbackOnPriceSettled: false,
        bond: bondRaw,
        customLiveness: 0n,
      }
      const zeros = {
        proposedPrice: 0n,
        resolvedPrice: 0n,
        expirationTime: 0n,
        reward: 0n,
        finalFee: finalFeeRaw,
        proposalTime: 0n,
      }
      const nobody: Address = `0x${'0'.repeat(40)}`
      return encodeFunctionResult({
        abi: oracleAbi,
        functionName: 'getRequest',
        result: {
          proposer: nobody,
          disputer: nobody,
          currency: token,
          settled: false,
          requestSettings,
          ...zeros,
        },
      })
    }
    return { ...base, call }
  }

  test("the round is the reporter's request, and the ID is not the hash of its text", async () => {
    const contracts: Contracts = {
      ...fakeContracts,
      requesters: [{ address: reporter, kind: 'oo-reporter' }],
    }
    expect(await resolveRound(reporterChain(true), contracts, questionId)).toMatchObject({
      questionId,
      kind: 'oo-reporter',
      requester: reporter,
      oracle,
      timestamp: '1799999000',
      ancillaryData: rules,
      totalBondRaw: bondRaw + finalFeeRaw,
    })
    expect(await resolveRound(reporterChain(false), contracts, questionId)).toBeUndefined()
  })

  test('a requester that reverts on an ID does not hide the question from the others', async () => {
    const { chain, questionId: known } = await asked()
    const call: Chain['call'] = async (one, at) => {
      if (one.to === reporter) throw new ChainError('reverted', 'execution reverted')
      return chain.call(one, at)
    }
    const contracts: Contracts = {
      ...fakeContracts,
      requesters: [{ address: reporter, kind: 'oo-reporter' }, ...fakeContracts.requesters],
    }
    expect((await resolveRound({ ...chain, call }, contracts, known))?.requester).toBe(adapter)
  })

  const oddBeside = (reporterFirst: boolean): Contracts => {
    const odd = { address: reporter, kind: 'oo-reporter' } as const
    return {
      ...fakeContracts,
      requesters: reporterFirst
        ? [odd, ...fakeContracts.requesters]
        : [...fakeContracts.requesters, odd],
    }
  }

  test.each([true, false])(
    'nor does one that answers as no requester does, before it or after it (first: %s)',
    async (reporterFirst) => {
      const { chain, questionId: known } = await asked()
      // No code at the reporter's address: the answer is empty, which fits no ABI.
      expect((await resolveRound(chain, oddBeside(reporterFirst), known))?.requester).toBe(adapter)
    },
  )

  test.each([true, false])(
    'a question that nobody knows is not missing while one requester answers oddly: it is named (first: %s)',
    async (first) => {
      const { chain } = await asked()
      const failure = await resolveRound(chain, oddBeside(first), keccak256('0x01')).catch(
        (error: unknown) => error,
      )
      expect(failure).toMatchObject({ name: 'ChainError', kind: 'refused' })
      expect(String(failure)).toContain(reporter)
    },
  )

  test('R16: a node that did not answer for one requester leaves the question open, although another knows it', async () => {
    const { chain, questionId: known } = await asked()
    const call: Chain['call'] = async (one, at) => {
      if (one.to === reporter) throw new ChainError('unavailable', 'no response')
      return chain.call(one, at)
    }
    await expect(resolveRound({ ...chain, call }, oddBeside(false), known)).rejects.toMatchObject({
      kind: 'unavailable',
    })
  })

  test('an odd oracle behind one requester does not hide the question of another', async () => {
    const { chain, questionId: known } = await asked()
    const elsewhere = reporterChain(true)
    const call: Chain['call'] = async (one, at) => {
      if (one.to === reporter) return elsewhere.call(one, at)
      const isReporters = one.to === oracle && one.data.includes(rules.slice(2))
      return isReporters ? '0x' : chain.call(one, at)
    }
    expect((await resolveRound({ ...chain, call }, oddBeside(true), known))?.requester).toBe(
      adapter,
    )
  })
})
