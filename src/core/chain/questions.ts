/**
 * From a question id to its current round. How an ID maps to a request differs by requester, so it
 * stays behind one interface with one resolver per kind; only the CTF adapters' IDs are hashes of
 * the text (domain §5.1, §5.2). Used by the gateway and by the client.
 */
import { concatHex, keccak256 } from 'viem'
import { type Address, type Chain, ChainError, type Hex } from '../ports.js'
import type { WitnessRequest } from '../protocol/witness.js'
import { outcomesOf, plainText } from './ancillary.js'
import {
  ctfAdapterAbi,
  erc20Abi,
  ooReporterAbi,
  oracleAbi,
  roundStates,
  yesOrNoQuery,
} from './contracts.js'
import { lowercase, readContract, zeroAddress } from './reading.js'
import {
  type Contracts,
  keccakHex,
  type RequesterKind,
  type Round,
  requestStates,
} from './round.js'

/** What the question registry knows beyond the trusted requesters (contract §7, questions.json). */
export interface RegistryEntry {
  readonly questionId: Hex
  readonly slug?: string | undefined
  /** The one trusted requester to ask; without it all are asked. */
  readonly requester?: Address | undefined
  /** The request itself, for requesters of kind `direct`. */
  readonly request?: WitnessRequest | undefined
}

/** Where a question's current request is, as its requester tells. */
interface Located {
  readonly request: WitnessRequest
  readonly paused: boolean
  /** Settled at the requester by another way than the oracle: nothing is left to propose. */
  readonly resolved: boolean
  /** Whether the requester can settle p3 (domain §5.1 Neg-risk, §5.3). */
  readonly settlesHalf: boolean
}

interface Reading {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly at: bigint
}

type Resolver = (
  reading: Reading,
  requester: Address,
  questionId: Hex,
  entry: RegistryEntry | undefined,
) => Promise<Located | undefined>

const resolvers: Record<RequesterKind, Resolver> = {
  'uma-ctf-adapter': (reading, requester, questionId) =>
    ctfQuestion(reading, requester, questionId, true),
  'uma-ctf-adapter-negrisk': (reading, requester, questionId) =>
    ctfQuestion(reading, requester, questionId, false),
  'oo-reporter': reportedRequest,
  direct: async ({ contracts }, requester, _questionId, entry) => {
    const request = entry?.request
    if (
      request === undefined ||
      request.requester !== requester ||
      !contracts.oracles.includes(request.oracle)
    )
      return undefined
    return { request, paused: false, resolved: false, settlesHalf: true }
  },
}

/** UmaCtfAdapter v4 (domain §5.1): the only version on the managed oracle. */
async function ctfQuestion(
  { chain, contracts, at }: Reading,
  requester: Address,
  questionId: Hex,
  settlesHalf: boolean,
): Promise<Located | undefined> {
  const [question, flagged, oracleAddress] = await Promise.all([
    readContract(chain, at, requester, ctfAdapterAbi, 'getQuestion', [questionId]),
    readContract(chain, at, requester, ctfAdapterAbi, 'isFlagged', [questionId]),
    readContract(chain, at, requester, ctfAdapterAbi, 'optimisticOracle', []),
  ])
  const oracle = lowercase(oracleAddress)
  if (question.requestTimestamp === 0n || !contracts.oracles.includes(oracle)) return undefined
  // An adapter's question is its text; anything else under this ID is not the question that was
  // asked for.
  if (keccakHex(question.ancillaryData) !== questionId) return undefined
  return {
    request: {
      oracle,
      requester,
      identifier: yesOrNoQuery,
      timestamp: String(question.requestTimestamp),
      ancillaryData: question.ancillaryData,
    },
    paused: question.paused || flagged,
    resolved: question.resolved,
    settlesHalf,
  }
}

/**
 * OOReporter (domain §5.2). No getter of its oracle is documented: it is the pinned one that knows
 * the request.
 */
async function reportedRequest(
  { chain, contracts, at }: Reading,
  requester: Address,
  questionId: Hex,
): Promise<Located | undefined> {
  const found = await readContract(chain, at, requester, ooReporterAbi, 'getRequest', [questionId])
  if (!found.initialized || found.requestTimestamp === 0n) return undefined
  const { priceIdentifier: identifier, requestRules: ancillaryData, requestTimestamp } = found
  const states = await Promise.all(
    contracts.oracles.map((oracle) =>
      readContract(chain, at, oracle, oracleAbi, 'getState', [
        requester,
        identifier,
        requestTimestamp,
        ancillaryData,
      ]),
    ),
  )
  const oracle = contracts.oracles.find((_, index) => states[index] !== roundStates.invalid)
  if (oracle === undefined) return undefined
  return {
    request: { oracle, requester, identifier, timestamp: String(requestTimestamp), ancillaryData },
    paused: false,
    resolved: found.resolved,
    settlesHalf: true,
  }
}

/**
 * Custom bond, liveness and whitelist hang on this: the request without its timestamp (domain §4).
 */
export function managedRequestId(
  request: Pick<WitnessRequest, 'requester' | 'identifier' | 'ancillaryData'>,
): Hex {
  return keccak256(concatHex([request.requester, request.identifier, request.ancillaryData]))
}

/** Reads rounds; token symbols and decimals, which do not change, are asked once per reader. */
export interface RoundReader {
  /**
   * The question's current round as of one block (`at`, else the latest), or `undefined` where no
   * trusted requester knows it, or its oracle or token is not among the pinned ones. Rejects with
   * `ChainError` where that could not be found out: the node did not answer, or no requester knows
   * the question and a contract among them is not what configuration takes it for.
   */
  read(questionId: Hex, entry?: RegistryEntry, at?: bigint): Promise<Round | undefined>
  /**
   * The same of every requester that knows the ID: the ID of one text is the same at two adapters.
   * In the order of the pins.
   */
  readAll(questionId: Hex, entry?: RegistryEntry, at?: bigint): Promise<readonly Round[]>
}

/** Source: domain §4 (state, bond), §5 (requesters), contract §1 (question, request, round). */
export function createRoundReader(chain: Chain, contracts: Contracts): RoundReader {
  const tokens = new Map<Address, Promise<Round['token']>>()
  const tokenFacts = (address: Address, at: bigint) => {
    const known = tokens.get(address)
    if (known) return known
    const asked = readToken(chain, address, at)
    tokens.set(address, asked)
    // A failure is handed to whoever asked; the next one asks anew.
    asked.catch(() => tokens.delete(address))
    return asked
  }

  const inRequester = async (
    reading: Reading,
    requester: { address: Address; kind: RequesterKind },
    questionId: Hex,
    entry?: RegistryEntry,
  ) => {
    const located = await resolvers[requester.kind](
      reading,
      requester.address,
      questionId,
      entry,
    ).catch((error: unknown) => {
      // A requester that reverts on an ID does not know it; that must not hide the question from
      // the other requesters.
      if (error instanceof ChainError && error.kind === 'reverted') return undefined
      throw error
    })
    if (located === undefined) return undefined
    const terms = await readTerms(reading, located.request)
    if (terms === undefined) return undefined
    const state = requestStates[terms.state] ?? 'invalid'
    if (state === 'invalid') return undefined
    const round: Round = {
      ...located.request,
      questionId,
      kind: requester.kind,
      state: located.resolved && state === 'requested' ? 'resolved' : state,
      paused: located.paused,
      token: await tokenFacts(terms.token, reading.at),
      totalBondRaw: terms.totalBondRaw,
      outcomes: outcomesOf(located.request.ancillaryData, {
        settlesHalf: located.settlesHalf,
        binary: located.request.identifier === yesOrNoQuery,
      }),
      blockNumber: reading.at,
    }
    return round
  }

  const reader: RoundReader = {
    read: async (questionId, entry, at) => (await reader.readAll(questionId, entry, at))[0],
    async readAll(questionId, entry, at) {
      const reading = { chain, contracts, at: at ?? (await latest(chain)) }
      const wanted = entry?.request?.requester ?? entry?.requester
      const asked = contracts.requesters.filter(
        ({ address }) => wanted === undefined || address === wanted,
      )
      // One requester that answers in another shape must not hide the questions of all others; a
      // node's silence leaves them open.
      const odd: ChainError[] = []
      const rounds = await Promise.all(
        asked.map((requester) =>
          inRequester(reading, requester, questionId, entry).catch((error: unknown) => {
            if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
            odd.push(error)
            return undefined
          }),
        ),
      )
      const known = rounds.filter((round) => round !== undefined)
      if (known.length === 0 && odd[0] !== undefined) throw odd[0]
      return known
    },
  }
  return reader
}

/** One read without a reader to keep. See `RoundReader.read`. */
export function resolveRound(
  chain: Chain,
  contracts: Contracts,
  questionId: Hex,
  registryEntry?: RegistryEntry,
): Promise<Round | undefined> {
  return createRoundReader(chain, contracts).read(questionId, registryEntry)
}

async function latest(chain: Chain): Promise<bigint> {
  const head = await chain.block('latest')
  if (head === null) throw new ChainError('unavailable', 'the node knows no latest block')
  return head.number
}

/**
 * State, currency and what a proposal would be charged, in raw token units: custom bond if it is
 * not 0, else the request's, plus final fee (domain §4). `undefined` where the request is unknown
 * or in no pinned token. Rejects with `ChainError`.
 */
export async function readTerms({ chain, contracts, at }: Reading, request: WitnessRequest) {
  const key = [
    request.requester,
    request.identifier,
    BigInt(request.timestamp),
    request.ancillaryData,
  ] as const
  const managedId = managedRequestId(request)
  // The currency is only known from the answer, and asking for every pinned token saves a round
  // trip.
  const [state, found, bonds] = await Promise.all([
    readContract(chain, at, request.oracle, oracleAbi, 'getState', key),
    readContract(chain, at, request.oracle, oracleAbi, 'getRequest', key),
    Promise.all(
      contracts.tokens.map((token) =>
        readContract(chain, at, request.oracle, oracleAbi, 'customBonds', [managedId, token]),
      ),
    ),
  ])
  // Only a proposal brings a request beyond requested (domain §4): a node that says otherwise of
  // the two is not believed.
  if (state > roundStates.requested !== (lowercase(found.proposer) !== zeroAddress)) {
    throw new ChainError(
      'unavailable',
      `the node contradicts itself about a request: its state is ${state}, its proposer ${found.proposer}`,
    )
  }
  const token = lowercase(found.currency)
  const index = contracts.tokens.indexOf(token)
  if (token === zeroAddress || index < 0) return undefined
  const customRaw = bonds[index]?.[0] ?? 0n
  return {
    state,
    token,
    totalBondRaw: (customRaw !== 0n ? customRaw : found.requestSettings.bond) + found.finalFee,
  }
}

async function readToken(chain: Chain, address: Address, at: bigint): Promise<Round['token']> {
  const [symbol, decimals] = await Promise.all([
    readContract(chain, at, address, erc20Abi, 'symbol', []),
    readContract(chain, at, address, erc20Abi, 'decimals', []),
  ])
  return { address, symbol: plainText(symbol).slice(0, 32), decimals }
}
