/** The operator's page: draws what the gateway tells by its events. ASCII alone. */
import { byId, call, lines, make, show } from './elements.js'

const numberText = (value) => value.toLocaleString('en-US', { maximumFractionDigits: 4 })
const ageText = (seconds) => {
  if (seconds === null) return '\u2013'
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
const shortLink = (kind, value) => value && linked(kind, value, short(value))

/** By title and label. */
function cardsOf({ budget, last_minute: minute, executor, chain, store, nodes, cluster, ...now }) {
  const { global_items: limit, window_ends_at: end } = budget
  const left = Math.max(0, limit - budget.spent_items)
  const { pays_for: pays, highest_nonce: nonce } = executor ?? {}
  const { head_age_seconds: age, questions_due: due } = chain
  const isOld = age === null || age > chain.max_head_age_seconds
  const place = store.failed ? 'not writable' : store.full ? 'disk full' : 'writable'
  return {
    'Rate limit': {
      Limit: `${limit} items in ${budget.window_seconds} s`,
      Spent: budget.spent_items,
      'Left for all': graded(left === 0 && 'warn', left),
      'Window ends': end ? dateText(end).slice(11) : 'none is open',
      'For each client': budget.per_ip_items,
      'Client addresses': budget.clients,
    },
    'Last minute': {
      Admitted: minute.admitted,
      '2xx responses': minute.fine,
      '4xx responses': minute.refused,
      '429 responses': minute.limited,
      '5xx responses': graded(minute.failed > 0 && 'bad', minute.failed),
    },
    Executor: {
      Address: shortLink('address', now.executor_address),
      Balance: executor ? (executor.balance_text ?? 'not read yet') : 'switched off',
      // None at all is the worst of few.
      'Can pay for proposals': Number.isFinite(pays)
        ? graded(pays < 50 ? 'bad' : pays < 100 && 'warn', numberText(pays))
        : null,
      'Highest nonce': nonce < 0 ? 'none yet' : nonce,
      'Nonces not mined yet': executor?.gap_latest,
      'Nonces not final yet': executor?.gap_finalized,
      'Open transactions': executor?.open_slots,
      Newest: shortLink('tx', executor?.newest_hash),
    },
    'Chain and nodes': {
      Block: chain.head,
      'Block age': graded(isOld && 'bad', ageText(age)),
      Questions: chain.questions_known + (due > 0 ? `, ${due} due` : ''),
      Store: graded(place !== 'writable' && 'bad', place),
      ...Object.fromEntries(nodes.map((one) => [`Node ${one.node}`, nodeText(one)])),
    },
    ...(cluster && { 'Gateways of this store': clusterFields(cluster) }),
  }
}

function nodeText({ healthy, head, head_age_seconds: age, unanswered }) {
  const block = head === null ? 'no block' : `block ${head}, ${ageText(age)}`
  const text = `${healthy ? 'healthy' : 'set aside'}, ${block}`
  return graded(healthy || 'bad', unanswered > 0 ? `${text}, ${unanswered} unanswered` : text)
}

const clusterFields = ({ leads, leader, lag_records: lag, gateways, epoch }) => ({
  'This gateway': leads ? 'leads' : 'follows',
  Leader: leads ? 'this one' : leader ? short(leader) : graded('bad', 'nobody'),
  Gateways: gateways,
  'Records behind': graded(lag > 0 && 'warn', lag),
  'Leaders so far': epoch,
})

const fields = (by) => lines(Object.entries(by))

function showFigures(now) {
  const { ready, paused, executor } = now
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
  const cards = Object.entries(cardsOf(now)).map(([title, by]) =>
    make('section.card', make('h2', title), make('dl', ...fields(by))),
  )
  show('cards', ...cards)
  const serves = now.url === null ? '' : ` Serves ${now.url}.`
  const version = `Version ${now.version}, chain ${now.chain.id}`
  show(
    'about',
    `${version}, started ${dateText(now.started_at)}.${serves} This page changes nothing.`,
  )
  const waiting = Object.values(now.queue).reduce((sum, { count }) => sum + count, 0)
  const state = [ready ? [] : 'not ready', waiting > 0 ? `${waiting} in queue` : []].flat()
  document.title = [...state, 'proposer gateway'].join(' \u2013 ')
  trends.queue.push(waiting)
  if (executor?.balance_wei) trends.balance.push(Number(executor.balance_wei) / 1e18)
  show(
    'trends',
    ...fields({ Queue: trendOf(trends.queue), 'Executor balance': trendOf(trends.balance) }),
  )
}

/** A point for each status that was told while the page is open. */
const trends = { queue: [], balance: [] }
const bars = '\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588'

function trendOf(points) {
  if (points.length === 0) return null
  if (points.length > 600) points.shift()
  const [low, high] = [Math.min(...points), Math.max(...points)]
  const step = Math.ceil(points.length / 30)
  const drawn = points
    .filter((_, at) => at % step === 0)
    .map((one) => bars[Math.round((7 * (one - low)) / (high - low || 1))])
  const picture = Object.assign(make('p', drawn.join('')), { ariaHidden: 'true' })
  const [from, to, last] = [low, high, points.at(-1)].map(numberText)
  return [picture, `${last}, from ${from} to ${to}`]
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
function showList(id, rows, time = 'received_at') {
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

const askFor = (id) => call(`/operator/candidates/${encodeURIComponent(id)}`)

/** What an open item tells more: its steps and facts. */
async function showWay({ firstChild: details, row }) {
  if (!details.open) return
  const shown = await askFor(row.candidate_id).catch((error) => error)
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

function factsOf({ proposer, deadline, transaction_hash: hash, ...shown }) {
  const left = Math.round(deadline - Date.now() / 1000)
  const until = left > 0 ? `in ${ageText(left)}` : `${ageText(-left)} ago`
  return fields({
    Candidate: copied(shown.candidate_id),
    Question: copied(shown.question_id),
    Slug: shown.slug && copied(shown.slug),
    Answer: answerText(shown),
    Proposer: copied(proposer, linked('address', proposer)),
    Authorizes: shown.amount_text,
    Deadline: `${dateText(deadline * 1000)}, ${until}`,
    Transaction: hash && copied(hash, linked('tx', hash)),
  })
}

/** A value with a button that copies it. */
function copied(value, node = make('span.hash', value)) {
  const button = make('button.copy', 'copy')
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(value)
    button.textContent = 'copied'
    setTimeout(() => button.replaceChildren('copy'), 1500)
  })
  return [node, button]
}

/** Shown while nobody searches; the others come with a click. */
const shownFirst = 25
let most = shownFirst

/** A candidate that no list has is asked for by its whole id. */
function filter() {
  const text = byId('search').value.trim().toLowerCase()
  const state = byId('state').value
  const isFiltered = text !== '' || state !== ''
  const matches = (row) => {
    const said = Object.values(row).join(' ').toLowerCase()
    return row.status.match(state) && text.split(/\s+/).every((word) => said.includes(word))
  }
  const shownOf = (id, limit) =>
    itemsOf(id).filter((item, at) => {
      item.hidden = !matches(item.row) || (!isFiltered && at >= limit)
      return !item.hidden
    }).length
  byId('failures-section').hidden = shownOf('failures', Infinity) === 0
  const { length } = itemsOf('candidates')
  const isNone = shownOf('candidates', most) === 0
  show('none', length === 0 ? 'none yet' : isNone ? `none of the newest ${length}` : '')
  byId('more').hidden = isFiltered || length <= shownFirst
  show('more', `Show the newest ${most === shownFirst ? length : shownFirst}`)
  const isKnown = byId(`failures-${text}`) || byId(`candidates-${text}`)
  void find(/^[0-9a-f-]{36}$/.test(text) && !isKnown ? text : '')
}

let wanted = ''
async function find(id) {
  if (id === wanted) return
  wanted = id
  const found = id && (await askFor(id).catch((error) => error))
  if (id !== wanted) return
  show('found-note', id && (found.message ?? 'found in the store'))
  byId('found').replaceChildren()
  showList('found', found.candidate_id ? [found] : [])
}

byId('search').addEventListener('input', filter)
byId('state').addEventListener('change', filter)
byId('more').addEventListener('click', () => {
  most = most === shownFirst ? Infinity : shownFirst
  filter()
})

let source
let lostAt
let before
let heardAt

function connected(now) {
  if (before && before.version !== now.version) location.reload()
  document.body.className = ''
  show('link', 'live')
  const started = dateText(now.started_at)
  if (before && before.started_at !== now.started_at)
    show('notice', `The gateway was restarted at ${started}; this page follows the new one.`)
  else if (lostAt)
    show('notice', `The connection was lost from ${dateText(lostAt)} to ${dateText(Date.now())}.`)
  lostAt = undefined
  before = now
}

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
  const on = (kind, hear) =>
    source.addEventListener(kind, ({ data }) => {
      heardAt = Date.now()
      hear(JSON.parse(data))
    })
  on('figures', (now) => {
    if (lostAt || !before) connected(now)
    showFigures(now)
  })
  on('failures', showFailures)
  on('candidates', (rows) => showList('candidates', rows))
  on('beat', () => {})
  on('end', () => lost('The gateway is stopping.'))
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
