/**
 * What `serve` shows on a terminal instead of log lines: one calm block, redrawn in place at most
 * once a second.
 */
import type { ChalkInstance } from 'chalk'
import { changesKept, type StatusChange } from '../../core/host/activity.js'
import type { StatusSnapshot } from '../../core/host/snapshot.js'
import {
  type ClusterVitals,
  type RpcCounts,
  rpcClasses,
  type Vitals,
} from '../../core/protocol/vitals.js'
import { ageText, fold, visible } from '../terminal/render.js'

export interface StatusScreen {
  readonly columns: number
  readonly rows: number
  readonly paint: ChalkInstance
  /** Symbol of the coin that gas is paid in, where it is known. */
  readonly coin?: string | undefined
}

const labelWidth = 10
/** About so many, in few digits: it is an estimate. */
const aboutText = (count: number): string =>
  count < 100_000
    ? String(count)
    : count < 1e6
      ? `${Math.floor(count / 1_000)} k`
      : `${(count / 1e6).toFixed(1)} M`
/** The chain's own coin has eighteen decimals; four are enough to look at. */
const coins = (wei: bigint): string =>
  (Number(wei / 10n ** 12n) / 1e6).toLocaleString('en-US', { maximumFractionDigits: 4 })

/**
 * The block: at most `rows - 1` lines of at most `columns` characters, colours aside. What has no
 * room is left out from the end, where the last changes stand. Pure; outside text is escaped (R20).
 */
export function statusLines(
  figures: StatusSnapshot,
  { columns, rows, paint, coin = '' }: StatusScreen,
): readonly string[] {
  const { url, adminUrl, reasons, gauges, vitals, lastMinute } = figures
  const { oldestSeconds, head, executor, cluster } = vitals
  const row = (label: string, parts: readonly string[]) => wrapped(label, parts, columns, paint)
  const stage = (name: keyof typeof oldestSeconds) =>
    `${name} ${gauges.queue[name]}${gauges.queue[name] === 0 ? '' : ` (${ageText(oldestSeconds[name])})`}`
  const state = reasons.length === 0 ? paint.green('ready') : paint.yellow('not ready')
  const lines = [
    ...row('gateway', [
      state,
      ...(vitals.admissionEnabled ? [] : [paint.yellow('admission paused')]),
      url ?? '',
      `admin ${adminUrl ?? ''}`,
    ]),
    ...reasons.flatMap((reason) => cutLines(visible(reason), columns, paint)),
    ...row('chain', [
      head === undefined ? 'no block yet' : `block ${head.number}, ${ageText(head.ageSeconds)} old`,
      ...nodesText(vitals),
      ...new Set(vitals.code.oracles.map(({ version }) => `oracle version ${version}`)),
    ]),
    ...(vitals.rpc === undefined ? [] : row('rpc', rpcText(vitals.rpc))),
    ...row('queue', [stage('received'), stage('validated'), stage('selected')]),
    ...row('minute', [
      `2xx ${lastMinute.fine}`,
      `4xx ${lastMinute.refused}`,
      `429 ${lastMinute.limited}`,
      lastMinute.failed === 0 ? '5xx 0' : paint.red(`5xx ${lastMinute.failed}`),
      `admitted ${lastMinute.admitted}`,
    ]),
    ...row('limit', [
      `${gauges.budget.spentItems} of ${gauges.budget.limitItems} items`,
      ...(gauges.budget.endsInMs > 0
        ? [`window ends in ${Math.ceil(gauges.budget.endsInMs / 1_000)} s`]
        : []),
      `${gauges.budget.perClientLimitItems} a client`,
      `${gauges.budget.clients} ${gauges.budget.clients === 1 ? 'client' : 'clients'}`,
    ]),
    ...(cluster === undefined ? [] : row('store', clusterText(cluster))),
    ...row(
      'ceilings',
      Object.entries(figures.ceilings ?? {}).map(
        ([name, most]) => `${visible(name.replaceAll('_', ' '))} ${most}`,
      ),
    ),
    ...row(
      'wallets',
      (figures.wallets ?? []).map(({ address, state, until, failed_gas }) =>
        visible(
          `${address} ${state === 'sends' ? 'goes alone' : state}${until === null ? '' : ` until ${until}`}, ${failed_gas} gas failed`,
        ),
      ),
    ),
    ...row('executor', executor === undefined ? ['off'] : executorText(executor, coin)),
  ]
  const room = Math.max(1, rows - 1)
  const changes = figures.changes.slice(-Math.max(0, Math.min(changesKept, room - lines.length)))
  const changeLines =
    room > lines.length ? changes.map((change) => changeText(change, columns, paint)) : []
  return [...lines, ...changeLines].slice(0, room)
}

function nodesText({ nodes }: Vitals): readonly string[] {
  if (nodes.length === 0) return []
  const aside = nodes.filter(({ isHealthy }) => !isHealthy).map(({ node }) => node)
  const healthy = `${nodes.length - aside.length} of ${nodes.length} ${nodes.length === 1 ? 'node' : 'nodes'}`
  return aside.length === 0 ? [healthy] : [healthy, `set aside: ${aside.join(', ')}`]
}

function rpcText({ requests, methods }: RpcCounts): readonly string[] {
  const all = rpcClasses.reduce((sum, one) => sum + methods[one], 0)
  const kinds = rpcClasses.flatMap((one) => (methods[one] === 0 ? [] : `${methods[one]} ${one}`))
  return [
    `${aboutText(all)} calls since the start${kinds.length === 0 ? '' : ` (${kinds.join(', ')})`}`,
    `${aboutText(requests)} ${requests === 1 ? 'request' : 'requests'}`,
  ]
}

const clusterText = ({ leads, leader, epoch, lagRecords, gateways }: ClusterVitals) => [
  leads ? 'leads' : leader === undefined ? 'no leader' : `${leader.slice(0, 8)}… leads`,
  `epoch ${epoch}`,
  `${gateways} ${gateways === 1 ? 'gateway' : 'gateways'}`,
  `lag ${lagRecords}`,
]

function executorText(
  {
    highestNonce,
    openSlots,
    balanceWei,
    paidProposals,
    newestHash,
  }: NonNullable<Vitals['executor']>,
  coin: string,
) {
  return [
    highestNonce < 0 ? 'no nonce yet' : `nonce ${highestNonce}`,
    `${openSlots} open`,
    ...(balanceWei === undefined ? [] : [`${coins(balanceWei)} ${coin} (gas)`.replace('  ', ' ')]),
    ...(paidProposals === undefined ? [] : [`about ${aboutText(paidProposals)} proposals`]),
    ...(newestHash === undefined ? [] : [`last ${newestHash.slice(0, 10)}…`]),
  ]
}

const withoutColour = (text: string) => text.replace(/\u001b\[[0-9;]*m/g, '')
const lengthOf = (text: string) => withoutColour(text).length
const cut = (text: string, columns: number) =>
  text.length <= columns ? text : columns < 1 ? '' : `${text.slice(0, columns - 1)}…`

/** A label and its parts, as many on a line as fit; the label's column stays free below it. */
function wrapped(
  label: string,
  parts: readonly string[],
  columns: number,
  paint: ChalkInstance,
): readonly string[] {
  const indent = Math.min(labelWidth, Math.max(0, columns - 1))
  const width = columns - indent
  const lines: string[] = []
  for (const part of parts) {
    // A part that is too long loses its colours with its end.
    const fitting = lengthOf(part) <= width ? part : cut(withoutColour(part), width)
    const last = lines.at(-1)
    if (last !== undefined && lengthOf(last) + 3 + lengthOf(fitting) <= width)
      lines[lines.length - 1] = `${last} · ${fitting}`
    else lines.push(fitting)
  }
  return lines.map(
    (line, index) => `${paint.dim((index === 0 ? cut(label, indent) : '').padEnd(indent))}${line}`,
  )
}

/** A reason takes two lines at most: what is longer is reported whole by /readyz. */
function cutLines(text: string, columns: number, paint: ChalkInstance): readonly string[] {
  const indent = Math.min(labelWidth, Math.max(0, columns - 1))
  const width = columns - indent
  const space = text.lastIndexOf(' ', width)
  const first = text.length <= width || space <= 0 ? cut(text, width) : text.slice(0, space)
  const rest = text.length <= width || space <= 0 ? [] : [cut(text.slice(space + 1), width)]
  return [first, ...rest].map((line) => `${' '.repeat(indent)}${paint.yellow(line)}`)
}

/** What a switch was set to, in words: to and fro are two changes. */
const switched: Readonly<Record<string, readonly [on: string, off: string]>> = {
  'admission.set': ['resumed', 'paused'],
  'allowlist.set': ['wallet allowed', 'wallet disallowed'],
}

/** `12:01:05Z candidate 1a2b3c4d… failed permit_expired`. */
function changeText({ atMs, line }: StatusChange, columns: number, paint: ChalkInstance): string {
  const time = new Date(atMs).toISOString().slice(11, 19).concat('Z')
  const [subject = '', plainVerb = ''] = line.event.split('.')
  const verb =
    (line.enabled === undefined ? undefined : switched[line.event]?.[line.enabled ? 0 : 1]) ??
    plainVerb
  const id =
    line.candidate_id ??
    line.question_id ??
    line.contract ??
    (line.nonce === undefined ? (line.node ?? line.epoch) : `nonce ${line.nonce}`)
  const short =
    typeof id === 'string' && id.length > 10 && !id.startsWith('nonce')
      ? `${id.slice(0, 8)}…`
      : (id ?? '')
  const name = line.event.startsWith('slot.') ? '' : subject
  const hash =
    line.hash === undefined || line.candidate_id !== undefined ? '' : `${line.hash.slice(0, 10)}…`
  const by = line.elsewhere === true ? '(by another gateway)' : ''
  const said = [name, short, verb, line.kind, line.code, hash, by]
    .filter((part) => part !== undefined && part !== '')
    .join(' ')
  const text = cut(visible(said), Math.max(0, columns - labelWidth))
  return cut(time, columns).length < labelWidth && columns > labelWidth
    ? `${paint.dim(time.padEnd(labelWidth))}${text}`
    : cut(time, columns)
}

export interface LiveStatus {
  /** Draws from now on, once a second; `coin` as of a screen. */
  start(figures: () => StatusSnapshot, coin?: string): void
  /** One line that stays, above the block. */
  above(line: string): void
  /** Takes the block away for as long as something else writes on the terminal. */
  around(act: () => void): Promise<void>
  /** Leaves the last block where it is, with a line below it, and draws no more. */
  end(lastWord: string): Promise<void>
}

export interface StatusTerminal {
  size(): { readonly columns: number; readonly rows: number }
  /** Writes without waiting. */
  write(text: string): void
  /** False while the terminal holds the last text back: what would be drawn now is drawn later. */
  isIdle(): boolean
  /** Resolves when all is written, or given up. */
  written(): Promise<void>
  readonly paint: ChalkInstance
}

const drawEveryMs = 1_000

/**
 * Nothing is shown before `start`. A terminal that takes no text gets no frame, and nobody waits
 * for it (robustness §5).
 */
export function createLiveStatus({
  size,
  write,
  isIdle,
  written,
  paint,
}: StatusTerminal): LiveStatus {
  let shown: readonly string[] = []
  let figures: (() => StatusSnapshot) | undefined
  let coin: string | undefined
  let timer: ReturnType<typeof setInterval> | undefined

  /** A terminal that became narrower has folded what stood on it. */
  const back = () => {
    const { columns } = size()
    const lines = shown.reduce(
      (sum, line) => sum + Math.max(1, Math.ceil(lengthOf(line) / Math.max(1, columns))),
      0,
    )
    return lines === 0 ? '' : `\u001b[${lines}A\r`
  }
  const framed = (lines: readonly string[]) => lines.map((line) => `${line}\u001b[K\n`).join('')
  const draw = () => {
    if (figures === undefined || !isIdle()) return
    const lines = statusLines(figures(), { ...size(), paint, coin })
    write(`${back()}${framed(lines)}\u001b[J`)
    shown = lines
  }
  return {
    start(source, symbol) {
      figures = source
      coin = symbol
      draw()
      timer = setInterval(draw, drawEveryMs)
      timer.unref()
    },
    above(line) {
      write(`${back()}${line}\u001b[K\n${framed(shown)}\u001b[J`)
    },
    async around(act) {
      clearInterval(timer)
      write(`${back()}\u001b[J`)
      shown = []
      await written()
      act()
      if (figures === undefined) return
      draw()
      timer = setInterval(draw, drawEveryMs)
      timer.unref()
    },
    async end(lastWord) {
      clearInterval(timer)
      if (figures === undefined) return
      draw()
      figures = undefined
      write(`${paint.dim(fold(lastWord, size().columns))}\n`)
      shown = []
      await written()
    },
  }
}
