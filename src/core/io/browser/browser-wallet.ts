/**
 * A wallet in the browser of the person at this machine (contract §9, `--browser`): one page, on
 * which it is asked for one thing after the other. The caller checks what it answers; account and
 * chain are checked here.
 */
import * as z from 'zod/mini'
import type { ShownRow, Signer } from '#ports'
import { UnavailableError, UsageError } from '#protocol/errors'
import { safeText } from '#protocol/node-words'
import type { Address } from '#protocol/schema'
import { jsonLook, type Look, refused } from '../serving/looks.js'
import { listenForWallet, type WalletListener } from './wallet-listener.js'

export interface BrowserWallet {
  account(): Promise<Address>
  signer(address: Address): Signer
  expect(total: number): void
  close(): Promise<void>
}

export interface BrowserWalletOptions {
  readonly timeoutMs: number
  readonly signal: AbortSignal
  /** Called once, with the address of the page, when the wallet is first needed. */
  readonly onPage: (url: string) => Promise<void>
  /** What a person has to mend, such as another account. */
  readonly onProblem: (text: string) => void
}

type Task =
  | { readonly kind: 'connect' }
  | { readonly kind: 'sign'; readonly document: object }
  | { readonly kind: 'send'; readonly transaction: object }

interface Wanted {
  readonly task: Task
  readonly summary: readonly ShownRow[]
  readonly account?: Address
  readonly chainId?: number
}

interface Asking extends Wanted {
  settle(answer: string | Error): void
}

/** The page's call for what comes next is answered this often at least. */
const longPollMs = 20_000

const address = z.string().check(z.regex(/^0x[0-9a-f]{40}$/))
const id = z.int().check(z.minimum(0))
const Answer = z.union([
  z.strictObject({
    id,
    account: address,
    chain_id: z.int().check(z.minimum(0)),
    result: z.nullable(z.string()),
  }),
  z.strictObject({ id, refused: z.string() }),
])
const Problem = z.strictObject({ id, problem: z.string() })
const Next = z.strictObject({ seen: id })

/**
 * Nothing listens before it is first needed. `signer_timed_out`: somebody opened the page and no
 * answer came, so the wallet may sign yet.
 */
export function openBrowserWallet(options: BrowserWalletOptions): BrowserWallet {
  const page = newPage(options)
  const { ask } = page
  return {
    async account() {
      const wanted = { task: { kind: 'connect' }, summary: connectRows } as const
      return (await ask(wanted)) as Address
    },
    signer: (account) => ({
      address: account,
      async signDigest() {
        throw new UsageError(
          'signer_needs_typed_data',
          'a browser wallet cannot sign a bare digest',
          'use --account for this command',
        )
      },
      signTypedData: (document, summary = []) =>
        ask({ task: { kind: 'sign', document }, summary, account, chainId: chainOf(document) }),
      sendTransaction: ({ chainId, from, to, data }, summary) =>
        ask({
          task: { kind: 'send', transaction: { from, to, data, value: '0x0' } },
          summary,
          account,
          chainId,
        }),
    }),
    expect: page.expect,
    close: page.close,
  }
}

const connectRows: readonly ShownRow[] = [
  ['account', 'The account that the wallet shows to this page first is the proposer.'],
]

/** Documents of ours name their chain; `walletTypedData` makes it a number. */
const chainOf = (document: object) =>
  Number((document as { readonly domain?: { readonly chainId?: unknown } }).domain?.chainId)

function newPage({ timeoutMs, signal, onPage, onProblem }: BrowserWalletOptions) {
  let listener: Promise<WalletListener> | undefined
  let asking: Asking | undefined
  let number = 0
  let total = 0
  let version = 0
  let isOpened = false
  let isClosed = false
  const watchers = new Set<() => void>()
  const changed = () => {
    version++
    for (const wake of [...watchers]) wake()
  }

  const shown = () => {
    if (isClosed) return { kind: 'end' }
    if (asking === undefined) return { kind: 'wait', id: version }
    const { task, summary, account, chainId } = asking
    return { ...task, id: version, summary, account, chain_id: chainId, number, total }
  }

  const next = async (body: unknown, gone: AbortSignal) => {
    const read = Next.safeParse(body)
    if (!read.success) return badCall()
    if (read.data.seen === version && !isClosed)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, longPollMs)
        function done() {
          clearTimeout(timer)
          watchers.delete(done)
          gone.removeEventListener('abort', done)
          resolve()
        }
        watchers.add(done)
        gone.addEventListener('abort', done)
      })
    return jsonLook(read.data.seen === version && !isClosed ? { kind: 'same' } : shown())
  }

  const answer = async (body: unknown): Promise<Look> => {
    const read = Answer.safeParse(body)
    if (!read.success) return badCall()
    if (asking === undefined || read.data.id !== version)
      return refused(409, 'stale', 'the command no longer waits for this answer')
    asking.settle('refused' in read.data ? saidNo(read.data.refused) : resultOf(asking, read.data))
    return jsonLook({ ok: true })
  }

  const problem = async (body: unknown) => {
    const read = Problem.safeParse(body)
    if (!read.success) return badCall()
    if (asking !== undefined && read.data.id === version) onProblem(safeText(read.data.problem))
    return jsonLook({ ok: true })
  }

  const opened = () => {
    isOpened = true
  }
  const listen = async () => {
    const made = await listenForWallet({ opened, calls: { next, answer, problem } })
    await onPage(made.url)
    return made
  }

  return {
    expect(count: number) {
      total = count
    },
    async ask(wanted: Wanted) {
      signal.throwIfAborted()
      listener ??= listen()
      await listener
      if (wanted.task.kind !== 'connect') number++
      const overdue = AbortSignal.timeout(timeoutMs)
      const result = await new Promise<string | Error>((settle) => {
        asking = { ...wanted, settle }
        signal.addEventListener('abort', () => settle(signal.reason as Error), { once: true })
        overdue.addEventListener('abort', () => settle(late(timeoutMs, isOpened)), { once: true })
        changed()
      })
      asking = undefined
      changed()
      if (typeof result !== 'string') throw result
      return result
    },
    async close() {
      isClosed = true
      changed()
      await (await listener)?.close()
    },
  }
}

function resultOf(
  { task, account, chainId }: Wanted,
  given: { readonly account: string; readonly chain_id: number; readonly result: string | null },
) {
  if (task.kind === 'connect') return given.account
  if (given.account !== account)
    return new UsageError(
      'wrong_account',
      `the browser wallet answered with account ${given.account}, not ${account}`,
      'choose that account in the wallet, then rerun the command',
    )
  if (given.chain_id !== chainId)
    return new UsageError(
      'wrong_chain',
      `the browser wallet is on chain ${given.chain_id}, not ${chainId}`,
      `switch the wallet to chain ${chainId}, then rerun the command`,
    )
  if (given.result !== null && given.result !== '0x') return given.result
  return new UsageError(
    'signer_answer',
    `the browser wallet cannot be used: its response holds no ${task.kind === 'send' ? 'transaction hash' : 'signature'}`,
    'retry with another wallet in the browser',
  )
}

const saidNo = (words: string) =>
  new UsageError(
    'signer_refused',
    `the browser wallet refused: ${safeText(words)}`,
    "approve in the wallet, and check that it holds the proposer's account; then retry",
  )

const late = (timeoutMs: number, isOpened: boolean) =>
  isOpened
    ? new UnavailableError(
        'signer_timed_out',
        `the browser wallet did not respond within ${Math.ceil(timeoutMs / 1_000)} s; it may still sign`,
        'check the wallet: it may be waiting for you. Then retry: it is asked for the same document',
      )
    : new UnavailableError(
        'signer_unreachable',
        `nobody opened the wallet page within ${Math.ceil(timeoutMs / 1_000)} s`,
        'rerun the command, and open the address that it prints in the browser that has the wallet',
      )

const badCall = () => refused(422, 'schema_violation', 'the call is not one of this page')
