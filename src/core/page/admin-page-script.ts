/**
 * The script of the operator's page: hears events, puts figures into their places. Outside text
 * becomes text nodes and nothing else. It is plain JavaScript that a browser takes as it is, and
 * ASCII. A raw string cannot be escaped where a bundle may hold nothing else.
 */
export const pageScript = String.raw`
const byId = (id) => document.getElementById(id)
/** Only what has changed is written, so that a reader's selection and a screen reader's place stay. */
const put = (node, text, name) => {
  if (node.textContent !== text) node.textContent = text
  if (name !== undefined && node.className !== name) node.className = name
}
const make = (tag, name, text) => {
  const node = document.createElement(tag)
  if (name) node.className = name
  if (text !== undefined) node.textContent = text
  return node
}

const ageText = (seconds) =>
  seconds === null ? '\u2013' : seconds < 100 ? seconds + ' s' : seconds < 6000 ? Math.floor(seconds / 60) + ' min' : Math.floor(seconds / 3600) + ' h'
/** In UTC, as the gateway's lines and every other command have it. */
const clockText = (when) => new Date(when).toISOString().slice(11, 19) + 'Z'
const whenText = (iso) => {
  const day = new Date(iso).toISOString().slice(0, 10)
  return day === new Date().toISOString().slice(0, 10) ? clockText(iso) : day.slice(5) + ' ' + clockText(iso)
}
const short = (text, length) => (text.length > length ? text.slice(0, length) + '\u2026' : text)
const coins = (wei) => String(Number((Number(BigInt(wei) / 10n ** 12n) / 1e6).toFixed(4)))
/** About so many, in few digits: what it pays for is an estimate. */
const about = (count) => (count < 100000 ? String(count) : count < 1e6 ? Math.floor(count / 1000) + ' k' : (count / 1e6).toFixed(1) + ' M')
const clusterText = ({ leads, leader, epoch, lag_records: lag, gateways }) =>
  (leads ? 'this gateway leads' : leader === null ? 'nobody leads' : short(leader, 8) + ' leads') +
  ', epoch ' + epoch + ', ' + gateways + ' gateway' + (gateways === 1 ? '' : 's') + ', lag ' + lag
const many = (count, word) => count + ' ' + word + (count === 1 ? '' : 's')

function showFigures(now) {
  const { queue, budget, last_minute: minute, chain, nodes, executor, store, cluster } = now
  put(byId('ready'), now.ready ? 'ready' : 'not ready', 'badge ' + (now.ready ? 'good' : 'warn'))
  byId('admission').hidden = now.admission_enabled
  byId('admission').className = 'badge warn'
  const reasons = byId('reasons')
  const told = [...reasons.children].map((one) => one.textContent)
  if (told.join('\n') !== now.reasons.join('\n')) reasons.replaceChildren(...now.reasons.map((reason) => make('li', '', reason)))
  for (const stage of ['received', 'validated', 'selected']) {
    put(byId('queue-' + stage), String(queue[stage].count))
    put(byId('oldest-' + stage), queue[stage].count === 0 ? '\u00a0' : 'for ' + ageText(queue[stage].oldest_seconds))
  }
  const left = Math.max(0, budget.global_items - budget.spent_items)
  put(byId('budget-spent'), String(budget.spent_items))
  put(byId('budget-limit'), 'of ' + many(budget.global_items, 'item') + ' in ' + budget.window_seconds + ' s')
  const bar = byId('budget-bar')
  bar.max = budget.global_items
  bar.value = Math.min(budget.spent_items, budget.global_items)
  bar.className = left === 0 ? 'warn' : ''
  put(byId('budget-left'), String(left), left === 0 ? 'warn-text' : '')
  put(byId('budget-end'), budget.window_ends_at === null ? 'none is open' : 'ends at ' + clockText(budget.window_ends_at))
  put(byId('budget-client'), 'at most ' + budget.per_ip_items)
  put(byId('budget-clients'), String(budget.clients))
  for (const kind of ['admitted', 'fine', 'refused', 'limited']) put(byId('minute-' + kind), String(minute[kind]))
  put(byId('minute-failed'), String(minute.failed), minute.failed > 0 ? 'bad-text' : '')
  showExecutor(executor)
  const isOld = chain.head_age_seconds === null || chain.head_age_seconds > chain.max_head_age_seconds
  put(byId('chain-head'), chain.head === null ? 'none read yet' : chain.head)
  put(byId('chain-age'), ageText(chain.head_age_seconds), isOld ? 'bad-text' : '')
  put(byId('chain-questions'), chain.questions_known + ' known' + (chain.questions_due > 0 ? ', ' + chain.questions_due + ' due' : ''))
  const shared = cluster ? ', ' + clusterText(cluster) : ''
  put(byId('store'), (store.failed ? 'takes no writes' : store.full ? 'disk full' : 'takes writes') + shared, store.failed || store.full ? 'bad-text' : '')
  showNodes(nodes)
  put(byId('about'), 'Version ' + now.version + ', chain ' + chain.id + ', started ' + whenText(now.started_at) + '.' + (now.url === null ? '' : ' Serves ' + now.url + '.') + ' This page changes nothing.')
  const waiting = queue.received.count + queue.validated.count + queue.selected.count
  const title = (now.ready ? '' : 'not ready \u2013 ') + (waiting > 0 ? waiting + ' in queue \u2013 ' : '') + 'proposer gateway'
  if (document.title !== title) document.title = title
}

function showExecutor(executor) {
  const places = ['balance', 'pays', 'nonce', 'gap', 'gap-final', 'open', 'hash']
  if (executor === null) {
    for (const place of places) put(byId('executor-' + place), place === 'balance' ? 'switched off' : '\u2013', '')
    return
  }
  const unread = 'not read yet'
  const { balance_wei: wei, pays_for: pays, gap_latest: gap, gap_finalized: gapFinal } = executor
  put(byId('executor-balance'), wei === null ? unread : coins(wei) + ' for gas')
  put(byId('executor-pays'), pays === null ? '\u2013' : about(pays) + ' proposals', pays !== null && pays < 10 ? 'bad-text' : pays !== null && pays < 100 ? 'warn-text' : '')
  put(byId('executor-nonce'), executor.highest_nonce < 0 ? 'none yet' : String(executor.highest_nonce))
  put(byId('executor-gap'), gap === null ? unread : String(gap))
  put(byId('executor-gap-final'), gapFinal === null ? unread : String(gapFinal))
  put(byId('executor-open'), String(executor.open_slots))
  put(byId('executor-hash'), executor.newest_hash === null ? 'none yet' : short(executor.newest_hash, 10), 'hash')
  byId('executor-hash').title = executor.newest_hash ?? ''
}

function showNodes(nodes) {
  const list = byId('nodes')
  while (list.children.length > nodes.length) list.lastElementChild.remove()
  while (list.children.length < nodes.length) {
    const item = make('li')
    item.append(make('span'), make('span'))
    list.append(item)
  }
  nodes.forEach(({ node, healthy, head, head_age_seconds: age, unanswered }, index) => {
    const [name, said] = list.children[index].children
    put(name, 'node ' + node + (healthy ? ' healthy' : ' set aside'), healthy ? 'good-text' : 'bad-text')
    const failed = unanswered > 0 ? ', ' + unanswered + ' unanswered' : ''
    put(said, (head === null ? 'no block' : 'block ' + head + ', ' + ageText(age)) + failed)
  })
}

const items = new Map()

function showCandidates(rows) {
  const list = byId('candidates')
  byId('none').hidden = rows.length > 0
  const shown = new Set(rows.map((row) => row.candidate_id))
  for (const [id, item] of items) {
    // What somebody is reading stays until it is closed.
    if (shown.has(id) || item.node.firstChild.open) continue
    item.node.remove()
    items.delete(id)
  }
  rows.forEach((row, index) => {
    const item = items.get(row.candidate_id) ?? makeItem(row.candidate_id)
    const text = JSON.stringify(row)
    if (item.text !== text) {
      item.text = text
      fillItem(item, row)
      if (item.node.firstChild.open) void showWay(item, row.candidate_id)
    }
    if (list.children[index] !== item.node) list.insertBefore(item.node, list.children[index] ?? null)
  })
}

function makeItem(id) {
  const node = make('li')
  const details = make('details')
  const summary = make('summary')
  const parts = {}
  for (const name of ['received', 'status', 'question', 'answer', 'proposer', 'id']) {
    parts[name] = make('span', name)
    summary.append(parts[name])
  }
  parts.badge = make('span', 'badge')
  parts.more = make('span', 'more')
  parts.status.append(parts.badge, ' ', parts.more)
  const way = make('div', 'way')
  details.append(summary, way)
  node.append(details)
  const item = { node, parts, way, text: '' }
  details.addEventListener('toggle', () => {
    if (details.open) void showWay(item, id)
  })
  items.set(id, item)
  return item
}

function fillItem({ parts }, row) {
  put(parts.received, whenText(row.received_at))
  parts.received.title = row.received_at
  put(parts.badge, row.status, 'badge status-' + row.status)
  put(parts.more, row.failure_code ?? row.submission ?? '')
  put(parts.question, row.slug ?? short(row.question_id, 10))
  parts.question.title = row.slug === null ? row.question_id : row.slug + ' ' + row.question_id
  put(parts.answer, row.outcome)
  put(parts.proposer, short(row.proposer, 10), 'proposer hash')
  parts.proposer.title = row.proposer
  put(parts.id, short(row.candidate_id, 8))
  parts.id.title = row.candidate_id
}

async function showWay(item, id) {
  let told
  try {
    const answer = await fetch('/operator/candidates/' + encodeURIComponent(id))
    told = await answer.json()
    if (!answer.ok) throw new Error(told.error.detail)
  } catch (error) {
    item.way.replaceChildren(make('p', 'note', 'It cannot be read now: ' + error.message))
    return
  }
  const steps = make('ol')
  for (const { at, what, detail } of told.steps) {
    const step = make('li')
    const time = make('time', 'note', at === null ? '' : whenText(at))
    if (at !== null) time.dateTime = at
    step.append(time, make('span', '', what))
    if (detail !== null) step.append(make('span', detail.startsWith('0x') ? 'detail hash' : 'detail', detail))
    steps.append(step)
  }
  const facts = make('dl')
  for (const [label, value] of [
    ['Candidate', told.candidate_id],
    ['Question', told.question_id],
    ['Proposer', told.proposer],
    ['Authorizes', told.amount + ' raw token units'],
    ['Deadline', whenText(Number(told.deadline) * 1000)],
    ['Transaction', told.transaction_hash],
  ]) {
    if (value === null) continue
    const fact = make('div')
    fact.append(make('dt', '', label), make('dd', 'hash', value))
    facts.append(fact)
  }
  item.way.replaceChildren(steps, facts)
}

let source
let lostAt
let startedAt
let version
let heardAt = Date.now()
let again

function connected(now) {
  put(byId('link'), 'live', 'link')
  document.body.className = ''
  if (version !== undefined && version !== now.version) location.reload()
  const notice = byId('notice')
  if (startedAt !== undefined && startedAt !== now.started_at) {
    put(notice, 'The gateway was restarted at ' + clockText(now.started_at) + '; this page follows the new one.', 'notice good')
    notice.hidden = false
  } else if (lostAt !== undefined) {
    put(notice, 'The connection was lost from ' + clockText(lostAt) + ' to ' + clockText(Date.now()) + '.', 'notice good')
    notice.hidden = false
  }
  lostAt = undefined
  ;[startedAt, version] = [now.started_at, now.version]
}

function lost(why) {
  lostAt ??= Date.now()
  put(byId('ready'), 'unknown', 'badge')
  document.body.className = 'lost'
  put(byId('link'), why + ' Trying again since ' + clockText(lostAt) + '; the figures are old.', 'link lost')
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
    if (lostAt !== undefined || startedAt === undefined) connected(now)
    showFigures(now)
  })
  on('candidates', showCandidates)
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
  lost('The gateway says nothing.')
  connect()
}, 1000)
connect()
`
