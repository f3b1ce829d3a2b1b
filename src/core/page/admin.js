/** The operator's page. Outside text becomes text nodes and nothing else (R20). ASCII alone. */
const byId = (id) => document.getElementById(id)
/** Only what has changed is written, so that a selection and a screen reader's place stay. */
const put = (node, text, name) => {
  if (node.textContent !== text) node.textContent = text
  if (name !== undefined && node.className !== name) node.className = name
}
const make = (tag, name, ...parts) => {
  const node = document.createElement(tag)
  if (name) node.className = name
  node.append(...parts)
  return node
}

const none = '\u2013'
const ageText = (seconds) => {
  if (seconds === null) return none
  if (seconds < 100) return `${seconds} s`
  return seconds < 6000 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`
}
/** In UTC, as every command has it. */
const dateText = (when) => new Date(when).toISOString().replace('T', ' ').replace(/\.\d+/, '')
const clockText = (when) => dateText(when).slice(11)
const whenText = (when) => {
  const isToday = dateText(when).slice(0, 10) === dateText(Date.now()).slice(0, 10)
  return isToday ? clockText(when) : dateText(when).slice(5)
}
/** Both ends of an address or hash, as explorers have them. */
const short = (text) => (text.length > 14 ? `${text.slice(0, 6)}\u2026${text.slice(-4)}` : text)
const shortId = (id) => `${id.slice(0, 8)}\u2026`
let explorer = null
const linked = (kind, value, text = value) => {
  const node = make(explorer === null ? 'span' : 'a', 'hash', text)
  const href = `${explorer}/${kind}/${value}`
  return Object.assign(node, { title: value, href, target: '_blank', rel: 'noreferrer' })
}
const about = (count) => {
  if (count < 100000) return String(count)
  return count < 1e6 ? `${Math.floor(count / 1000)} k` : `${(count / 1e6).toFixed(1)} M`
}
const leftOf = (budget) => Math.max(0, budget.global_items - budget.spent_items)

/**
 * By card, which is a part of the status: label, id, and what is read there where that is not the
 * field of the id: a text, or one with how bad it is, or a node.
 */
const cards = {
  budget: [
    ['Window ends', 'end', ({ window_ends_at: end }) => (end ? clockText(end) : 'none is open')],
    ['Left for all', 'left', (budget) => [leftOf(budget), leftOf(budget) === 0 && 'warn']],
    ['For each client', 'per_ip_items'],
    ['Client addresses', 'clients'],
  ],
  last_minute: [
    ['Admitted', 'admitted'],
    ['2xx responses', 'fine'],
    ['4xx responses', 'refused'],
    ['429 responses', 'limited'],
    ['5xx responses', 'failed', ({ failed }) => [failed, failed > 0 && 'bad']],
  ],
  executor: [
    ['Address', 'address', ({ address }) => address && linked('address', address, short(address))],
    [
      'Balance',
      'balance',
      (now) => now.balance_text ?? ('open_slots' in now ? 'not read yet' : 'switched off'),
    ],
    [
      'Can pay for proposals',
      'pays',
      ({ pays_for: count }) => count && [about(count), count < 50 ? 'bad' : count < 100 && 'warn'],
    ],
    ['Highest nonce', 'nonce', ({ highest_nonce: nonce }) => (nonce < 0 ? 'none yet' : nonce)],
    ['Nonces not mined yet', 'gap_latest'],
    ['Nonces not final yet', 'gap_finalized'],
    ['Open transactions', 'open', ({ open_slots: count }) => count],
    ['Newest', 'hash', ({ newest_hash: hash }) => hash && linked('tx', hash, short(hash))],
  ],
  chain: [
    ['Block', 'head'],
    [
      'Block age',
      'age',
      ({ head_age_seconds: age, max_head_age_seconds: most }) => [
        ageText(age),
        (age === null || age > most) && 'bad',
      ],
    ],
    [
      'Questions',
      'questions',
      ({ questions_known: known, questions_due: due }) => known + (due > 0 ? `, ${due} due` : ''),
    ],
    [
      'Store',
      'store',
      ({ failed, full }) => [
        failed ? 'not writable' : full ? 'disk full' : 'writable',
        (failed || full) && 'bad',
      ],
    ],
  ],
  cluster: [
    ['This gateway', 'role', ({ leads }) => (leads ? 'leads' : 'follows')],
    [
      'Leader',
      'leader',
      ({ leads, leader }) => (leads ? 'this one' : leader ? shortId(leader) : ['nobody', 'bad']),
    ],
    ['Gateways', 'gateways'],
    ['Records behind', 'lag', ({ lag_records: lag }) => [lag, lag > 0 && 'warn']],
    ['Leaders so far', 'epoch'],
  ],
}
const idOf = (card, id) => `${card.replace('last_', '')}-${id}`
for (const [card, fields] of Object.entries(cards)) {
  const field = ([label, id]) => {
    const value = Object.assign(make('dd'), { id: idOf(card, id) })
    return make('div', '', make('dt', '', label), value)
  }
  byId(card).append(make('dl', '', ...fields.map(field)))
}
const nodes = Object.assign(make('ul', 'nodes'), { id: 'nodes', ariaLabel: 'RPC nodes' })
byId('chain').append(nodes)

/** Made anew only where what they show has changed. */
const putItems = (list, all, itemOf = (text) => make('li', '', text)) => {
  if (list.dataset.shown === JSON.stringify(all)) return
  list.dataset.shown = JSON.stringify(all)
  list.replaceChildren(...all.map(itemOf))
}

function putField(place, read) {
  const [value, grade] = [read].flat()
  if (!(value instanceof Node)) put(place, String(value ?? none), grade ? `${grade}-text` : '')
  else if (place.firstChild?.title !== value.title) place.replaceChildren(value)
}

const stages = {}
for (const stage of ['received', 'validated', 'selected']) {
  stages[stage] = { count: make('b', 'big', none), oldest: make('span', 'note', '\u00a0') }
  const { count, oldest } = stages[stage]
  count.id = `queue-${stage}`
  oldest.id = `oldest-${stage}`
  byId('stages').append(make('li', '', stage, count, oldest))
}

function showFigures(now) {
  const { queue, budget, chain, executor, cluster, paused } = now
  explorer = now.explorer
  put(byId('ready'), now.ready ? 'ready' : 'not ready', `badge ${now.ready ? 'good' : 'bad'}`)
  byId('admission').hidden = now.admission_enabled
  byId('paused').hidden = paused === null
  const since = paused?.since ? ` since ${whenText(paused.since)}` : ''
  if (paused !== null) put(byId('paused'), `Admission is paused${since}: ${paused.why}`)
  putItems(byId('reasons'), now.reasons)
  let waiting = 0
  for (const [stage, { count, oldest_seconds: oldest }] of Object.entries(queue)) {
    waiting += count
    put(stages[stage].count, String(count))
    put(stages[stage].oldest, count === 0 ? '\u00a0' : `for ${ageText(oldest)}`)
  }
  put(byId('budget-spent'), String(budget.spent_items))
  put(byId('budget-limit'), `of ${budget.global_items} items in ${budget.window_seconds} s`)
  const [max, spent] = [budget.global_items, Math.min(budget.spent_items, budget.global_items)]
  Object.assign(byId('budget-bar'), { max, value: spent, className: spent === max ? 'warn' : '' })
  const parts = {
    ...now,
    executor: { address: now.executor_address, ...executor },
    chain: { ...chain, ...now.store },
    cluster: cluster ?? {},
  }
  for (const [card, fields] of Object.entries(cards))
    for (const [, id, read = (part) => part[id]] of fields)
      putField(byId(idOf(card, id)), read(parts[card]))
  byId('cluster').hidden = byId('leads').hidden = !cluster
  if (cluster) {
    const role = cluster.leads ? 'leads' : cluster.leader === null ? 'no leader' : 'follows'
    put(byId('leads'), role, `badge ${cluster.leader === null ? 'bad' : ''}`)
  }
  putItems(nodes, now.nodes, nodeItem)
  const serves = now.url === null ? '' : ` Serves ${now.url}.`
  const started = `Version ${now.version}, chain ${chain.id}, started ${whenText(now.started_at)}.`
  put(byId('about'), `${started}${serves} This page changes nothing.`)
  const state = [now.ready ? [] : 'not ready', waiting > 0 ? `${waiting} in queue` : []].flat()
  const title = [...state, 'proposer gateway'].join(' \u2013 ')
  if (document.title !== title) document.title = title
  showTrend('queue', waiting, (last, most) => `${last}, at most ${most}`)
  if (executor?.balance_wei) showTrend('balance', Number(executor.balance_wei) / 1e18, spentText)
}

function nodeItem({ node, healthy, head, head_age_seconds: age, unanswered }) {
  const failed = unanswered > 0 ? `, ${unanswered} unanswered` : ''
  const block = head === null ? 'no block' : `block ${head}, ${ageText(age)}`
  const name = `node ${node} ${healthy ? 'healthy' : 'set aside'}`
  const state = make('span', healthy ? 'good-text' : 'bad-text', name)
  return make('li', '', state, make('span', '', block + failed))
}

const coins = (value) => value.toLocaleString('en-US', { maximumFractionDigits: 4 })
const spentText = (last, _, first) =>
  `${coins(last)}, ${last < first ? '\u2212' : '+'}${coins(Math.abs(last - first))}`
const trends = { queue: [], balance: [] }

/** A point for each status that was told while the page is open. */
function showTrend(id, value, textOf) {
  const points = trends[id]
  points.push(value)
  if (points.length > 600) points.shift()
  const [low, high] = [Math.min(...points), Math.max(...points)]
  const x = (at) => (4 + (232 * at) / Math.max(1, points.length - 1)).toFixed(1)
  const y = (one) => (high === low ? 16 : 28 - (24 * (one - low)) / (high - low)).toFixed(1)
  // `h0`: a lone point is a line of no length, which its round ends make a dot.
  const line = points.map((one, at) => `${at === 0 ? 'M' : 'L'}${x(at)} ${y(one)}`).join('')
  const picture = byId(`trend-${id}`)
  picture.firstElementChild.setAttribute('d', `${line}h0`)
  const text = textOf(value, high, points[0])
  put(picture.nextElementSibling, text)
  picture.ariaLabel = `${id}: ${text}`
}

/** Shown while nobody searches; the others come with a click. */
const shownFirst = 25
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
let showsAll = false

/** Items stay where they are as long as their candidate is in the list. */
const makeList = (id, time) => ({ node: byId(id), items: new Map(), rows: [], time })
const lists = {
  failures: makeList('failures', 'failed_at'),
  candidates: makeList('candidates', 'received_at'),
  found: makeList('found', 'received_at'),
}
for (const { node, time } of [lists.failures, lists.candidates]) {
  const heads = [time.split('_')[0], 'status', 'question', 'answer', 'proposer', 'candidate']
  const columns = make('p', 'columns', ...heads.map((head) => make('span', '', head)))
  columns.ariaHidden = 'true'
  node.before(columns)
}

function showList(list, rows) {
  const { node, items } = list
  list.rows = rows
  for (const [id, item] of items) {
    // What somebody is reading stays until it is closed.
    if (rows.some((row) => row.candidate_id === id) || item.details.open) continue
    item.node.remove()
    items.delete(id)
  }
  for (const [index, row] of rows.entries()) {
    const item = items.get(row.candidate_id) ?? makeItem(list, row.candidate_id)
    const text = JSON.stringify(row)
    if (item.text !== text) {
      item.text = text
      item.summary.replaceChildren(...cellsOf(row, row[list.time]))
      if (item.details.open) void showWay(item.way, row.candidate_id)
    }
    const there = node.children[index]
    if (there !== item.node) node.insertBefore(item.node, there ?? null)
  }
  filter()
}

function showFailures({ count, is_more: isMore, codes, rows }) {
  put(byId('failed-count'), count + (isMore ? '+' : ''), count > 0 ? 'big bad-text' : 'big')
  const texts = codes.map(([code, times]) => `${times} ${code}`)
  putItems(byId('failed-codes'), texts)
  const newest = count > rows.length ? `, the newest ${rows.length}` : ''
  put(byId('failures-title'), `Failed in the last 24 hours${newest}`)
  showList(lists.failures, rows)
}

/** A candidate that no list has is asked for by its whole id. */
function filter() {
  const text = byId('search').value.trim().toLowerCase()
  const words = text.split(/\s+/)
  const state = byId('state').value
  const isFiltered = text !== '' || state !== ''
  const matches = (row) => {
    const said = Object.values(row).join(' ').toLowerCase()
    const isIn = state === 'queue' ? !/^(executed|failed)$/.test(row.status) : state === row.status
    return (state === '' || isIn) && words.every((word) => said.includes(word))
  }
  const count = ({ rows, items }, limit) =>
    rows.filter((row, index) => {
      const isShown = matches(row) && (isFiltered || showsAll || index < limit)
      items.get(row.candidate_id).node.hidden = !isShown
      return isShown
    }).length
  byId('failures-section').hidden = count(lists.failures, Number.POSITIVE_INFINITY) === 0
  const { length } = lists.candidates.rows
  byId('none').hidden = count(lists.candidates, shownFirst) > 0
  put(byId('none'), length === 0 ? 'none yet' : `none of the newest ${length}`)
  byId('more').hidden = isFiltered || length <= shownFirst
  put(byId('more'), `Show the newest ${showsAll ? shownFirst : length}`)
  const isKnown = lists.failures.items.has(text) || lists.candidates.items.has(text)
  void find(uuid.test(text) && !isKnown ? text : '')
}

let wanted = ''
async function find(id) {
  if (id === wanted) return
  wanted = id
  const found = id === '' ? undefined : await askFor(id).catch((error) => error)
  if (id !== wanted) return
  const isError = found instanceof Error
  put(byId('found-note'), isError ? found.message : found ? 'found in the store' : '')
  lists.found.node.replaceChildren()
  lists.found.items.clear()
  if (found && !isError) showList(lists.found, [found])
}

async function askFor(id) {
  const answer = await fetch(`/operator/candidates/${encodeURIComponent(id)}`)
  const body = await answer.json()
  if (!answer.ok) throw new Error(body.error.detail)
  return body
}

byId('search').addEventListener('input', filter)
byId('state').addEventListener('change', filter)
byId('more').addEventListener('click', () => {
  showsAll = !showsAll
  filter()
})

function makeItem({ items }, id) {
  const [summary, way] = [make('summary'), make('div', 'way')]
  const details = make('details', '', summary, way)
  const item = { node: make('li', '', details), details, summary, way, text: '' }
  details.addEventListener('toggle', () => {
    if (details.open) void showWay(way, id)
  })
  items.set(id, item)
  return item
}

const answerText = ({ label, outcome }) => (label === null ? outcome : `${label} (${outcome})`)

function cellsOf(row, at) {
  const { slug, status, question_id: question, proposer, candidate_id: id } = row
  const cell = (name, text, title = text) => Object.assign(make('span', name, text), { title })
  const badge = make('span', `badge status-${status}`, status)
  const more = make('span', 'note', row.failure_code ?? row.submission ?? '')
  return [
    cell('received', whenText(at), at),
    make('span', 'status', badge, ' ', more),
    cell('question', slug ?? short(question), slug === null ? question : `${slug} ${question}`),
    cell('answer', answerText(row)),
    cell('proposer', short(proposer), proposer),
    cell('id', shortId(id), id),
  ]
}

/** A value with a button that copies it. */
function copied(value, node = make('span', 'hash', value)) {
  if (!value) return null
  const button = Object.assign(make('button', 'copy', 'copy'), { type: 'button' })
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(value)
    put(button, 'copied')
    setTimeout(() => put(button, 'copy'), 1500)
  })
  return [node, button]
}

const deadlineText = (seconds) => {
  const left = Math.round(seconds - Date.now() / 1000)
  return `${dateText(seconds * 1000)}, ${left > 0 ? `in ${ageText(left)}` : `${ageText(-left)} ago`}`
}

function stepItem({ at, what, detail }) {
  const when = make('time', 'note', at === null ? '' : dateText(at))
  const step = make('li', '', when, make('span', '', what))
  const isHash = /^0x[0-9a-f]{64}$/.test(detail ?? '')
  if (detail !== null) step.append(make('span', 'note', isHash ? linked('tx', detail) : detail))
  return step
}

async function showWay(way, id) {
  const shown = await askFor(id).catch((error) => error)
  if (shown instanceof Error) {
    way.replaceChildren(make('p', 'note', `Could not be read: ${shown.message}`))
    return
  }
  const { proposer, transaction_hash: hash } = shown
  const facts = Object.entries({
    Candidate: copied(shown.candidate_id),
    Question: copied(shown.question_id),
    Slug: copied(shown.slug),
    Answer: [answerText(shown)],
    Proposer: copied(proposer, linked('address', proposer)),
    Authorizes: [shown.amount_text],
    Deadline: [deadlineText(Number(shown.deadline))],
    Transaction: hash && copied(hash, linked('tx', hash)),
  }).flatMap(([label, parts]) =>
    parts ? make('div', '', make('dt', '', label), make('dd', '', ...parts)) : [],
  )
  way.replaceChildren(make('ol', '', ...shown.steps.map(stepItem)), make('dl', '', ...facts))
}

let source
let lostAt
let before
let heardAt = Date.now()
let again

function connected({ started_at, version }) {
  put(byId('link'), 'live', 'link')
  document.body.className = ''
  if (before !== undefined && before.version !== version) location.reload()
  const text =
    before !== undefined && before.started_at !== started_at
      ? `The gateway was restarted at ${clockText(started_at)}; this page follows the new one.`
      : lostAt && `The connection was lost from ${clockText(lostAt)} to ${clockText(Date.now())}.`
  if (text) {
    put(byId('notice'), text, 'notice good')
    byId('notice').hidden = false
  }
  lostAt = undefined
  before = { started_at, version }
}

function lost(why) {
  lostAt ??= Date.now()
  put(byId('ready'), 'unknown', 'badge')
  document.body.className = 'lost'
  const since = `Reconnecting since ${clockText(lostAt)}; the figures are out of date.`
  put(byId('link'), `${why} ${since}`, 'link bad-text')
}

function connect() {
  clearTimeout(again)
  source?.close()
  heardAt = Date.now()
  source = new EventSource('/operator/events')
  const on = (kind, hear) =>
    source.addEventListener(kind, ({ data }) => {
      heardAt = Date.now()
      hear(JSON.parse(data))
    })
  on('figures', (now) => {
    if (lostAt !== undefined || before === undefined) connected(now)
    showFigures(now)
  })
  on('failures', showFailures)
  on('candidates', (rows) => showList(lists.candidates, rows))
  on('beat', () => {})
  on('end', () => lost('The gateway is stopping.'))
  source.addEventListener('error', () => {
    lost('No connection to the gateway.')
    // A refusal ends an event source for good; a lost connection it takes up by itself.
    if (source.readyState === EventSource.CLOSED) again = setTimeout(connect, 3000)
  })
}

setInterval(() => {
  if (Date.now() - heardAt < 15000 || source.readyState !== EventSource.OPEN) return
  lost('The gateway does not respond.')
  connect()
}, 1000)
connect()
