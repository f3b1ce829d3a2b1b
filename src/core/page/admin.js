/**
 * The operator's page: status of the gateway, its newest candidates, the way of each. Outside text
 * becomes text nodes and nothing else (R20). ASCII, so that any bundle can hold it.
 */
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

const ageText = (seconds) => {
  if (seconds === null) return '\u2013'
  if (seconds < 100) return `${seconds} s`
  return seconds < 6000 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`
}
/** In UTC, as every command has it. */
const clockText = (when) => `${new Date(when).toISOString().slice(11, 19)}Z`
const dateText = (when) => `${new Date(when).toISOString().slice(0, 10)} ${clockText(when)}`
const whenText = (when) => {
  const text = dateText(when)
  return text.startsWith(new Date().toISOString().slice(0, 10)) ? clockText(when) : text.slice(5)
}
/** Both ends of an address or hash, as explorers have them. */
const short = (text) => (text.length > 14 ? `${text.slice(0, 6)}\u2026${text.slice(-4)}` : text)
const shortId = (id) => `${id.slice(0, 8)}\u2026`
let explorer = null
/** A hash or an address, and where it can be looked up. */
const linked = (kind, value, text = value) => {
  const node = make(explorer === null ? 'span' : 'a', 'hash', text)
  node.title = value
  if (explorer !== null)
    Object.assign(node, {
      href: `${explorer}/${kind}/${value}`,
      target: '_blank',
      rel: 'noreferrer',
    })
  return node
}
const putLinked = (node, kind, value, none) => {
  const key = `${explorer} ${value}`
  if (node.dataset.shown === key) return
  node.dataset.shown = key
  node.replaceChildren(value === null ? none : linked(kind, value, short(value)))
}
/** What it pays for is an estimate. */
const about = (count) => {
  if (count < 100000) return String(count)
  return count < 1e6 ? `${Math.floor(count / 1000)} k` : `${(count / 1e6).toFixed(1)} M`
}
const countText = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`
/** A value, and how bad it is: `bad`, `warn` or nothing. */
const graded = (value, grade) => [value, grade ? `${grade}-text` : '']
const leftOf = ({ budget }) => Math.max(0, budget.global_items - budget.spent_items)

/** The figures of each card: label, id, and the text of a status or where it stands there. */
const cards = {
  budget: [
    [
      'Window ends',
      'budget-end',
      ({ budget: { window_ends_at: end } }) => (end === null ? 'none is open' : clockText(end)),
    ],
    ['Left for all', 'budget-left', (now) => graded(leftOf(now), leftOf(now) === 0 && 'warn')],
    ['For each client', 'budget-client', 'budget.per_ip_items'],
    ['Client addresses', 'budget-clients', 'budget.clients'],
  ],
  minute: [
    ['Admitted', 'minute-admitted', 'last_minute.admitted'],
    ['2xx responses', 'minute-fine', 'last_minute.fine'],
    ['4xx responses', 'minute-refused', 'last_minute.refused'],
    ['429 responses', 'minute-limited', 'last_minute.limited'],
    [
      '5xx responses',
      'minute-failed',
      ({ last_minute: { failed } }) => graded(failed, failed > 0 && 'bad'),
    ],
  ],
  executor: [
    ['Address', 'executor-address'],
    [
      'Balance',
      'executor-balance',
      ({ executor }) =>
        executor === null ? 'switched off' : (executor.balance_text ?? 'not read yet'),
    ],
    [
      'Can pay for proposals',
      'executor-pays',
      ({ executor }) => {
        const count = executor?.pays_for
        return graded(count && about(count), count < 50 ? 'bad' : count < 100 && 'warn')
      },
    ],
    [
      'Highest nonce',
      'executor-nonce',
      ({ executor }) => (executor?.highest_nonce < 0 ? 'none yet' : executor?.highest_nonce),
    ],
    ['Nonces not mined yet', 'executor-gap', 'executor.gap_latest'],
    ['Nonces not final yet', 'executor-gap-final', 'executor.gap_finalized'],
    ['Open transactions', 'executor-open', 'executor.open_slots'],
    ['Newest', 'executor-hash'],
  ],
  chain: [
    ['Block', 'chain-head', ({ chain }) => chain.head ?? 'none read yet'],
    [
      'Block age',
      'chain-age',
      ({ chain: { head_age_seconds: age, max_head_age_seconds: most } }) =>
        graded(ageText(age), (age === null || age > most) && 'bad'),
    ],
    [
      'Questions',
      'chain-questions',
      ({ chain: { questions_known: known, questions_due: due } }) =>
        known + (due > 0 ? `, ${due} due` : ''),
    ],
    [
      'Store',
      'store',
      ({ store: { failed, full } }) =>
        graded(
          failed ? 'not writable' : full ? 'disk full' : 'writable',
          (failed || full) && 'bad',
        ),
    ],
  ],
  cluster: [
    ['This gateway', 'cluster-role', ({ cluster }) => (cluster?.leads ? 'leads' : 'follows')],
    [
      'Leader',
      'cluster-leader',
      ({ cluster }) =>
        graded(
          cluster?.leads ? 'this one' : cluster?.leader ? shortId(cluster.leader) : 'nobody',
          !cluster?.leader && 'bad',
        ),
    ],
    ['Gateways', 'cluster-gateways', 'cluster.gateways'],
    [
      'Records behind',
      'cluster-lag',
      ({ cluster }) => graded(cluster?.lag_records, cluster?.lag_records > 0 && 'warn'),
    ],
    ['Leaders so far', 'cluster-epoch', 'cluster.epoch'],
  ],
}
const readAt = (now, path) => path.split('.').reduce((value, key) => value?.[key], now)
const fieldOf = (label, id) => {
  const place = make('dd', '', '\u2013')
  place.id = id
  return make('div', '', make('dt', '', label), place)
}
for (const [card, fields] of Object.entries(cards))
  byId(card).append(make('dl', '', ...fields.map(([label, id]) => fieldOf(label, id))))
const nodeList = make('ul', 'nodes')
nodeList.id = 'nodes'
nodeList.ariaLabel = 'RPC nodes'
byId('chain').append(nodeList)

/** Items of a list, made anew only where their texts have changed. */
const putItems = (list, texts, itemOf) => {
  if (list.dataset.shown === JSON.stringify(texts)) return
  list.dataset.shown = JSON.stringify(texts)
  list.replaceChildren(...texts.map((text) => itemOf?.(text) ?? make('li', '', text)))
}

function showFigures(now) {
  const { queue, budget, chain, executor, cluster, paused, reasons } = now
  explorer = now.explorer
  put(byId('ready'), now.ready ? 'ready' : 'not ready', `badge ${now.ready ? 'good' : 'bad'}`)
  byId('admission').hidden = now.admission_enabled
  byId('paused').hidden = paused === null
  if (paused !== null) {
    const since = paused.since === null ? '' : ` since ${whenText(paused.since)}`
    put(byId('paused'), `Admission is paused${since}: ${paused.why}`)
  }
  putItems(byId('reasons'), reasons)
  for (const [stage, { count, oldest_seconds: oldest }] of Object.entries(queue)) {
    put(byId(`queue-${stage}`), String(count))
    put(byId(`oldest-${stage}`), count === 0 ? '\u00a0' : `for ${ageText(oldest)}`)
  }
  put(byId('budget-spent'), String(budget.spent_items))
  put(
    byId('budget-limit'),
    `of ${countText(budget.global_items, 'item')} in ${budget.window_seconds} s`,
  )
  const bar = byId('budget-bar')
  bar.max = budget.global_items
  bar.value = Math.min(budget.spent_items, budget.global_items)
  bar.className = leftOf(now) === 0 ? 'warn' : ''
  for (const [, id, read] of Object.values(cards).flat()) {
    if (read === undefined) continue
    const [text, grade] = [typeof read === 'string' ? readAt(now, read) : read(now)].flat()
    put(byId(id), String(text ?? '\u2013'), grade ?? '')
  }
  putLinked(byId('executor-address'), 'address', now.executor_address, '\u2013')
  const newest = executor === null ? null : executor.newest_hash
  putLinked(byId('executor-hash'), 'tx', newest, executor === null ? '\u2013' : 'none yet')
  byId('cluster').hidden = byId('leads').hidden = !cluster
  if (cluster) {
    const role = cluster.leads ? 'leads' : cluster.leader === null ? 'no leader' : 'follows'
    put(byId('leads'), role, `badge ${cluster.leader === null ? 'bad' : ''}`)
  }
  putItems(nodeList, now.nodes, nodeItem)
  const serves = now.url === null ? '' : ` Serves ${now.url}.`
  const started = `Version ${now.version}, chain ${chain.id}, started ${whenText(now.started_at)}.`
  put(byId('about'), `${started}${serves} This page changes nothing.`)
  const waiting = queue.received.count + queue.validated.count + queue.selected.count
  const title = `${now.ready ? '' : 'not ready \u2013 '}${waiting > 0 ? `${waiting} in queue \u2013 ` : ''}proposer gateway`
  if (document.title !== title) document.title = title
  const wei = executor?.balance_wei ?? null
  showTrend('queue', waiting, (last, most) => `${last}, at most ${most}`)
  if (wei !== null)
    showTrend(
      'balance',
      Number(wei) / 1e18,
      (last, _, first) =>
        `${coins(last)}, ${last < first ? '\u2212' : '+'}${coins(Math.abs(last - first))}`,
    )
}

function nodeItem({ node, healthy, head, head_age_seconds: age, unanswered }) {
  const failed = unanswered > 0 ? `, ${unanswered} unanswered` : ''
  const block = head === null ? 'no block' : `block ${head}, ${ageText(age)}`
  const state = healthy ? 'healthy' : 'set aside'
  return make(
    'li',
    '',
    make('span', healthy ? 'good-text' : 'bad-text', `node ${node} ${state}`),
    make('span', '', block + failed),
  )
}

const coins = (value) => value.toLocaleString('en-US', { maximumFractionDigits: 4 })
const mostPoints = 600
const trends = { queue: [], balance: [] }

/** A point for each status that was told while the page is open. */
function showTrend(id, value, textOf) {
  const points = trends[id]
  points.push(value)
  if (points.length > mostPoints) points.shift()
  const [low, high] = [Math.min(...points), Math.max(...points)]
  const x = (at) => (points.length < 2 ? 236 : 4 + (232 * at) / (points.length - 1)).toFixed(1)
  const y = (one) => (high === low ? 16 : 28 - (24 * (one - low)) / (high - low)).toFixed(1)
  // A lone point is a line of no length, which its round ends make a dot.
  const line = points.map((one, at) => `${at === 0 ? 'M' : 'L'}${x(at)} ${y(one)}`).join('')
  byId(`trend-${id}`).firstElementChild.setAttribute('d', points.length === 1 ? `${line}h0` : line)
  const text = textOf(value, high, points[0])
  put(byId(`trend-${id}-said`), text)
  byId(`trend-${id}`).ariaLabel = `${id}: ${text}`
}

/** Shown while nobody searches; the others come with a click. */
const shownFirst = 25
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const inQueue = ['received', 'validated', 'selected']
let showsAll = false

/** A list on the page: its items stay where they are as long as their candidate is in it. */
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
  const shown = new Set(rows.map((row) => row.candidate_id))
  for (const [id, item] of items) {
    // What somebody is reading stays until it is closed.
    if (shown.has(id) || item.node.firstChild.open) continue
    item.node.remove()
    items.delete(id)
  }
  rows.forEach((row, index) => {
    const item = items.get(row.candidate_id) ?? makeItem(list, row.candidate_id)
    const text = JSON.stringify(row)
    if (item.text !== text) {
      item.text = text
      fillItem(item, row, row[list.time])
      if (item.node.firstChild.open) void showWay(item, row.candidate_id)
    }
    if (node.children[index] !== item.node)
      node.insertBefore(item.node, node.children[index] ?? null)
  })
  filter()
}

function showFailures({ count, is_more: isMore, codes, rows }) {
  put(byId('failed-count'), count + (isMore ? '+' : ''), count > 0 ? 'bad-text' : '')
  putItems(
    byId('failed-codes'),
    codes.map(([code, times]) => `${times} ${code}`),
  )
  const newest = count > rows.length ? `, the newest ${rows.length}` : ''
  put(byId('failures-title'), `Failed in the last 24 hours${newest}`)
  showList(lists.failures, rows)
}

/** Hides what does not match; a candidate that no list has is asked for by its whole id. */
function filter() {
  const text = byId('search').value.trim().toLowerCase()
  const words = text.split(/\s+/).filter((word) => word !== '')
  const state = byId('state').value
  const isFiltered = words.length > 0 || state !== ''
  const matches = (row) => {
    const said = Object.values(row).join(' ').toLowerCase()
    const isIn = state === row.status || (state === 'queue' && inQueue.includes(row.status))
    return (state === '' || isIn) && words.every((word) => said.includes(word))
  }
  const count = (name, limit) =>
    lists[name].rows.filter((row, index) => {
      const isShown = matches(row) && (isFiltered || showsAll || index < limit)
      lists[name].items.get(row.candidate_id).node.hidden = !isShown
      return isShown
    }).length
  byId('failures-section').hidden = count('failures', Number.POSITIVE_INFINITY) === 0
  const { length } = lists.candidates.rows
  byId('none').hidden = count('candidates', shownFirst) > 0
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
  let rows = []
  let note = ''
  if (id !== '')
    try {
      rows = [await askFor(id)]
      note = 'found in the store'
    } catch (error) {
      note = error.message
    }
  if (id !== wanted) return
  put(byId('found-note'), note)
  for (const { node } of lists.found.items.values()) node.remove()
  lists.found.items.clear()
  if (rows.length > 0) showList(lists.found, rows)
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
  const part = (name) => make('span', name)
  const parts = { badge: part('badge'), more: part('more') }
  for (const name of ['received', 'status', 'question', 'answer', 'proposer', 'id'])
    parts[name] = part(name)
  parts.status.append(parts.badge, ' ', parts.more)
  const { received, status, question, answer, proposer, id: idPart } = parts
  const way = make('div', 'way')
  const summary = make('summary', '', received, status, question, answer, proposer, idPart)
  const details = make('details', '', summary, way)
  const item = { node: make('li', '', details), parts, way, text: '' }
  details.addEventListener('toggle', () => {
    if (details.open) void showWay(item, id)
  })
  items.set(id, item)
  return item
}

const answerText = ({ label, outcome }) => (label === null ? outcome : `${label} (${outcome})`)

function fillItem({ parts }, row, at) {
  const fill = (name, text, title = text) => {
    put(parts[name], text)
    parts[name].title = title
  }
  const { slug, question_id: question } = row
  fill('received', whenText(at), at)
  put(parts.badge, row.status, `badge status-${row.status}`)
  fill('more', row.failure_code ?? row.submission ?? '')
  fill('question', slug ?? short(question), slug === null ? question : `${slug} ${question}`)
  fill('answer', answerText(row))
  fill('proposer', short(row.proposer), row.proposer)
  parts.proposer.classList.add('hash')
  fill('id', shortId(row.candidate_id), row.candidate_id)
}

/** A value with a button that copies it. */
function copied(node, value) {
  const button = make('button', 'copy', 'copy')
  button.type = 'button'
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

async function showWay(item, id) {
  let shown
  try {
    shown = await askFor(id)
  } catch (error) {
    item.way.replaceChildren(make('p', 'note', `Could not be read: ${error.message}`))
    return
  }
  const steps = shown.steps.map(({ at, what, detail }) => {
    const step = make(
      'li',
      '',
      make('time', 'note', at === null ? '' : dateText(at)),
      make('span', '', what),
    )
    const isHash = detail !== null && /^0x[0-9a-f]{64}$/.test(detail)
    if (detail !== null) step.append(make('span', 'detail', isHash ? linked('tx', detail) : detail))
    return step
  })
  const copy = (value, node = make('span', 'hash', value)) => value && copied(node, value)
  const facts = Object.entries({
    Candidate: copy(shown.candidate_id),
    Question: copy(shown.question_id),
    Slug: copy(shown.slug),
    Answer: [answerText(shown)],
    Proposer: copy(shown.proposer, linked('address', shown.proposer)),
    Authorizes: [shown.amount_text],
    Deadline: [deadlineText(Number(shown.deadline))],
    Transaction:
      shown.transaction_hash &&
      copied(linked('tx', shown.transaction_hash), shown.transaction_hash),
  }).flatMap(([label, parts]) =>
    parts === null ? [] : make('div', '', make('dt', '', label), make('dd', '', ...parts)),
  )
  item.way.replaceChildren(make('ol', '', ...steps), make('dl', '', ...facts))
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
  const notice = byId('notice')
  const text =
    before !== undefined && before.started_at !== started_at
      ? `The gateway was restarted at ${clockText(started_at)}; this page follows the new one.`
      : lostAt !== undefined &&
        `The connection was lost from ${clockText(lostAt)} to ${clockText(Date.now())}.`
  if (text) {
    put(notice, text, 'notice good')
    notice.hidden = false
  }
  lostAt = undefined
  before = { started_at, version }
}

function lost(why) {
  lostAt ??= Date.now()
  put(byId('ready'), 'unknown', 'badge')
  document.body.className = 'lost'
  const since = `Reconnecting since ${clockText(lostAt)}; the figures are out of date.`
  put(byId('link'), `${why} ${since}`, 'link lost')
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
