import { concatHex } from 'viem'
import { type Chain, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import { outcomesOf, plainText } from './ancillary.js'
import {
  ctfAdapterAbi,
  erc20Abi,
  ooReporterAbi,
  oracleAbi,
  roundStates,
  yesOrNoQuery,
} from './contracts.js'
import {
  heldRequest,
  heldState,
  holderOf,
  latestBlock,
  lowercase,
  readContract,
  zeroAddress,
} from './reading.js'
import {
  type Contracts,
  keccakHex,
  type RequesterKind,
  type Round,
  requestStates,
} from './round.js'

export interface RegistryEntry {
  readonly questionId: Hex
  readonly slug?: string | undefined
  readonly requester?: Address | undefined
  readonly request?: WitnessRequest | undefined
}

interface Located {
  readonly request: WitnessRequest
  readonly paused?: boolean
  /** By another way than the oracle. */
  readonly resolved?: boolean
  readonly settlesHalf?: boolean
  readonly isReopened?: boolean
  readonly creator?: Address
}

interface Reading {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly at: bigint
}

interface Asked {
  readonly requester: Address
  readonly questionId: Hex
  readonly entry: RegistryEntry | undefined
}
type Resolver = (reading: Reading, asked: Asked) => Promise<Located | undefined>

const resolvers: Readonly<Record<RequesterKind, Resolver>> = {
  'uma-ctf-adapter': ctfQuestion,
  async 'uma-ctf-adapter-negrisk'(reading, asked) {
    const located = await ctfQuestion(reading, asked)
    return located && { ...located, settlesHalf: false }
  },
  'oo-reporter': reportedRequest,
  async direct({ contracts }, { requester, entry }) {
    const request = entry?.request
    if (request?.requester !== requester || !contracts.oracles.includes(request.oracle))
      return undefined
    return { request }
  },
}

async function ctfQuestion({ chain, contracts, at }: Reading, { requester, questionId }: Asked) {
  const [question, isFlagged, oracleAddress] = await Promise.all([
    readContract(chain, at, requester, ctfAdapterAbi, 'getQuestion', [questionId]),
    readContract(chain, at, requester, ctfAdapterAbi, 'isFlagged', [questionId]),
    readContract(chain, at, requester, ctfAdapterAbi, 'optimisticOracle', []),
  ])
  const { requestTimestamp, ancillaryData, paused, resolved, reset, creator } = question
  const oracle = lowercase(oracleAddress)
  if (requestTimestamp === 0n || !contracts.oracles.includes(oracle)) return undefined
  // An adapter's question is its text.
  if (keccakHex(ancillaryData) !== questionId) return undefined
  const timestamp = String(requestTimestamp)
  return {
    request: { oracle, requester, identifier: yesOrNoQuery, timestamp, ancillaryData },
    paused: paused || isFlagged,
    resolved,
    isReopened: reset,
    creator: lowercase(creator),
  }
}

/** OOReporter (domain §5.2) names no oracle: it is the pinned one that knows the request. */
async function reportedRequest(
  { chain, contracts, at }: Reading,
  { requester, questionId }: Asked,
) {
  const found = await readContract(chain, at, requester, ooReporterAbi, 'getRequest', [questionId])
  if (!found.initialized || found.requestTimestamp === 0n) return undefined
  const { priceIdentifier: identifier, requestRules: ancillaryData, requestTimestamp } = found
  const asked = { requester, identifier, timestamp: String(requestTimestamp), ancillaryData }
  const requests = contracts.oracles.map((oracle) => ({ oracle, ...asked }))
  const states = await Promise.all(requests.map((one) => heldState(chain, at, one)))
  const request = requests.find((_, index) => states[index] !== roundStates.invalid)
  if (request === undefined) return undefined
  const { resolved, automaticDisputeRerequestUsed: isReopened } = found
  return { request, resolved, isReopened }
}

export const managedRequestId = ({
  requester,
  identifier,
  ancillaryData,
}: Pick<WitnessRequest, 'requester' | 'identifier' | 'ancillaryData'>) =>
  keccakHex(concatHex([requester, identifier, ancillaryData]))

/** Tokens are asked about once. */
export interface RoundReader {
  /** `undefined` where no trusted requester knows it, or its oracle or token is not pinned. */
  read(questionId: Hex, entry?: RegistryEntry, at?: bigint): Promise<Round | undefined>
  readAll(questionId: Hex, entry?: RegistryEntry, at?: bigint): Promise<readonly Round[]>
  readonly tokenOf: TokenOf
}

type TokenOf = (address: Address, at: bigint) => Promise<Round['token']>

function tokenReader(chain: Chain): TokenOf {
  const tokens = new Map<Address, Promise<Round['token']>>()
  return (address, at) => {
    const token = tokens.get(address) ?? readToken(chain, address, at)
    tokens.set(address, token)
    token.catch(() => tokens.delete(address))
    return token
  }
}

export function createRoundReader(
  chain: Chain,
  contracts: Contracts,
  tokenOf: TokenOf = tokenReader(chain),
): RoundReader {
  const readAll: RoundReader['readAll'] = async (questionId, entry, at) => {
    const reading = { chain, contracts, at: at ?? (await latestBlock(chain)).number }
    const wanted = entry?.request?.requester ?? entry?.requester
    // One requester that answers in another shape must not hide the questions of all others.
    const refused: ChainError[] = []
    const rounds = await Promise.all(
      contracts.requesters
        .filter(({ address }) => wanted === undefined || address === wanted)
        .map(({ address: requester, kind }) =>
          roundAt(reading, kind, { requester, questionId, entry }, tokenOf).catch(
            (error: unknown) => {
              if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
              refused.push(error)
              return undefined
            },
          ),
        ),
    )
    const known = rounds.filter((round) => round !== undefined)
    if (known.length === 0 && refused[0] !== undefined) throw refused[0]
    return known
  }
  return { readAll, read: async (...asked) => (await readAll(...asked))[0], tokenOf }
}

async function roundAt(reading: Reading, kind: RequesterKind, asked: Asked, tokenOf: TokenOf) {
  const located = await resolvers[kind](reading, asked).catch((error: unknown) => {
    if (error instanceof ChainError && error.kind === 'reverted') return undefined
    throw error
  })
  if (located === undefined) return undefined
  const terms = await readTerms(reading, located.request)
  if (terms === undefined) return undefined
  const { request, paused = false, resolved, settlesHalf = true, isReopened = false } = located
  const state = requestStates[terms.state] ?? 'invalid'
  if (state === 'invalid') return undefined
  const binary = request.identifier === yesOrNoQuery
  return {
    ...request,
    questionId: asked.questionId,
    kind,
    state: resolved && state === 'requested' ? 'resolved' : state,
    paused,
    token: await tokenOf(terms.token, reading.at),
    totalBondRaw: terms.totalBondRaw,
    rewardRaw: terms.rewardRaw,
    proposer: terms.proposer,
    isReopened,
    creator: located.creator,
    outcomes: outcomesOf(request.ancillaryData, { settlesHalf, binary }),
    blockNumber: reading.at,
  }
}

/** Custom bond if it is not 0, else the request's, plus final fee (domain §4). */
export async function readTerms({ chain, contracts, at }: Reading, request: WitnessRequest) {
  const { oracle } = request
  const managedId = managedRequestId(request)
  const [state, found, bonds] = await Promise.all([
    heldState(chain, at, request),
    heldRequest(chain, at, request),
    Promise.all(
      contracts.tokens.map((token) =>
        readContract(chain, at, oracle, oracleAbi, 'customBonds', [managedId, token]),
      ),
    ),
  ])
  // Only a proposal brings a request beyond requested (domain §4).
  const proposer = holderOf(found.proposer)
  if (state > roundStates.requested !== (proposer !== undefined)) {
    throw new ChainError(
      'unavailable',
      `the node contradicts itself about a request: its state is ${state}, its proposer ${found.proposer}`,
    )
  }
  const token = lowercase(found.currency)
  const index = contracts.tokens.indexOf(token)
  if (token === zeroAddress || index < 0) return undefined
  const bondRaw = bonds[index]?.[0] || found.requestSettings.bond
  return {
    state,
    token,
    totalBondRaw: bondRaw + found.finalFee,
    rewardRaw: found.reward,
    proposer,
  }
}

export async function readToken(chain: Chain, address: Address, at: bigint) {
  const [symbol, decimals] = await Promise.all([
    readContract(chain, at, address, erc20Abi, 'symbol', []),
    readContract(chain, at, address, erc20Abi, 'decimals', []),
  ])
  return { address, symbol: plainText(symbol).slice(0, 32), decimals }
}
