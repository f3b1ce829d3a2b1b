import { secp256k1 } from '@noble/curves/secp256k1'
import { hexToBytes, keccak256, stringToHex } from 'viem'
import { canonicalPermit2, roles, typeHashes, witnessTypeString } from '#chain/contracts'
import { callData } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import {
  type Bench,
  customBond,
  customWhitelist,
  delegate,
  provocations,
  startBench,
} from '#support/dev-chain-reverts'
import {
  admin,
  executed,
  type Payload,
  payloadOf,
  proposeArgs,
  requestRound,
  reverts,
  startWorld,
  supportCurrency,
  unlimited,
  type WitnessCase,
  type World,
  witness,
} from '#support/dev-chain-vectors'

/** Cases that our contracts cannot meet, and why. */
const unreachable: Readonly<Record<string, string>> = {}

const zero: Address = '0x0000000000000000000000000000000000000000'

function keyOf(address: string | undefined): Hex {
  const found = witness.cases.find(({ signer }) => signer === address)
  if (found === undefined) throw new Error(`no key for ${address}`)
  return found.private_key
}

/** The twin of a signature with high s. */
function highS(signature: Hex): Hex {
  const { n } = secp256k1.CURVE
  const s = n - BigInt(`0x${signature.slice(66, 130)}`)
  return `${signature.slice(0, 66)}${s.toString(16).padStart(64, '0')}${signature.endsWith('1b') ? '1c' : '1b'}` as Hex
}

/** EIP-2098: the parity goes into the top bit of s. */
function compact(signature: Hex): Hex {
  const s = BigInt(`0x${signature.slice(66, 130)}`) | (signature.endsWith('1c') ? 1n << 255n : 0n)
  return `${signature.slice(0, 66)}${s.toString(16).padStart(64, '0')}` as Hex
}

describe('contract §8: failures come out byte for byte', () => {
  let bench: Bench
  beforeAll(async () => {
    bench = await startBench({
      proposer: keyOf(reverts.addresses.proposer),
      other: keyOf(reverts.addresses.other),
    })
  })
  afterAll(() => bench?.world.anvil.stop())

  test('every case is provoked or listed as unreachable, none both', () => {
    const names = reverts.reverts.map(({ name }) => name)
    expect([...Object.keys(provocations), ...Object.keys(unreachable)].sort()).toEqual(names.sort())
  })

  test.each(reverts.reverts.filter(({ name }) => name in provocations))(
    'domain §7: $name',
    async ({ name, raw }) => {
      const provoke = provocations[name]
      expect(await bench.world.aside(async () => provoke?.(bench))).toBe(raw)
    },
  )

  const received = async (run: () => Promise<Payload>): Promise<bigint> => {
    const payload = await run()
    const before = await bench.world.rpc.read<bigint>(bench.token, 'balanceOf', [payload.proposer])
    expect(executed(await bench.execute(payload), bench.signedProposer.address)).toBe(true)
    return (
      before - (await bench.world.rpc.read<bigint>(bench.token, 'balanceOf', [payload.proposer]))
    )
  }
  const accepted: Readonly<
    Record<string, readonly [cost: bigint, prepare: () => Promise<Payload>]>
  > = {
    deadline_equals_block_timestamp: [
      750_000_000n,
      async () => {
        const payload = await bench.sign(await bench.ask(), { deadline: 1_795_900_000n })
        await bench.world.rpc.request('evm_setNextBlockTimestamp', [1_795_900_000])
        return payload
      },
    ],
    eip1271_wallet_65_byte: [750_000_000n, () => walletPayload((good) => good)],
    eip1271_wallet_8192_byte: [
      750_000_000n,
      () => walletPayload((good) => `${good}${'ab'.repeat(8192 - 65)}`),
    ],
    eip7702_delegate_with_1271: [
      750_000_000n,
      async () => {
        const payload = await bench.sign(await bench.ask())
        await delegate(bench, bench.wallet)
        await bench.world.send(
          admin,
          { ...bench.wallet, address: bench.proposer },
          'setOwner',
          bench.proposer,
        )
        return payload
      },
    ],
    eip2098_compact_64_byte: [750_000_000n, () => reshaped(compact)],
    high_s_malleated: [750_000_000n, () => reshaped(highS)],
    custom_bond_lowered_after_signing: [
      350_000_000n,
      async () => {
        const round = await bench.ask()
        const payload = await bench.sign(round)
        await customBond(bench, round, 100_000_000n)
        return payload
      },
    ],
    payment_charged: [
      755_000_000n,
      async () =>
        bench.sign(await bench.ask(), {
          amount: 756_000_000n,
          maxPayment: 5_000_000n,
          payment: 5_000_000n,
        }),
    ],
    proposer_listed_sp_not_owner: [
      750_000_000n,
      async () => {
        const round = await bench.ask()
        for (const account of [bench.proposer, bench.signedProposer.address])
          await bench.world.send(admin, bench.empty, 'addToWhitelist', account)
        await customWhitelist(bench, round, bench.empty.address)
        return bench.sign(round)
      },
    ],
    custom_whitelist_cleared: [
      750_000_000n,
      async () => {
        const round = await bench.ask()
        const payload = await bench.sign(round)
        await customWhitelist(bench, round, bench.empty.address)
        await bench.refusal(payload)
        await customWhitelist(bench, round, zero)
        return payload
      },
    ],
    disabled_custom_whitelist: [
      750_000_000n,
      async () => {
        const round = await bench.ask()
        await customWhitelist(bench, round, bench.everybody.address)
        return bench.sign(round)
      },
    ],
    arbitrary_price_accepted: [
      750_000_000n,
      async () => bench.sign(await bench.ask(), { price: 123456789n }),
    ],
    request_ancillary_8139_bytes: [
      750_000_000n,
      async () => bench.sign(await bench.ask({ ancillaryData: `0x${'61'.repeat(8139)}` })),
    ],
  }
  const walletPayload = async (shape: (good: Hex) => Hex): Promise<Payload> => {
    await bench.world.send(admin, bench.wallet, 'setOwner', bench.proposer)
    const payload = await bench.sign(await bench.ask(), { proposer: bench.wallet.address })
    return { ...payload, signature: shape(payload.signature) }
  }
  const reshaped = async (shape: (good: Hex) => Hex): Promise<Payload> => {
    const payload = await bench.sign(await bench.ask())
    return { ...payload, signature: shape(payload.signature) }
  }

  test('every accepted case has its preparation', () => {
    expect(Object.keys(accepted).sort()).toEqual(reverts.accepted.map(({ name }) => name).sort())
  })

  test.each(reverts.accepted)(
    'domain §3, §4: $name succeeds and costs the proposer what it should',
    async ({ name }) => {
      const [cost, prepare] = accepted[name] ?? []
      if (prepare === undefined) throw new Error(`nothing prepared for ${name}`)
      expect(await bench.world.aside(() => received(prepare))).toBe(cost)
    },
  )

  test('domain §2.1: one success logs in the order of the real contract', async () => {
    const receipt = await bench.world.aside(async () =>
      bench.execute(await bench.sign(await bench.ask(), { amount: 751_000_000n })),
    )
    const place = (address: Address): string =>
      Object.entries(bench).find(
        ([, value]) => (value as { address?: Address }).address === address,
      )?.[0] ?? address
    expect(
      receipt.logs.map(({ address, topics }) => `${place(address)} ${topics[0]?.slice(0, 10)}`),
    ).toEqual([
      'token 0xddf252ad',
      'listed 0xa850ae91',
      'token 0x8c5be1e5',
      'token 0xddf252ad',
      'oracle 0x6e51dd00',
      'token 0x8c5be1e5',
      'listed 0xcdd2e9b9',
      'token 0xddf252ad',
      'signedProposer 0xfff3c4c0',
    ])
  })

  test('domain §2, §3.1: constants of SignedProposer are those of the audited build', async () => {
    const { rpc } = bench.world
    const read = (name: string) => rpc.read<string>(bench.signedProposer, name, [])
    expect(await read('PROPOSAL_TYPEHASH')).toBe(witness.constants.proposal_typehash)
    expect(await read('PROPOSAL_TYPEHASH')).toBe(typeHashes.proposal)
    expect(await read('WITNESS_TYPE_STRING')).toBe(witness.constants.witness_type_string)
    expect(await read('WITNESS_TYPE_STRING')).toBe(witnessTypeString)
    expect(await read('DELEGATED_PROPOSER_ROLE')).toBe(roles.delegatedProposer)
    expect(await read('WHITELIST_ADMIN_ROLE')).toBe(keccak256(stringToHex('WHITELIST_ADMIN_ROLE')))
    expect((await read('permit2')).toLowerCase()).toBe(canonicalPermit2)
    expect(await rpc.read<string>(bench.oracle, 'RESOLVER_ROLE', [])).toBe(
      keccak256(stringToHex('RESOLVER_ROLE')),
    )
  })
})

const notExecuted: Readonly<Record<string, string>> = {
  'chain 31337, expired deadline 1': 'SignatureExpired(1)',
  'chain 31337, future timestamp 2^64':
    'no oracle takes a request for the future; Permit2 alone accepts the signature',
  'chain 1, maximum everything':
    'no oracle takes a request for the future; Permit2 alone accepts the signature',
  'chain 1, everything zero': 'no contract at the zero address; deadline 0 has passed',
}

describe.each(['137', '31337', '1'])('contract §8: the witness vectors on chain %s', (chainId) => {
  const cases = witness.cases.filter(({ input }) => input.chain_id === chainId)
  let world: World
  beforeAll(async () => {
    world = await startWorld(Number(chainId))
  })
  afterAll(() => world?.anvil.stop())

  /**
   * Puts everything at a case's addresses. Every list is open here: signatures are what is tried.
   */
  const place = async ({ input, signer }: WitnessCase) => {
    const everybody = await world.place(
      'DisabledAddressWhitelist',
      '0x00000000000000000000000000000000000c0003',
    )
    const token = await world.place('Token', input.token, admin)
    const oracle = await world.place(
      'ManagedOracle',
      input.oracle,
      admin,
      everybody.address,
      everybody.address,
    )
    const permit2 = await world.place('Permit2', input.permit2)
    const signedProposer = await world.place(
      'SignedProposer',
      input.signed_proposer,
      admin,
      input.permit2,
    )
    await world.send(admin, signedProposer, 'addDelegatedProposer', admin)
    await world.mint(token, signer, BigInt(input.amount))
    await world.approve(token, signer, permit2.address, unlimited)
    return { token, oracle, permit2, signedProposer }
  }

  test.each(cases.filter(({ executed_on_chain }) => executed_on_chain))(
    'domain §3.1: executes "$name"',
    async (vector) => {
      const { input } = vector
      await world.aside(async () => {
        const { token, oracle, signedProposer } = await place(vector)
        const free = input.amount === '0'
        await supportCurrency(world, oracle, token.address, free ? 0n : 250_000_000n)
        await world.send(admin, oracle, 'setIdentifier', input.identifier, true)
        await requestRound(world, oracle, {
          requester: input.requester,
          ancillaryData: input.ancillary_data,
          identifier: input.identifier,
          timestamp: BigInt(input.timestamp),
          token,
          bondRaw: free ? 0n : 500_000_000n,
        })
        for (const signature of [vector.signature, vector.signature_compact]) {
          const receipt = await world.aside(() =>
            world.send(
              admin,
              signedProposer,
              'propose',
              ...proposeArgs({ ...payloadOf(vector), signature }),
            ),
          )
          expect(executed(receipt, signedProposer.address)).toBe(true)
        }
      })
    },
  )

  test.each(cases)(
    'domain §3.1: Permit2 has the domain separator of "$name"',
    async ({ input, expected }) => {
      const permit2 = await world.place('Permit2', input.permit2)
      expect(await world.rpc.read(permit2, 'DOMAIN_SEPARATOR', [])).toBe(expected.domain_separator)
    },
  )

  test('the vectors that were not executed are the ones we know', () => {
    const names = cases
      .filter(({ executed_on_chain }) => !executed_on_chain)
      .map(({ name }) => name)
    expect(names).toEqual(
      Object.keys(notExecuted).filter((name) => name.startsWith(`chain ${chainId},`)),
    )
  })

  const future = cases.filter(({ name }) => notExecuted[name]?.startsWith('no oracle'))
  const expired = cases.filter(({ input }) => BigInt(input.deadline) < 2n)

  test.each([...future, ...expired])(
    'domain §3.3: Permit2 alone answers to "$name" as it should',
    async (vector) => {
      await world.aside(async () => {
        const { input, signer, signature, expected } = vector
        const token = await world.place(
          'Token',
          input.token === zero ? '0x00000000000000000000000000000000000c0005' : input.token,
          admin,
        )
        const permit2 = await world.place('Permit2', input.permit2)
        await world.mint(token, signer, BigInt(input.amount))
        await world.approve(token, signer, permit2.address, unlimited)
        const { permit } = payloadOf(vector)
        const transfer = { to: admin, requestedAmount: permit.permitted.amount }
        const args = [
          permit,
          transfer,
          signer,
          expected.proposal_struct_hash,
          witnessTypeString,
          signature,
        ]
        if (future.includes(vector)) {
          await world.send(input.signed_proposer, permit2, 'permitWitnessTransferFrom', ...args)
          expect(await world.rpc.read(token, 'balanceOf', [admin])).toBe(permit.permitted.amount)
        } else {
          const raw = await world.revertOf(
            input.signed_proposer,
            permit2.address,
            callData(permit2, 'permitWitnessTransferFrom', args),
          )
          expect(raw).toBe(`0xcd21db4f${BigInt(input.deadline).toString(16).padStart(64, '0')}`)
        }
      })
    },
  )

  test.each(cases)(
    'the private key of "$name" signs its digest as recorded',
    ({ private_key, expected, signature }) => {
      const made = secp256k1.sign(expected.digest.slice(2), hexToBytes(private_key))
      expect(`0x${made.toCompactHex()}${(27 + made.recovery).toString(16)}`).toBe(signature)
    },
  )
})
