/** The operator's page: draws what the gateway tells by its events. ASCII alone. */
import { byId, call, lines, make, show } from './elements.js'

const numberText = (value) => value.toLocaleString('en-US', { maximumFractionDigits: 4 })
const ageText = (seconds) => {
  if (seconds < 100) return `${seconds} s`
  return seconds < 6000 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`
}
/** In UTC, as every command has it. */
const dateText = (when) => new Date(when).toISOString().replace('T', ' ').replace(/\.\d+/, '')
const short = (text) => `${text.slice(0, 8)}\u2026${text.startsWith('0x') ? text.slice(-4) : ''}`
/** In the colour of its grade, where it has one. */
const graded = (grade, value) => (grade ? make(`span.${grade}`, value) : value)

let explorer = null
const linked = (kind, value, text = value) => {
  const link = { href: `${explorer}/${kind}/${value}`, target: '_blank', rel: 'noreferrer' }
  return Object.assign(make('a.hash', text), { title: value }, explorer && link)
}

/** Where a key of the status document is no word for people. */
const labels = {
  fine: '2xx responses',
  refused: '4xx responses',
  limited: '429 responses',
  failed: '5xx responses',
  pays_for: 'can pay for proposals',
  gap_latest: 'nonces not mined yet',
  gap_finalized: 'nonces not final yet',
}
/** By the last word of a key. */
const forms = {
  address: (value) => linked('address', value, short(value)),
  hash: (value) => linked('tx', value, short(value)),
  leader: short,
  at: dateText,
  seconds: ageText,
}
/** What somebody has to see to. */
const grades = {
  spent_items: (spent, { global_items: limit }) => spent >= limit && 'warn',
  failed: (count) => count > 0 && 'bad',
  // None at all is the worst of few.
  pays_for: (few) => few !== null && (few < 50 ? 'bad' : few < 100 && 'warn'),
  head_age_seconds: (age, { max_head_age_seconds: most }) => (age ?? Infinity) > most && 'bad',
  leader: (id) => id === null && 'bad',
  store: (state) => state !== 'writable' && 'bad',
  healthy: (is) => !is && 'bad',
  lag_records: (records) => records > 0 && 'warn',
}

/** What is said where it is null. */
const none = { leader: 'nobody' }

/** Of a part of the status document, under its own names. Lists in it are not shown. */
function cardOf(title, part) {
  const rows = Object.entries(part).filter(([, value]) => !Array.isArray(value))
  const shown = rows.map(([key, value]) => [
    labels[key] ?? key.replace(/_(text|seconds)$/, '').replaceAll('_', ' '),
    figureOf(key, value, part),
  ])
  return make('section.card', make('h2', title), make('dl', ...lines(shown)))
}

function figureOf(key, value, part) {
  const form = forms[key.split('_').at(-1)] ?? (Number.isFinite(value) ? numberText : String)
  // A nonce below 0: none was ever bound.
  const text = value === null || value < 0 ? (none[key] ?? '\u2013') : form(value)
  return graded(grades[key]?.(value, part), text)
}

function showFigures(now) {
  const { ready, paused, executor, store, cluster, version, started_at, url } = now
  explorer = now.explorer
  show('ready', graded(ready ? 'good' : 'bad', ready ? 'ready' : 'not ready'))
  show('reasons', ...now.reasons.map((reason) => make('li.notice.bad', reason)))
  const since = paused?.since ? ` since ${dateText(paused.since)}` : ''
  show('paused', paused ? `Admission is paused${since}: ${paused.why}` : '')
  const stages = Object.entries(now.queue).map(([stage, { count, oldest_seconds: oldest }]) => [
    stage,
    count > 0 ? `${count}, for ${ageText(oldest)}` : 0,
  ])
  show('queue', ...lines(stages))
  const { balance_wei: wei, ...spends } = executor ?? { execution: 'switched off' }
  const { id, ...chain } = now.chain
  const state = store.failed ? 'not writable' : store.full ? 'disk full' : 'writable'
  show(
    'cards',
    cardOf('Rate limit', now.budget),
    cardOf('Last minute', now.last_minute),
    cardOf('Executor', { address: now.executor_address, ...spends }),
    cardOf('Chain and store', { ...chain, store: state }),
    ...now.nodes.map(({ node, ...one }) => cardOf(`Node ${node}`, one)),
    cluster ? cardOf('Gateways of this store', cluster) : '',
    cardOf('This gateway', { version, chain: String(id), started_at, url }),
  )
  const waiting = Object.values(now.queue).reduce((sum, { count }) => sum + count, 0)
  const title = [ready ? [] : 'not ready', waiting > 0 ? `${waiting} in queue` : []].flat()
  document.title = [...title, 'proposer gateway'].join(' \u2013 ')
  const drawn = [
    ['Queue', trendOf(queues, waiting)],
    ['Executor balance', trendOf(balances, wei && Number(wei) / 1e18)],
  ]
  show('trends', ...lines(drawn))
}

/** A point for each status that was told while the page is open. */
const [queues, balances] = [[], []]
const bars = '\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588'

function trendOf(points, next) {
  if (!Number.isFinite(next)) return null
  points.push(next)
  if (points.length > 600) points.shift()
  const [low, high] = [Math.min(...points), Math.max(...points)]
  const step = Math.ceil(points.length / 30)
  const drawn = points
    .filter((_, at) => at % step === 0)
    .map((one) => bars[Math.round((7 * (one - low)) / (high - low || 1))])
  const picture = Object.assign(make('p', drawn.join('')), { ariaHidden: 'true' })
  return [picture, `from ${numberText(low)} to ${numberText(high)}`]
}

function showFailures({ count, is_more: isMore, codes, rows }) {
  const all = graded(count > 0 && 'bad', count + (isMore ? '+' : ''))
  show('failed', ...lines([['all', all], ...codes]))
  const newest = count > rows.length ? `, the newest ${rows.length}` : ''
  show('failures-title', `Failed in the last 24 hours${newest}`)
  showList('failures', rows, 'failed_at')
}

const itemsOf = (id) => [...byId(id).children]

/** Items stay where they are as long as their candidate is in the list. */
function showList(id, rows, time) {
  const keys = rows.map((row) => `${id}-${row.candidate_id}`)
  // What somebody is reading stays until it is closed.
  for (const item of itemsOf(id))
    if (!keys.includes(item.id) && !item.firstChild.open) item.remove()
  for (const [at, row] of rows.entries()) {
    const item = byId(keys[at]) ?? newItem(keys[at])
    if (JSON.stringify(item.row) !== JSON.stringify(row)) {
      item.row = row
      item.firstChild.firstChild.replaceChildren(...cellsOf(row, row[time]))
      void showWay(item)
    }
    const there = byId(id).children[at]
    if (there !== item) byId(id).insertBefore(item, there ?? null)
  }
  filter()
}

function newItem(id) {
  const details = make('details', make('summary'), make('div.way'))
  const item = Object.assign(make('li', details), { id })
  details.addEventListener('toggle', () => void showWay(item))
  return item
}

const answerText = ({ label, outcome }) => (label === null ? outcome : `${label} (${outcome})`)

function cellsOf(row, at) {
  const { slug, status, question_id: question, proposer, candidate_id: id } = row
  const cell = (name, text, title = text) => Object.assign(make(`span.${name}`, text), { title })
  const badge = make(`span.badge.status-${status}`, status)
  const more = make('span.note', row.failure_code ?? row.submission ?? '')
  return [
    cell('received', dateText(at).slice(5), at),
    make('span.status', badge, ' ', more),
    cell('question', slug ?? short(question), slug === null ? question : `${slug} ${question}`),
    cell('answer', answerText(row)),
    cell('proposer', short(proposer), proposer),
    cell('id', short(id), id),
  ]
}

/** What an open item tells more: its steps and facts. */
async function showWay({ firstChild: details, row }) {
  if (!details.open) return
  const shown = await call(`/operator/candidates/${row.candidate_id}`).catch((error) => error)
  const parts =
    shown instanceof Error
      ? [make('p.note', `Could not be read: ${shown.message}`)]
      : [make('ol', ...shown.steps.map(stepItem)), make('dl', ...factsOf(shown))]
  details.lastChild.replaceChildren(...parts)
}

function stepItem({ at, what, detail }) {
  const isHash = /^0x[0-9a-f]{64}$/.test(detail)
  const more = make('span.note', isHash ? linked('tx', detail) : (detail ?? ''))
  return make('li', make('time.note', at === null ? '' : dateText(at)), make('span', what), more)
}

function factsOf({ deadline, slug, transaction_hash: hash, ...shown }) {
  const left = Math.round(deadline - Date.now() / 1000)
  const until = left > 0 ? `in ${ageText(left)}` : `${ageText(-left)} ago`
  return lines([
    ['Candidate', make('span.hash', shown.candidate_id)],
    ['Question', make('span.hash', shown.question_id)],
    ['Slug', slug && make('span.hash', slug)],
    ['Answer', answerText(shown)],
    ['Proposer', linked('address', shown.proposer)],
    ['Authorizes', shown.amount_text],
    ['Deadline', `${dateText(deadline * 1000)}, ${until}`],
    ['Transaction', hash && linked('tx', hash)],
  ])
}

function filter() {
  const words = byId('search').value.toLowerCase().split(/\s+/)
  const matches = ({ row }) => {
    const said = Object.values(row).join(' ').toLowerCase()
    return row.status.match(byId('state').value) && words.every((word) => said.includes(word))
  }
  const isAnyShown = (id) => {
    for (const item of itemsOf(id)) item.hidden = !matches(item)
    return itemsOf(id).some(({ hidden }) => !hidden)
  }
  byId('failures-section').hidden = !isAnyShown('failures')
  byId('none').hidden = isAnyShown('candidates')
  byId('none').firstChild.data = itemsOf('candidates')[0]
    ? 'none of the newest 100; '
    : 'none yet; '
}

byId('search').addEventListener('input', filter)
byId('state').addEventListener('change', filter)

let source
let heardAt
let before
let lostAt

function lost(why) {
  lostAt ??= Date.now()
  document.body.className = 'lost'
  show('ready', 'unknown')
  const since = `Reconnecting since ${dateText(lostAt)}; the figures are out of date.`
  show('link', graded('bad', `${why} ${since}`))
}

function connect() {
  source?.close()
  heardAt = Date.now()
  source = new EventSource('/operator/events')
  const on = (kind, hear) => source.addEventListener(kind, ({ data }) => hear(JSON.parse(data)))
  on('figures', (now) => {
    heardAt = Date.now()
    if (before && before.version !== now.version) location.reload()
    if (lostAt || !before) show('link', `live since ${dateText(heardAt)}`)
    document.body.className = ''
    lostAt = undefined
    before = now
    showFigures(now)
  })
  on('failures', showFailures)
  on('candidates', (rows) => showList('candidates', rows, 'received_at'))
  source.addEventListener('error', () => {
    lost('No connection to the gateway.')
    // A refusal ends an event source for good; a lost connection it takes up by itself.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000)
  })
}

setInterval(() => {
  if (Date.now() - heardAt < 15000 || source.readyState !== EventSource.OPEN) return
  lost('The gateway does not respond.')
  connect()
}, 1000)
connect()
