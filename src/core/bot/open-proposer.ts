/** What the commands do, for programs of others. */
import { aggregating } from '#chain/aggregate'
import { requireRpcUrl } from '#chain/unavailable'
import { createPlanner, withBudget } from '#client/budget/planner'
import { type PollOptions, type PollResult, pollCandidates } from '#client/follow/follow'
import { type WalletFunds, walletFunds } from '#client/funds/funds'
import { anySignal } from '#client/gateway/answer'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { checkBatch, type IntentTerms, readBatch } from '#client/input/input'
import { openJournal } from '#client/journal/journal'
import { type Positions, readPositions } from '#client/positions/positions'
import { type IntentInWords, knownQuestionId } from '#client/propose/intent'
import { lookAt, newSpending, type SpendingLimits } from '#client/propose/limits'
import type { CallLimits, OnRetry } from '#client/propose/send'
import { intentRow } from '#client/propose/sign-rows'
import {
  type ReplayResult,
  type RowResult,
  replay,
  submitOne,
  submitRows,
} from '#client/propose/submit'
import { contextsFrom } from '#client/trust/context'
import { parseTrust, receiptKeysOf, type Trust } from '#client/trust/trust'
import { type Reconciled, reconcile } from '#client/wallet/reconcile'
import { type Closers, opening } from '#io/closers'
import { systemEd25519 } from '#io/ed25519'
import { createHttp } from '#io/http'
import { readJsonFile } from '#io/json-file'
import { systemCurve } from '#io/keys'
import { createChain } from '#io/rpc/rpc'
import { yieldToEvents } from '#io/serving/load'
import { systemPorts } from '#io/system'
import type { Fetch, Hex, Signer } from '#ports'
import { InterruptedError, UsageError } from '#protocol/errors'
import { plainIdentifier, requireIdentifier } from '#protocol/market-url'
import { once } from '#protocol/once'
import { wordFault } from '#protocol/outcome-words'
import { lowercase } from '#protocol/words'

export interface ProposerOptions {
  /** Folder of journal and rate limit, which commands share by `--home`. */
  readonly home: string
  /** URL: https, or http on a loopback name. */
  readonly gateway: string
  /**
   * URL of a node, or several by preference. With one, contexts come from the chain, free of the
   * rate limit; without, no bond is confirmed: `maxAmountRaw` is 5,000,000,000 by default.
   */
  readonly rpcUrl?: string | readonly string[] | undefined
  /** What a trust.json holds, or the path of one. */
  readonly trust: Trust | string
  /** `signerFromKey`, `signerFromViem` or your own; left alone by `close`. */
  readonly signer: Signer
  /** Stops every call. */
  readonly signal?: AbortSignal | undefined
  /** Waits, retries, ends of earlier rounds. */
  readonly onNote?: ((text: string) => void) | undefined
  /** Default: `createHttp()`. */
  readonly fetch?: Fetch | undefined
}

/** `outcome`: p1 to p3, yes, no or a label. Terms left out follow from the question. */
export type ProposalTerms = Omit<IntentInWords, 'proposer'>

export type ProposalRow = Pick<
  ProposalTerms,
  'identifier' | 'outcome' | 'clientRef' | 'amountRaw' | 'nonce' | 'deadlineSeconds' | 'rulesSeen'
>

export interface SubmitAllOptions
  extends Partial<SpendingLimits>,
    CallLimits,
    Pick<IntentTerms, 'maxAmountRaw' | 'headroomBasisPoints'> {
  /** Of the same rows what is accepted or closed already is left alone. */
  readonly resume?: boolean | undefined
}

export interface Submitted extends RowResult {
  readonly authorization: NonNullable<RowResult['authorization']>
  readonly candidate: NonNullable<RowResult['candidate']>
}

export interface Proposer extends AsyncDisposable {
  /** The signer's wallet, in lower case. */
  readonly address: string
  /**
   * Signs and sends one; an open authorization of the same answer is sent again as it was saved.
   * Throws the ProposerError that says what to do next; after an UncertainError call it again: it
   * sends the same bytes.
   */
  submit(terms: ProposalTerms, limits?: CallLimits): Promise<Submitted>
  /**
   * As the rate limit allows; one result a row, in order, with its `error`. Throws where the rows,
   * their sum or the journal are wrong.
   */
  submitAll(
    rows: Iterable<ProposalRow>,
    options?: SubmitAllOptions,
  ): AsyncGenerator<RowResult, void, undefined>
  /**
   * Until they are executed or failed. `error`: FailedError, PendingError when the time is over, or
   * why nobody answered.
   */
  follow(candidateIds: string | readonly string[], options?: PollOptions): Promise<PollResult>
  /** Saved bytes of unknown or deferred outcome again, by default all; never signs. */
  replay(journalIds?: readonly string[], limits?: CallLimits): Promise<ReplayResult>
  /** Balance, allowance, what open authorizations reserve. UsageError `no_rpc_url`. */
  funds(): Promise<WalletFunds>
  /** What became of executed proposals, and the sums. UsageError `no_rpc_url`. */
  positions(): Promise<Positions>
  /** Journal, gateway and chain on one question, and what is safe to do next. */
  reconcile(identifier: string): Promise<Reconciled>
  /** Stops what is running and waits for it. */
  close(): Promise<void>
}

/**
 * The client of one wallet at one gateway. Throws UsageError: `invalid_base_url`,
 * `invalid_rpc_url`, `invalid_trust`, `input_unreadable`.
 */
export const openProposer = (options: ProposerOptions): Promise<Proposer> =>
  proposerOn(systemPorts(), options)

type Ports = ReturnType<typeof systemPorts>

export const proposerOn = (ports: Ports, options: ProposerOptions): Promise<Proposer> =>
  opening(async (closers) => proposerOf(await openParts(ports, options, closers.add), closers))

type BotParts = Awaited<ReturnType<typeof openParts>>

async function openParts(ports: Ports, options: ProposerOptions, closing: Closers['add']) {
  const { home, trust: pins, signer: wallet } = options
  const { clock, files, hash } = ports
  const stop = new AbortController()
  const signal = anySignal(stop.signal, options.signal)
  const hint = 'give the path of a trust.json, or what it holds'
  const trust =
    typeof pins === 'string'
      ? parseTrust(await readJsonFile({ files, cwd: '' }, pins, hint), pins)
      : parseTrust(pins, 'trust')
  const http = createHttp()
  closing(http.close)
  const note = (text: string) => options.onNote?.(text)
  const onUnproven = (code: string, detail: string) => note(`${code}: ${detail}`)
  const receipts = { hash, ed25519: systemEd25519, keys: receiptKeysOf(trust), onUnproven }
  const { fetch = http.fetch, gateway: baseUrl } = options
  const client = createGatewayClient({ fetch, baseUrl, clock, receipts })
  const planner = createPlanner(ports, home, client.origin, {
    onWait: (ms, reason) => note(`waiting ${Math.ceil(ms / 1_000)} s: ${reason}`),
    onNote: note,
  })
  // A broken log of calls is told before anything is signed.
  await planner.snapshot()
  const gateway = withBudget(client, planner, { signal })
  closing(gateway.close)
  const urls = [options.rpcUrl ?? []].flat().map((url) => requireRpcUrl(url, 'rpcUrl'))
  const chain = urls.length > 0 ? createChain(urls) : undefined
  if (chain) closing(chain.close)
  const journal = openJournal(ports, home)
  closing(journal.close)
  const contexts = await contextsFrom({ trust, clock, chain, gateway: async () => gateway })
  const onRetry: OnRetry = ({ reason, waitMs }) =>
    note(`${reason}; resending the same bytes in ${Math.ceil(waitMs / 1_000)} s`)
  return {
    ...{ ports, home, journal, trust, gateway, chain, wallet, contexts, note, stop, signal },
    limited: <T extends CallLimits>(limits: T) => {
      return { ...limits, onRetry, signal: anySignal(signal, limits.signal) }
    },
    contextsAreFree: chain !== undefined,
    signer: async () => wallet,
    recovery: async () => systemCurve().recover,
    proposer: async () => lowercase(wallet.address),
  }
}

function proposerOf(parts: BotParts, closers: Closers): Proposer {
  const { ports, home, journal, trust, stop, signal, limited } = parts
  const address = lowercase(parts.wallet.address)
  const running = new Set<Promise<unknown>>()
  const close = once(async () => {
    stop.abort(new InterruptedError('interrupted', 'the proposer was closed'))
    await Promise.allSettled(running)
    await closers.close()
  })

  async function during<T>(work: () => Promise<T>) {
    if (stop.signal.aborted)
      throw new UsageError('proposer_closed', 'this proposer was closed', 'open another one')
    const done = work()
    running.add(done)
    try {
      return jsonReady(await done)
    } finally {
      running.delete(done)
    }
  }
  async function atNode(what: string) {
    const { chain } = parts
    if (chain !== undefined) return { chain, view: await journal.load() }
    throw new UsageError('no_rpc_url', `${what} are read from a node`, 'give rpcUrl')
  }

  return {
    address,
    submit: (terms, limits = {}) =>
      during(async () => {
        const identifier = requireIdentifier(terms.identifier)
        const { outcome } = terms
        const wrong = typeof outcome === 'string' ? wordFault(outcome) : 'is missing'
        if (wrong) throw new UsageError('bad_outcome', `outcome ${outcome} ${wrong}`)
        const row = intentRow({ ...terms, identifier, proposer: address })
        const options = limited(limits)
        const signing = { ...parts, form: 'single', signal: options.signal } as const
        const result = await submitOne(signing, row, options)
        if (result.error) throw result.error
        return result as Submitted
      }),
    async *submitAll(rows, options = {}) {
      const results = submitMany(parts, rows, options)
      try {
        for (;;) {
          const { done, value } = await during(() => results.next())
          if (done === true) return
          yield* value
        }
      } finally {
        await results.return(undefined)
      }
    },
    follow: (candidateIds, options = {}) => {
      const targets = [candidateIds].flat().map((candidateId) => ({ candidateId }))
      return during(() => pollCandidates(parts, targets, limited(options)))
    },
    replay: (journalIds, limits = {}) =>
      during(() => replay(parts, journalIds ?? 'all', limited(limits))),
    funds: () =>
      during(async () => {
        const { chain, view } = await atNode('funds')
        return walletFunds(chain, trust, view, address)
      }),
    positions: () =>
      during(async () => {
        const { chain, view } = await atNode('positions')
        const folding = aggregating(chain, yieldToEvents)
        return readPositions({ ...ports, chain: folding, trust, view, home, signal }, [address])
      }),
    reconcile: (identifier) => during(() => reconcile(parts, plainIdentifier(identifier))),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** What holds bigints gets a `toJSON` with decimal strings. */
function jsonReady<T>(value: T) {
  const isPlain = Array.isArray(value) || Object.getPrototypeOf(value ?? 0) === Object.prototype
  const members = isPlain ? Object.values(value as object).map(jsonReady) : []
  if (members.some((member) => typeof member === 'bigint') && Object.isExtensible(value))
    Object.defineProperty(value, 'toJSON', { configurable: true, value: withDecimals })
  return value
}

function withDecimals(this: object) {
  const written = (member: unknown) => (typeof member === 'bigint' ? `${member}` : member)
  return Object.fromEntries(Object.entries(this).map(([name, member]) => [name, written(member)]))
}

async function* submitMany(bot: BotParts, rows: Iterable<ProposalRow>, options: SubmitAllOptions) {
  const { ports, trust, proposer } = bot
  const { fit = false, maxSpendRaw, maxAmountRaw, headroomBasisPoints, ...rest } = options
  const sending = bot.limited(rest)
  const { resume = false, signal } = sending
  const read = readBatch({ name: 'rows', rows: Array.from(rows, fieldsOf) })
  const parts = { ...bot, plans: new Map(), terms: { maxAmountRaw, headroomBasisPoints } }
  const view = await bot.journal.load()
  const { input, fingerprint } = await checkBatch(read, {
    ...{ hash: ports.hash, proposer, journal: { view, resume } },
    questionOf: (identifier) => knownQuestionId(trust, identifier, view),
  })
  read.faults.throwAny()
  const spending = newSpending(parts, { fit, maxSpendRaw })
  const { refusal } = await lookAt(parts, input, read.faults, spending.limits, { signal })
  if (refusal) throw refusal
  const { chunkSize } = bot.gateway
  yield* submitRows(parts, input, { ...sending, resume, fingerprint, spending, chunkSize })
}

const fieldsOf = (row: ProposalRow) => ({
  identifier: row.identifier,
  outcome: row.outcome,
  client_ref: row.clientRef,
  amount: row.amountRaw?.toString(),
  nonce: row.nonce?.toString(),
  deadline: row.deadlineSeconds?.toString(),
  rules_seen: row.rulesSeen,
})

/** A local account has `sign`, a wallet's may have typed data alone. */
export interface ViemAccount {
  readonly address: Hex
  readonly sign?: ((parameters: { readonly hash: Hex }) => Promise<Hex>) | undefined
  readonly signTypedData?: ((typedData: never) => Promise<Hex>) | undefined
}

/**
 * Digests where the account can, as of `privateKeyToAccount`, else EIP-712 data. For a wallet client
 * give `{ address, signTypedData: (data) => client.signTypedData({ account, ...data }) }`.
 */
export function signerFromViem({ address: given, sign, signTypedData }: ViemAccount): Signer {
  const address = lowercase(given)
  if (sign !== undefined) return { address, signDigest: (hash) => sign({ hash }) }
  const lacking = () => {
    const hint = 'give a local account, or an object with address and signTypedData'
    throw new UsageError('signer_needs_typed_data', `the account ${address} has no sign`, hint)
  }
  if (signTypedData === undefined) return lacking()
  return {
    address,
    signDigest: async () => lacking(),
    signTypedData: (typedData) => signTypedData(typedData as never),
  }
}
