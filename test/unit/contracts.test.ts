import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import {
  type AbiEvent,
  type AbiFunction,
  keccak256,
  stringToHex,
  toEventSelector,
  toFunctionSelector,
} from 'viem'
import {
  canonicalPermit2,
  eip1271MagicValue,
  erc20Abi,
  erc1271Abi,
  ooReporterAbi,
  permit2Abi,
  roles,
  roundStates,
  signedProposerAbi,
  tooEarlyPrice,
  topics,
  typeHashes,
  whitelistAbi,
  witnessTypeString,
  yesOrNoQuery,
} from '#chain/contracts'
import { ctfAdapterAbi, oracleAbi, oracleV3Abi, proxyAbi } from '#support/whole-abis'

const folder = new URL('../../fixtures/contracts/', import.meta.url)
const artifacts = JSON.parse(readFileSync(new URL('artifacts.json', folder), 'utf8')) as {
  sources_sha256: string
  contracts: Record<string, { abi: (AbiEvent | AbiFunction)[]; code: string }>
}

const ours = [
  ...signedProposerAbi,
  ...permit2Abi,
  ...oracleAbi,
  ...oracleV3Abi,
  ...whitelistAbi,
  ...ctfAdapterAbi,
  ...proxyAbi,
]
const events = ours.filter((item) => item.type === 'event')
const named = (topic: string): string => topic[0]?.toUpperCase() + topic.slice(1)

test('domain §2–§5: every event of the ABIs has the topic that the domain gives for it', () => {
  const selectors = new Map(events.map((event) => [event.name as string, toEventSelector(event)]))
  const withoutAbi = [
    'RequestRulesUpdated',
    'RequestRegistered',
    'RequestInitialized',
    'RequestRerequested',
    'RequestResolved',
  ]
  const listed = Object.entries(topics).filter(([name]) => !withoutAbi.includes(named(name)))
  expect(Object.fromEntries(listed.map(([name, topic]) => [named(name), topic]))).toEqual(
    Object.fromEntries(selectors),
  )
})

test('domain §2–§5: functions have the selectors that the domain gives for them', () => {
  const given: Record<string, string> = {
    ...{
      propose: '0xb762b23c',
      multicall: '0xac9650d8',
      hasRole: '0x91d14854',
      permit2: '0x12261ee7',
    },
    ...{ PROPOSAL_TYPEHASH: '0x853b94a0', WITNESS_TYPE_STRING: '0x156e2152' },
    ...{ nonceBitmap: '0x4fe02b44', invalidateUnorderedNonces: '0x3ff9dcb1' },
    ...{
      getRequest: '0xa9904f9b',
      getState: '0xba4b930c',
      customBonds: '0xe92706c6',
    },
    ...{ getCustomProposerWhitelist: '0x7746e7ae', defaultProposerWhitelist: '0xab328fb2' },
    ...{ deferredPayouts: '0x9f345503', claimDeferredPayout: '0x2a0fb912' },
    ...{ getUpdates: '0x555c56fc', getRequestRulesUpdates: '0xac62e2c3' },
    ...{ getRequestReward: '0xf9a8f368' },
    ...{ isOnWhitelist: '0x3a3ab672', getQuestion: '0x58c039cd', isValidSignature: '0x1626ba7e' },
  }
  const functions = [...ours, ...erc1271Abi].filter((item) => item.type === 'function')
  const selectors = Object.fromEntries(
    functions.map((item) => [item.name, toFunctionSelector(item)]),
  )
  expect(selectors).toMatchObject(given)
})

test('domain §2, §3.1: role and type hashes are those of their names', () => {
  const hash = (text: string) => keccak256(stringToHex(text))
  const permitted = 'TokenPermissions(address token,uint256 amount)'
  const proposal = witnessTypeString.slice('Proposal witness)'.length, -permitted.length)
  expect(roles.delegatedProposer).toBe(hash('DELEGATED_PROPOSER_ROLE'))
  expect(typeHashes.proposal).toBe(hash(proposal))
  expect(typeHashes.tokenPermissions).toBe(hash(permitted))
  expect(typeHashes.domain).toBe(
    hash('EIP712Domain(string name,uint256 chainId,address verifyingContract)'),
  )
  expect(typeHashes.permitWitnessTransferFrom).toBe(
    hash(
      `PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,${witnessTypeString}`,
    ),
  )
  expect(yesOrNoQuery).toBe(stringToHex('YES_OR_NO_QUERY', { size: 32 }))
})

test('domain §3–§5: the small constants are as measured', () => {
  expect(canonicalPermit2).toBe('0x000000000022d473030f116ddee9f6b43ac78ba3')
  expect(eip1271MagicValue).toBe(toFunctionSelector(erc1271Abi[0]))
  expect(tooEarlyPrice).toBe(
    -57896044618658097711785492504343953926634992332820282019728792003956564819968n,
  )
  expect(Object.values(roundStates)).toEqual([0, 1, 2, 3, 4, 5, 6])
  expect(ooReporterAbi.map(({ name }) => name)).toEqual(['getRequest', 'optimisticOracle'])
})

test('contract §8: artifacts.json was made from these sources (else: npm run contracts)', () => {
  const hash = createHash('sha256')
  const names = readdirSync(folder).filter((name) => name.endsWith('.sol'))
  for (const name of names.sort())
    hash.update(`${name}\0${readFileSync(new URL(name, folder), 'utf8')}\0`)
  expect(artifacts.sources_sha256).toBe(hash.digest('hex'))
})

test.each([
  ['SignedProposer', signedProposerAbi],
  ['Permit2', permit2Abi],
  ['ManagedOracle', [...oracleAbi, ...proxyAbi]],
  ['ManagedOracleV3', [...oracleAbi, ...oracleV3Abi]],
  ['AddressWhitelist', whitelistAbi],
  ['CtfAdapter', ctfAdapterAbi],
  ['Token', erc20Abi],
  ['Wallet', erc1271Abi],
] as const)(
  'contract §8: %s has every function and event that the product uses, with the same types',
  (name, abi) => {
    const shape = (items: readonly unknown[]): Map<string, string> => {
      const known = (items as (AbiEvent | AbiFunction)[]).filter(
        ({ type }) => type === 'function' || type === 'event',
      )
      return new Map(
        known.map((item) => [
          item.type === 'event' ? toEventSelector(item) : toFunctionSelector(item),
          outputs(item),
        ]),
      )
    }
    const compiled = shape(artifacts.contracts[name]?.abi ?? [])
    const used = shape(abi)
    expect(used.size).toBeGreaterThan(0)
    for (const [selector, types] of used)
      expect([selector, compiled.get(selector)]).toEqual([selector, types])
  },
)

test('EIP-170: each contract could be deployed on a real chain', () => {
  for (const { code } of Object.values(artifacts.contracts))
    expect((code.length - 2) / 2).toBeLessThanOrEqual(24_576)
})

function outputs(item: AbiEvent | AbiFunction): string {
  if (item.type === 'event') return item.inputs.map(({ indexed }) => indexed === true).join()
  const flat = (parameters: readonly { type: string; components?: readonly unknown[] }[]): string =>
    parameters
      .map(({ type, components }) =>
        components === undefined
          ? type
          : `(${flat(components as typeof parameters)})${type.slice(5)}`,
      )
      .join()
  return flat(item.outputs)
}
