/** What `serve` shows on a terminal instead of log lines: one calm block, redrawn in place. */

import type { ChalkInstance } from 'chalk'
import { changesKept } from '#host/activity'
import { createBufferedWriter, terminalOfStderr } from '#io/serving/buffered-writer'
import type { StatusDocument } from '#protocol/status-document'
import { rpcClasses, type StateLine } from '#protocol/vitals'
import type { Context } from '../terminal/context.js'
import { drawnOver, type Screen, terminalSize } from '../terminal/output.js'
import { counted, cut, durationText, fold, visible } from '../terminal/render.js'

type Painted = Pick<Screen, 'columns' | 'paint'>

interface StatusScreen extends Painted {
  readonly rows: number
  /** Labels of the rows that are wanted; default: all, and the last changes. */
  readonly parts?: readonly string[] | undefined
}

const labelWidth = 10
/**
 * At most `rows - 1` lines of at most `columns` characters, colours aside. What has no room is left
 * out from the end, where the last changes stand. Outside text is escaped (R20).
 */
export function statusLines(status: StatusDocument, { columns, rows, paint, parts }: StatusScreen) {
  const screen = { columns, paint }
  const lines = Object.entries(rowsOf(status))
    .filter(([label]) => parts?.includes(label) ?? true)
    .flatMap(([label, texts]) => [
      ...labelled(label, texts.filter((one) => one !== false).map(visible), screen),
      ...(label === 'gateway' ? status.reasons.flatMap((one) => reasonLines(one, screen)) : []),
    ])
  const room = Math.max(1, rows - 1)
  const left = parts ? 0 : Math.max(0, Math.min(changesKept, room - lines.length))
  const changes = left === 0 ? [] : status.changes.slice(-left)
  return [...lines, ...changes.map((change) => changeText(change, screen))].slice(0, room)
}

function rowsOf(status: StatusDocument): Readonly<Record<string, readonly (string | false)[]>> {
  const { queue, budget, chain, executor, last_minute: minute } = status
  const stage = (name: keyof typeof queue) => {
    const { count, oldest_seconds } = queue[name]
    return `${name} ${count}${count === 0 ? '' : ` (${durationText(oldest_seconds, 1)})`}`
  }
  const endsMs = budget.window_ends_at === null ? 0 : Date.parse(budget.window_ends_at) - Date.now()
  return {
    gateway: [
      status.reasons.length === 0 ? 'ready' : 'not ready',
      !status.admission_enabled && 'admission paused',
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
      `5xx ${minute.failed}`,
      `admitted ${minute.admitted}`,
    ],
    limit: [
      `${budget.spent_items} of ${budget.global_items} items`,
      endsMs > 0 && `window ends in ${Math.ceil(endsMs / 1_000)} s`,
      `${budget.per_ip_items} a client`,
      counted(budget.clients, 'client'),
    ],
    store: clusterText(status),
    ceilings: Object.entries(status.ceilings).map(
      ([name, most]) => `${name.replaceAll('_', ' ')} ${most}`,
    ),
    wallets: status.wallets.map(
      ({ address, state, until, failed_gas }) =>
        `${address} ${state === 'sends' ? 'goes alone' : state}${until === null ? '' : ` until ${until}`}, ${failed_gas} gas failed`,
    ),
    executor: executor === null ? ['off'] : executorText(executor),
  }
}

function nodesText({ nodes }: StatusDocument) {
  if (nodes.length === 0) return []
  const aside = nodes.filter(({ healthy }) => !healthy).map(({ node }) => node)
  return [
    `${nodes.length - aside.length} of ${counted(nodes.length, 'node')}`,
    aside.length > 0 && `set aside: ${aside.join(', ')}`,
  ]
}

function rpcText({ rpc }: StatusDocument) {
  if (rpc === undefined) return []
  const { requests, methods } = rpc.total
  const all = rpcClasses.reduce((sum, one) => sum + methods[one], 0)
  const kinds = rpcClasses.flatMap((one) => (methods[one] === 0 ? [] : `${methods[one]} ${one}`))
  return [
    `${all} calls since the start${kinds.length === 0 ? '' : ` (${kinds.join(', ')})`}`,
    counted(requests, 'request'),
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

function executorText(executor: NonNullable<StatusDocument['executor']>) {
  const { highest_nonce: nonce, balance_text: balance, pays_for, newest_hash: newest } = executor
  return [
    nonce < 0 ? 'no nonce yet' : `nonce ${nonce}`,
    `${executor.open_slots} open`,
    balance !== null && `${balance} (gas)`,
    pays_for !== null && `about ${pays_for} proposals`,
    newest !== null && `last ${newest.slice(0, 10)}…`,
  ]
}

function besideLabel(columns: number) {
  const indent = Math.min(labelWidth, Math.max(0, columns - 1))
  return { indent, width: columns - indent }
}

const colours = [
  [/^not ready|\badmission paused|\b5xx [1-9]\d*/g, 'yellow'],
  [/^ready/, 'green'],
] as const

function labelled(label: string, parts: readonly string[], { columns, paint }: Painted) {
  const { indent, width } = besideLabel(columns)
  const lines: string[] = []
  for (const part of parts.map((one) => cut(one, width))) {
    const last = lines.at(-1)
    if (last !== undefined && last.length + 3 + part.length <= width)
      lines[lines.length - 1] = `${last} · ${part}`
    else lines.push(part)
  }
  return lines.map((line, index) => {
    const painted = colours.reduce(
      (text, [what, colour]) => text.replace(what, (word) => paint[colour](word)),
      line,
    )
    return `${paint.dim((index === 0 ? cut(label, indent) : '').padEnd(indent))}${painted}`
  })
}

/** A reason takes two lines at most: what is longer is reported whole by /readyz. */
function reasonLines(reason: string, { columns, paint }: Painted) {
  const { indent, width } = besideLabel(columns)
  const [first = '', ...rest] = fold(reason, width).split('\n')
  return [first, ...(rest.length === 0 ? [] : [rest.join(' ')])].map(
    (line) => `${' '.repeat(indent)}${paint.yellow(cut(line, width))}`,
  )
}

const switched: Readonly<Record<string, readonly [on: string, off: string]>> = {
  'admission.set': ['resumed', 'paused'],
  'allowlist.set': ['wallet allowed', 'wallet disallowed'],
}

/** `12:01:05Z candidate 1a2b3c4d… failed permit_expired`. */
function changeText(
  { at, ...change }: StatusDocument['changes'][number],
  { columns, paint }: Painted,
) {
  const line = change as unknown as StateLine
  const time = `${at.slice(11, 19)}Z`
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
  isIdle(): boolean
  written(): Promise<void>
  readonly paint: ChalkInstance
}

const drawEveryMs = 1_000

/** A terminal that takes no text gets no frame, and nobody waits for it (robustness §5). */
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

/** A terminal that is held (Ctrl-S) is not waited for longer. */
const terminalMs = 500

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
