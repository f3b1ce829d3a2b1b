/** Whether the pinned contracts are what they should be (contract §6; domain §2, §4, §6). */

import {
  ctfAdapterAbi,
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  typeHashes,
  whitelistAbi,
  witnessTypeString,
} from '#chain/contracts'
import {
  changedText,
  type Implementation,
  implementationOf,
  oracleVersion,
} from '#chain/implementations'
import { lowercase, readContract } from '#chain/reading'
import type { Trust } from '#client/trust/trust'
import { type Chain, ChainError } from '#ports'
import type { Address } from '#protocol/schema'
import { domainSeparator, toHex } from '#protocol/witness'
import type { Finding } from './finding.js'

type TrustId =
  | 'chain_id'
  | 'code'
  | 'permit2'
  | 'signed_proposer'
  | 'oracle'
  | 'requester'
  | 'token'
  | 'implementation'

/** Several findings of one id differ in `name`. Who asks knows the fix. */
export interface TrustFinding extends Finding {
  readonly id: TrustId
  readonly result: 'pass' | 'fail'
  readonly name: string
}

type Outcome = { readonly ok: boolean; readonly detail: string }

const finding = (id: TrustId, name: string, { ok, detail }: Outcome): TrustFinding => ({
  ...{ id, name, result: ok ? 'pass' : 'fail', detail, fix: '' },
})

type Reading = { readonly chain: Chain; readonly at: bigint }

/** ChainError where the node does not answer: that says nothing about the pins. */
export async function verifyTrust(chain: Chain, trust: Trust) {
  const chainId = await chain.chainId()
  const same = compare(String(chainId), String(trust.chain_id))
  const sameChain = finding('chain_id', 'chain id', same)
  // On another chain the same addresses mean nothing: what they hold there is not worth telling.
  if (!same.ok) return [sameChain]
  const head = await chain.block('latest')
  if (!head) throw new ChainError('unavailable', 'the node has no latest block')
  const reading = { chain, at: head.number }
  const contracts: readonly (readonly [string, Address])[] = [
    ['permit2', trust.permit2],
    ['signed proposer', trust.signed_proposer],
    ...trust.oracles.map((address) => ['oracle', address] as const),
    ...trust.requesters.map(({ address, kind }) => [`requester (${kind})`, address] as const),
    ...trust.tokens.map((address) => ['token', address] as const),
  ]
  const code = await Promise.all(
    contracts.map(([name, address]) => codeCheck(reading, name, address)),
  )
  // What has no code answers nothing: one finding is enough.
  const answering = (address: string) =>
    !code.some(({ name, detail }) => name.endsWith(address) && detail !== hasCode)
  const answers = await Promise.all([
    ...(answering(trust.signed_proposer) ? proposerChecks(reading, trust) : []),
    ...(answering(trust.permit2) ? [permit2Check(reading, trust)] : []),
    ...trust.oracles
      .filter(answering)
      .flatMap((oracle) => [oracleCheck(reading, oracle), versionCheck(reading, oracle)]),
    ...trust.requesters
      .filter(({ address }) => answering(address))
      .flatMap((requester) =>
        requesterCheck(reading, trust, requester, trust.oracles.filter(answering)),
      ),
    ...trust.tokens.filter(answering).map((token) => tokenCheck(reading, token)),
    ...contracts
      .filter(([name, address]) => answering(address) && isWatched(name, address, trust))
      .map(([name, address]) =>
        implementationCheck(reading, name, address, trust.implementations?.[address]),
      ),
  ])
  return [sameChain, ...code, ...answers]
}

const hasCode = 'has code'

async function codeCheck({ chain, at }: Reading, name: string, address: Address) {
  const present = (await chain.code(address, at)) !== '0x'
  const ok = present || name === 'requester (direct)'
  return finding('code', `${name} ${address}`, { ok, detail: present ? hasCode : 'has no code' })
}

/** Whether it hashes and spends as our signatures do (domain §2). */
const signedAs = {
  PROPOSAL_TYPEHASH: typeHashes.proposal,
  WITNESS_TYPE_STRING: witnessTypeString,
  DELEGATED_PROPOSER_ROLE: roles.delegatedProposer,
} as const

function proposerChecks({ chain, at }: Reading, trust: Trust) {
  const address = trust.signed_proposer
  const names = Object.keys(signedAs) as (keyof typeof signedAs)[]
  return [
    ...names.map((name) =>
      answerCheck('signed_proposer', name, async () =>
        compare(
          await readContract(chain, at, address, signedProposerAbi, name, []),
          signedAs[name],
        ),
      ),
    ),
    answerCheck('permit2', 'permit2()', async () =>
      compare(
        lowercase(await readContract(chain, at, address, signedProposerAbi, 'permit2', [])),
        trust.permit2,
      ),
    ),
  ]
}

/**
 * The separator tells Permit2 from anything else at its address, and this chain from another
 * (domain §3.1).
 */
function permit2Check({ chain, at }: Reading, trust: Trust) {
  const address = trust.permit2
  return answerCheck('permit2', `permit2 ${address} DOMAIN_SEPARATOR`, async () =>
    compare(
      await readContract(chain, at, address, permit2Abi, 'DOMAIN_SEPARATOR', []),
      toHex(domainSeparator(trust.chain_id, address)),
    ),
  )
}

/**
 * Only the managed oracle has a proposer whitelist; SignedProposer works with no other (domain §4).
 */
function oracleCheck({ chain, at }: Reading, oracle: Address) {
  return answerCheck('oracle', `oracle ${oracle} defaultProposerWhitelist()`, async () => {
    const list = await whitelistOf(chain, at, oracle)
    return { ok: (await chain.code(list, at)) !== '0x', detail: list }
  })
}

export const whitelistOf = async (chain: Chain, at: bigint, oracle: Address) =>
  lowercase(await readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', []))

/** What an upgrade may bring: version 3 lets rewards and bonds change while a request is open. */
function versionCheck({ chain, at }: Reading, oracle: Address) {
  return answerCheck('oracle', `oracle ${oracle} version`, async () => ({
    ok: true,
    detail: `managed oracle, version ${await oracleVersion(chain, oracle, at)}`,
  }))
}

/** Oracles and tokens always, any other contract where its code is pinned. */
const isWatched = (name: string, address: Address, { implementations }: Trust) =>
  name === 'oracle' || name === 'token' || implementations?.[address] !== undefined

/** A proxy may run other code than when it was pinned (domain §10). */
function implementationCheck(
  { chain, at }: Reading,
  name: string,
  address: Address,
  pinned: Implementation | undefined,
) {
  return answerCheck('implementation', `${name} ${address} implementation`, async () => {
    const now = await implementationOf(chain, address, at)
    const { implementation, code_hash } = now
    if (pinned === undefined)
      return { ok: true, detail: `runs ${implementation}, code hash ${code_hash}; not pinned` }
    return implementation === pinned.implementation && code_hash === pinned.code_hash
      ? { ok: true, detail: `runs ${implementation}, as pinned` }
      : { ok: false, detail: changedText({ address, pinned, now }) }
  })
}

/**
 * An adapter names its oracle, which has to be a pinned one (domain §5.1: the older ones ask the
 * classic oracle). A reporter has no such getter. That it may ask at a pinned oracle is the most
 * that the chain can say of it (domain §5.2).
 */
function requesterCheck(
  { chain, at }: Reading,
  trust: Trust,
  { address, kind }: Trust['requesters'][number],
  oracles: readonly Address[],
) {
  const name = `requester (${kind}) ${address}`
  if (kind === 'direct') return []
  if (kind !== 'oo-reporter')
    return [
      answerCheck('requester', `${name} optimisticOracle()`, async () => {
        const oracle = lowercase(
          await readContract(chain, at, address, ctfAdapterAbi, 'optimisticOracle', []),
        )
        const ok = trust.oracles.includes(oracle)
        return { ok, detail: ok ? oracle : `${oracle}, which is not among the oracles` }
      }),
    ]
  return [
    answerCheck('requester', `${name} may ask`, async () => {
      const allowed = await Promise.all(
        oracles.map(async (oracle) => {
          const list = await readContract(chain, at, oracle, oracleAbi, 'requesterWhitelist', [])
          return readContract(chain, at, lowercase(list), whitelistAbi, 'isOnWhitelist', [address])
        }),
      )
      const ok = allowed.includes(true)
      return { ok, detail: `on the requester whitelist of ${ok ? 'a' : 'no'} pinned oracle` }
    }),
  ]
}

/** Amounts are signed in raw units: what a unit is must be reported by the token (domain §4). */
function tokenCheck({ chain, at }: Reading, token: Address) {
  return answerCheck('token', `token ${token} decimals()`, async () => {
    const [decimals, symbol] = await Promise.all([
      readContract(chain, at, token, erc20Abi, 'decimals', []),
      readContract(chain, at, token, erc20Abi, 'symbol', []),
    ])
    return { ok: true, detail: `${decimals} decimals, ${symbol.slice(0, 32)}` }
  })
}

async function answerCheck(id: TrustId, name: string, ask: () => Promise<Outcome>) {
  try {
    return finding(id, name, await ask())
  } catch (error) {
    // A revert or an answer of another shape is the finding; a node that is away is not.
    if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
    return finding(id, name, { ok: false, detail: error.message })
  }
}

const compare = (found: string, expected: string) =>
  found === expected
    ? { ok: true, detail: found }
    : { ok: false, detail: `${found}, pinned ${expected}` }
