/**
 * What `serve` shows on a terminal instead of log lines: one calm block, redrawn in place at most
 * once a second.
 */

import type { ChalkInstance } from 'chalk'
import { coinOf } from '#chain/profiles'
import { changesKept } from '#host/activity'
import { createBufferedWriter, terminalOfStderr } from '#io/serving/buffered-writer'
import type { StatusDocument } from '#protocol/status-document'
import { rpcClasses, type StateLine } from '#protocol/vitals'
import type { Context } from '../terminal/context.js'
import { drawnOver, type Screen, terminalSize, withoutColour } from '../terminal/output.js'
import { counted, cut, durationText, fold, visible } from '../terminal/render.js'

interface StatusScreen extends Pick<Screen, 'columns' | 'paint'> {
  readonly rows: number
  /** Labels of the rows that are wanted; default: all, and the last changes. */
  readonly parts?: readonly string[] | undefined
}

const labelWidth = 10
/** About so many, in few digits: it is an estimate. */
const aboutText = (count: number) =>
  count < 100_000
    ? String(count)
    : count < 1e6
      ? `${Math.floor(count / 1_000)} k`
      : `${(count / 1e6).toFixed(1)} M`

/**
 * The block: at most `rows - 1` lines of at most `columns` characters, colours aside. What has no
 * room is left out from the end, where the last changes stand. Outside text is escaped (R20).
 */
export function statusLines(status: StatusDocument, { columns, rows, paint, parts }: StatusScreen) {
  const wanted = Object.entries(rowsOf(status, paint)).filter(
    ([label]) => parts?.includes(label) ?? true,
  )
  const lines = wanted.flatMap(([label, texts]) => [
    ...wrapped(label, texts, columns, paint),
    ...(label === 'gateway'
      ? status.reasons.flatMap((reason) => cutLines(visible(reason), columns, paint))
      : []),
  ])
  const room = Math.max(1, rows - 1)
  const changes = parts
    ? []
    : status.changes.slice(-Math.max(0, Math.min(changesKept, room - lines.length)))
  const changeLines =
    room > lines.length ? changes.map((change) => changeText(change, columns, paint)) : []
  return [...lines, ...changeLines].slice(0, room)
}

function rowsOf(status: StatusDocument, paint: ChalkInstance) {
  const { queue, budget, chain, executor, last_minute: minute } = status
  const stage = (name: keyof typeof queue) => {
    const { count, oldest_seconds } = queue[name]
    return `${name} ${count}${count === 0 ? '' : ` (${durationText(oldest_seconds, 1)})`}`
  }
  const endsMs = budget.window_ends_at === null ? 0 : Date.parse(budget.window_ends_at) - Date.now()
  return {
    gateway: [
      status.reasons.length === 0 ? paint.green('ready') : paint.yellow('not ready'),
      ...(status.admission_enabled ? [] : [paint.yellow('admission paused')]),
      status.url ?? '',
      `admin ${status.admin_url ?? ''}`,
    ],
    chain: [
      chain.head === null
        ? 'no block yet'
        : `block ${chain.head}, ${durationText(chain.head_age_seconds ?? 0, 1)} old`,
      ...nodesText(status),
      ...new Set(chain.oracles.map(({ version }) => `oracle version ${version}`)),
    ],
    rpc: rpcText(status),
    queue: [stage('received'), stage('validated'), stage('selected')],
    minute: [
      `2xx ${minute.fine}`,
      `4xx ${minute.refused}`,
      `429 ${minute.limited}`,
      minute.failed === 0 ? '5xx 0' : paint.red(`5xx ${minute.failed}`),
      `admitted ${minute.admitted}`,
    ],
    limit: [
      `${budget.spent_items} of ${budget.global_items} items`,
      ...(endsMs > 0 ? [`window ends in ${Math.ceil(endsMs / 1_000)} s`] : []),
      `${budget.per_ip_items} a client`,
      counted(budget.clients, 'client'),
    ],
    store: clusterText(status),
    ceilings: Object.entries(status.ceilings).map(
      ([name, most]) => `${visible(name.replaceAll('_', ' '))} ${most}`,
    ),
    wallets: status.wallets.map(({ address, state, until, failed_gas }) =>
      visible(
        `${address} ${state === 'sends' ? 'goes alone' : state}${until === null ? '' : ` until ${until}`}, ${failed_gas} gas failed`,
      ),
    ),
    executor: executor === null ? ['off'] : executorText(executor, coinOf(chain.id) ?? ''),
  }
}

function nodesText({ nodes }: StatusDocument) {
  if (nodes.length === 0) return []
  const aside = nodes.filter(({ healthy }) => !healthy).map(({ node }) => node)
  const healthy = `${nodes.length - aside.length} of ${counted(nodes.length, 'node')}`
  return aside.length === 0 ? [healthy] : [healthy, `set aside: ${aside.join(', ')}`]
}

function rpcText({ rpc }: StatusDocument) {
  if (rpc === undefined) return []
  const { requests, methods } = rpc.total
  const all = rpcClasses.reduce((sum, one) => sum + methods[one], 0)
  const kinds = rpcClasses.flatMap((one) => (methods[one] === 0 ? [] : `${methods[one]} ${one}`))
  return [
    `${aboutText(all)} calls since the start${kinds.length === 0 ? '' : ` (${kinds.join(', ')})`}`,
    `${aboutText(requests)} ${requests === 1 ? 'request' : 'requests'}`,
  ]
}

function clusterText({ cluster }: StatusDocument) {
  if (cluster === undefined) return []
  const { leads, leader, epoch, gateways, lag_records } = cluster
  return [
    leads ? 'leads' : leader === null ? 'no leader' : `${leader.slice(0, 8)}… leads`,
    `epoch ${epoch}`,
    counted(gateways, 'gateway'),
    `lag ${lag_records}`,
  ]
}

/** The chain's own coin has eighteen decimals; four are enough to look at. */
const coins = (wei: bigint) =>
  (Number(wei / 10n ** 12n) / 1e6).toLocaleString('en-US', { maximumFractionDigits: 4 })

function executorText(executor: NonNullable<StatusDocument['executor']>, coin: string) {
  const { highest_nonce: nonce, balance_wei: wei, pays_for, newest_hash: newest } = executor
  return [
    nonce < 0 ? 'no nonce yet' : `nonce ${nonce}`,
    `${executor.open_slots} open`,
    ...(wei === null ? [] : [`${coins(BigInt(wei))} ${coin} (gas)`.replace('  ', ' ')]),
    ...(pays_for === null ? [] : [`about ${aboutText(pays_for)} proposals`]),
    ...(newest === null ? [] : [`last ${newest.slice(0, 10)}…`]),
  ]
}

const lengthOf = (text: string) => withoutColour(text).length

function besideLabel(columns: number) {
  const indent = Math.min(labelWidth, Math.max(0, columns - 1))
  return { indent, width: columns - indent }
}

/** A label and its parts, as many on a line as fit; the label's column stays free below it. */
function wrapped(label: string, parts: readonly string[], columns: number, paint: ChalkInstance) {
  const { indent, width } = besideLabel(columns)
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
function cutLines(text: string, columns: number, paint: ChalkInstance) {
  const { indent, width } = besideLabel(columns)
  const space = text.lastIndexOf(' ', width)
  const isOne = text.length <= width || space <= 0
  const lines = isOne
    ? [cut(text, width)]
    : [text.slice(0, space), cut(text.slice(space + 1), width)]
  return lines.map((line) => `${' '.repeat(indent)}${paint.yellow(line)}`)
}

/** What a switch was set to, in words: to and fro are two changes. */
const switched: Readonly<Record<string, readonly [on: string, off: string]>> = {
  'admission.set': ['resumed', 'paused'],
  'allowlist.set': ['wallet allowed', 'wallet disallowed'],
}

/** `12:01:05Z candidate 1a2b3c4d… failed permit_expired`. */
function changeText(
  { at, ...change }: StatusDocument['changes'][number],
  columns: number,
  paint: ChalkInstance,
) {
  const line = change as unknown as StateLine
  const time = at.slice(11, 19).concat('Z')
  const [subject = '', plainVerb = ''] = line.event.split('.')
  const verb =
    (line.enabled === undefined ? undefined : switched[line.event]?.[line.enabled ? 0 : 1]) ??
    plainVerb
  const id = line.candidate_id ?? line.question_id ?? line.contract
  const named = id === undefined || id.length <= 10 ? id : `${id.slice(0, 8)}…`
  const place = line.nonce === undefined ? (line.node ?? line.epoch) : `nonce ${line.nonce}`
  const said = [
    line.event.startsWith('slot.') ? '' : subject,
    named ?? place,
    verb,
    line.kind,
    line.code,
    line.hash === undefined || line.candidate_id !== undefined ? '' : `${line.hash.slice(0, 10)}…`,
    line.elsewhere ? '(by another gateway)' : '',
  ]
    .filter((part) => part !== undefined && part !== '')
    .join(' ')
  const text = cut(visible(said), Math.max(0, columns - labelWidth))
  return cut(time, columns).length < labelWidth && columns > labelWidth
    ? `${paint.dim(time.padEnd(labelWidth))}${text}`
    : cut(time, columns)
}

export type LiveStatus = ReturnType<typeof createLiveStatus>

interface StatusTerminal {
  size(): { readonly columns: number; readonly rows: number }
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
export function createLiveStatus({ size, write, isIdle, written, paint }: StatusTerminal) {
  const lines = drawnOver(write, () => size().columns)
  let figures: (() => StatusDocument) | undefined
  let timer: ReturnType<typeof setInterval> | undefined

  const draw = () => {
    if (figures !== undefined && isIdle()) lines.draw(statusLines(figures(), { ...size(), paint }))
  }
  const begin = () => {
    draw()
    timer = setInterval(draw, drawEveryMs)
    timer.unref()
  }
  return {
    start(source: () => StatusDocument) {
      figures = source
      begin()
    },
    above: (line: string) => lines.draw(lines.shown(), `${line}\u001b[K\n`),
    /** Takes the block away for as long as something else writes on the terminal. */
    async around(act: () => void) {
      clearInterval(timer)
      lines.draw([])
      await written()
      act()
      if (figures !== undefined) begin()
    },
    /** Leaves the last block where it is, with a line below it, and draws no more. */
    async end(lastWord: string) {
      clearInterval(timer)
      if (figures === undefined) return
      draw()
      figures = undefined
      write(`${paint.dim(fold(lastWord, size().columns))}\n`)
      lines.leave()
      await written()
    },
  }
}

/**
 * What is to be read before the ready line or at the end is waited for, but not for a terminal that
 * is held (Ctrl-S).
 */
const terminalMs = 500

/**
 * The live view, where stderr is a terminal that can be drawn on; log lines then appear above it.
 * Everything goes through a writer that waits for nobody: a terminal that is held must not hold the
 * gateway (robustness §5).
 */
export function openStatus({
  env,
  output,
  streams: { stderr },
}: Pick<Context, 'env' | 'output' | 'streams'>) {
  if (!output.notesAreTerminal || env.TERM === 'dumb') return undefined
  const writer = createBufferedWriter(terminalOfStderr())
  const status = createLiveStatus({
    ...writer,
    size: () => terminalSize(stderr),
    written: () => writer.written(terminalMs),
    paint: output.notePaint,
  })
  const write = (line: string) => status.above(line.trimEnd())
  return { status, logSink: { write, dropped: writer.dropped } }
}
