/**
 * Everything core may ask of the world; `io/system.ts` builds the real ones, tests hand in
 * simulated ones (robustness §8).
 */

export type Hex = `0x${string}`

/** Wall time orders nothing (R13): `nowMs` dates records, `monotonicMs` measures durations. */
export interface Clock {
  /** Since the Unix epoch. */
  nowMs(): number
  /** From one origin for all processes of the machine, until it boots. */
  monotonicMs(): number
  /** Rejects with the signal's reason. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

export interface Random {
  bytes(length: number): Uint8Array
  /** Version 4, in lowercase. */
  uuid(): string
}

export interface Hash {
  /** Lowercase hex; a string is hashed as UTF-8. */
  sha256(data: Uint8Array | string): string
}

/** RFC 8032. Keys and seeds are 32 bytes, signatures 64. */
export interface Ed25519 {
  signer(seed: Uint8Array): {
    readonly publicKey: Uint8Array
    sign(message: Uint8Array): Uint8Array
  }
  verify(publicKey: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean
}

/** Nothing is durable before `datasync` returned. */
export interface FileHandle {
  /** How many bytes were taken: maybe fewer than `length`. */
  write(buffer: Uint8Array, offset: number, length: number): Promise<number>
  /** Shorter only at the end of the file. */
  read(position: number, length: number): Promise<Uint8Array>
  datasync(): Promise<void>
  truncate(length: number): Promise<void>
  size(): Promise<number>
  close(): Promise<void>
}

/**
 * Kept apart, so that a test can stop between any two (R23). Errors carry Node's `code`. `append`
 * creates with 0600, `exclusive` fails with EEXIST.
 */
export interface Files {
  open(path: string, mode: 'read' | 'append' | 'exclusive'): Promise<FileHandle>
  read(path: string): Promise<Uint8Array>
  /** Atomic within a folder; durable only after `syncDir`. */
  rename(from: string, to: string): Promise<void>
  /** EEXIST when `to` exists. */
  link(from: string, to: string): Promise<void>
  remove(path: string): Promise<void>
  /** With its parents, mode 0700; no error when it exists. */
  makeDir(path: string): Promise<void>
  syncDir(path: string): Promise<void>
  list(path: string): Promise<string[]>
  exists(path: string): Promise<boolean>
}

/**
 * A pathname Unix socket. `alive` also for a stopped process, `dead` only where nobody can be
 * listening (robustness §2, Lock).
 */
export interface Liveness {
  /** EADDRINUSE when the name is taken. */
  listen(path: string): Promise<{ close(): Promise<void> }>
  probe(path: string): Promise<'alive' | 'dead' | 'unknown'>
  readonly bootId: string
  readonly host: string
  readonly pid: number
}

export interface HttpAnswer {
  readonly status: number
  readonly headers: Pick<Headers, 'get'>
  readonly body: ReadableStream<Uint8Array> | null
}

export interface HttpCall {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array<ArrayBuffer>
  readonly redirect?: 'manual' | 'error'
  readonly credentials?: 'omit'
  readonly signal?: AbortSignal | null
}

/** As the global `fetch`, or less. */
export type Fetch = (url: string | URL, call?: HttpCall) => Promise<HttpAnswer>

export interface BlockHeader {
  number: bigint
  hash: Hex
  parentHash: Hex
  /** Unix seconds. */
  timestamp: bigint
  baseFeePerGas: bigint
  gasLimit?: bigint | undefined
}

export interface ChainLog {
  address: Hex
  topics: readonly Hex[]
  data: Hex
  blockNumber: bigint
  blockHash: Hex
  transactionHash: Hex
  logIndex: number
  /** Unix seconds. */
  blockTimestamp?: bigint | undefined
}

export interface ChainReceipt {
  transactionHash: Hex
  blockNumber: bigint
  blockHash: Hex
  status: 'success' | 'reverted'
  /**
   * Absent where the node does not tell, as `gasPriceWei`; `to` is `null` where a contract was
   * created.
   */
  from?: Hex | undefined
  to?: Hex | null | undefined
  gasUsed: bigint
  gasPriceWei?: bigint | undefined
  logs: readonly ChainLog[]
}

/** Fees are an offer that code sees, and that the balance of `from` has to cover. */
export interface ChainCall
  extends Pick<UnsignedTransaction, 'to' | 'data'>,
    Partial<Pick<UnsignedTransaction, 'gas' | 'maxFeePerGas' | 'maxPriorityFeePerGas'>> {
  from?: Hex
}

/** Every method rejects with `ChainError` and nothing else. */
export interface Chain {
  chainId(): Promise<number>
  block(at: 'latest' | 'finalized' | 'pending' | bigint): Promise<BlockHeader | null>
  call(call: ChainCall, at?: 'latest' | 'pending' | bigint): Promise<Hex>
  logs(filter: {
    fromBlock: bigint
    toBlock: bigint
    addresses: readonly Hex[]
    topics?: readonly (Hex | readonly Hex[] | null)[]
    /** Of a range of one block: of this and no other, else `unavailable` (EIP-234). */
    blockHash?: Hex
  }): Promise<readonly ChainLog[]>
  code(address: Hex, at?: 'latest' | bigint): Promise<Hex>
  storage(address: Hex, slot: Hex, at?: 'latest' | bigint): Promise<Hex>
  balance(address: Hex): Promise<bigint>
  transactionCount(address: Hex, at: 'latest' | 'pending' | 'finalized'): Promise<number>
  estimateGas(call: ChainCall): Promise<bigint>
  tip(): Promise<bigint>
  send(raw: Hex): Promise<Hex>
  receipt(hash: Hex): Promise<ChainReceipt | null>
  /** Mined or pending. */
  hasTransaction(hash: Hex): Promise<boolean>
  calldata(hash: Hex): Promise<Hex | null>
}

export type ChainErrorKind =
  | 'reverted' // the call ran and reverted; `data` is the raw revert data
  | 'unavailable' // time-out, reset, 429, 5xx, bad JSON: outcome unknown
  | 'already_known'
  | 'nonce_too_low'
  | 'nonce_too_high'
  | 'replacement_underpriced'
  | 'underpriced' // the tip is below the node's minimum
  | 'insufficient_funds'
  | 'too_much_gas' // its gas limit is above a block's, or above what one transaction may have
  | 'refused' // the node answered with another error

export class ChainError extends Error {
  constructor(
    readonly kind: ChainErrorKind,
    message: string,
    readonly data: Hex = '0x',
  ) {
    super(message)
    this.name = 'ChainError'
  }
}

export interface Signer {
  readonly address: Hex
  /** 65 bytes r‖s‖v with v 27 or 28 and low s. A wallet outside refuses. */
  signDigest(digest: Hex): Promise<Hex>
  /** Only wallets outside. The caller checks what comes back, here and below: it may be any hex. */
  signTypedData?(typedData: object, shown?: readonly ShownRow[]): Promise<string>
  /** Only wallets outside, with nonce and fees of their own. */
  sendTransaction?(transaction: WalletTransaction, shown: readonly ShownRow[]): Promise<string>
  /** Only a remote signer of the executor. */
  signTransaction?(unsigned: UnsignedTransaction): Promise<string>
}

/** EIP-1559, without coin. Fees in wei. */
export interface UnsignedTransaction {
  readonly chainId: number
  readonly nonce: number
  readonly to: Hex
  readonly data: Hex
  readonly gas: bigint
  readonly maxFeePerGas: bigint
  readonly maxPriorityFeePerGas: bigint
}

/** `eth_sendTransaction`, without coin. */
export interface WalletTransaction {
  readonly chainId: number
  readonly from: Hex
  readonly to: Hex
  readonly data: Hex
}

export type ShownRow = readonly [label: string, value: string]

/**
 * The only error a `Fetch` of ours rejects with, beside the abort reason of a caller's signal
 * before anything was sent. After `exchange` the outcome is uncertain; `connect` covers name
 * look-up, TCP and TLS (robustness §6).
 */
export class TransportError extends Error {
  constructor(
    readonly phase: 'connect' | 'exchange',
    /** Node's or undici's code, such as ECONNREFUSED; never an address. */
    readonly code: string,
    message: string,
  ) {
    super(message)
    this.name = 'TransportError'
  }
}

/**
 * A hint, `undefined` where nobody there knows it: the chain has to confirm the id (domain §5.4).
 */
export type SlugLookUp = (slug: string, signal: AbortSignal) => Promise<Hex | undefined>

/** A hint: the chain has to confirm it (domain §5.4). Times are RFC 3339. */
export interface Market {
  readonly slug: string
  readonly title: string
  /** Absent for a market that the oracle does not settle. */
  readonly questionId: Hex | undefined
  readonly endsAt: string | undefined
  readonly status: string | undefined
  readonly statuses: readonly string[]
  readonly closed?: boolean | undefined
  readonly gameStartsAt?: string | undefined
  /** From 0 to 1. */
  readonly prices?: { readonly p2: number; readonly p1: number } | undefined
}

/** Not closed, soonest end first. Times are RFC 3339. */
export interface MarketPage {
  readonly endsAfter: string
  readonly endsBefore?: string | undefined
  readonly offset: number
  readonly limit: number
}

export interface Markets {
  page(
    asked: MarketPage,
    signal: AbortSignal,
  ): Promise<{ readonly markets: readonly Market[]; readonly isLast: boolean }>
  event(slug: string, signal: AbortSignal): Promise<readonly Market[] | undefined>
  market(slug: string, signal: AbortSignal): Promise<Market | undefined>
  /** Up to 50; those that nobody there knows are left out. */
  byQuestions(questionIds: readonly Hex[], signal: AbortSignal): Promise<readonly Market[]>
}

/** The message names no address (R5). */
export class SlugLookUpError extends Error {
  constructor(
    message: string,
    readonly retryAfterMs?: number,
  ) {
    super(message)
    this.name = 'SlugLookUpError'
  }
}

/** `code`: SQLSTATE where the server answered, else Node's code. */
export class SqlError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly isAnswered: boolean,
  ) {
    super(message)
    this.name = 'SqlError'
  }
}

export type SqlRow = Readonly<Record<string, unknown>>

/** One statement at a time; every failure is a `SqlError`. */
export interface SqlSession {
  query(text: string, values?: readonly unknown[]): Promise<readonly SqlRow[]>
  /** For a statement that may take as long as it likes. */
  await(text: string): Promise<readonly SqlRow[]>
  script(text: string): Promise<readonly SqlRow[]>
  /** That came since the last call. */
  notices(): readonly { readonly code: string; readonly message: string }[]
  readonly isLost: boolean
  destroy(): void
}

export interface SqlDatabase {
  readonly name: string
  /** With the host that takes writes, of one or more. */
  connect(): Promise<SqlSession>
}

export interface ExpectedChain {
  readonly expectedChainId?: number
  readonly maxHeadAgeSeconds?: number
}

export interface Ports {
  readonly clock: Clock
  readonly random: Random
  readonly hash: Hash
  readonly files: Files
  readonly liveness: Liveness
  /** Aborted where the process must end; `reason` is an InterruptedError. */
  readonly signal: AbortSignal
  /** After each durable step of the executor. Only tests give one (R23). */
  readonly failpoint?: (name: string) => Promise<void>
  /** Built on demand, so that a command loads only what it uses. */
  readonly edges: {
    fetch(): Promise<Fetch>
    /** Several URLs fail over (R16). */
    chain(rpcUrls: readonly string[], expected?: ExpectedChain): Promise<Chain>
    database(url: string): Promise<SqlDatabase>
  }
}

/** `cwd`: where relative paths of the user start. */
export interface Machine extends Ports {
  readonly cwd: string
  /** Of the gateway's store; it stands before gateway.json. */
  readonly storeUrlFile?: string | undefined
}
