/**
 * The script of the operator's page: its tools, and what puts figures into their places. Outside
 * text becomes text nodes and nothing else. It is plain JavaScript that a browser takes as it is,
 * and ASCII. A raw string cannot be escaped where a bundle may hold nothing else.
 */
import { enoughProposals, fewProposals } from '../protocol/vitals.js'

export const figuresScript = String.raw`
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
const dateText = (when) => new Date(when).toISOString().slice(0, 10) + ' ' + clockText(when)
/** Both ends of an address or hash, as explorers have them. */
const short = (text) => (text.length > 14 ? text.slice(0, 6) + '\u2026' + text.slice(-4) : text)
const shortId = (id) => id.slice(0, 8) + '\u2026'
const amount = (value, digits) => value.toLocaleString('en-US', { maximumFractionDigits: digits })
let explorer = null
/** A hash or an address, and where it can be looked up. */
const linked = (kind, value, text = value) => {
  const node = make(explorer === null ? 'span' : 'a', 'hash', text)
  node.title = value
  if (explorer !== null) Object.assign(node, { href: explorer + '/' + kind + '/' + value, target: '_blank', rel: 'noreferrer' })
  return node
}
const putLinked = (node, kind, value, none) => {
  const key = explorer + ' ' + value
  if (node.dataset.shown === key) return
  node.dataset.shown = key
  node.replaceChildren(value === null ? none : linked(kind, value, short(value)))
}
/** About so many, in few digits: what it pays for is an estimate. */
const about = (count) => (count < 100000 ? String(count) : count < 1e6 ? Math.floor(count / 1000) + ' k' : (count / 1e6).toFixed(1) + ' M')
const many = (count, word) => count + ' ' + word + (count === 1 ? '' : 's')

function showFigures(now) {
  const { queue, budget, last_minute: minute, chain, nodes, executor, store, cluster } = now
  explorer = now.explorer
  put(byId('ready'), now.ready ? 'ready' : 'not ready', 'badge ' + (now.ready ? 'good' : 'bad'))
  byId('admission').hidden = now.admission_enabled
  const { paused } = now
  byId('paused').hidden = paused === null
  if (paused !== null) put(byId('paused'), 'Admission is paused' + (paused.since === null ? ': ' : ' since ' + whenText(paused.since) + ': ') + paused.why)
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
  put(byId('budget-end'), budget.window_ends_at === null ? 'none is open' : clockText(budget.window_ends_at))
  put(byId('budget-client'), String(budget.per_ip_items))
  put(byId('budget-clients'), String(budget.clients))
  for (const kind of ['admitted', 'fine', 'refused', 'limited']) put(byId('minute-' + kind), String(minute[kind]))
  put(byId('minute-failed'), String(minute.failed), minute.failed > 0 ? 'bad-text' : '')
  showExecutor(executor, now.executor_address)
  const isOld = chain.head_age_seconds === null || chain.head_age_seconds > chain.max_head_age_seconds
  put(byId('chain-head'), chain.head === null ? 'none read yet' : chain.head)
  put(byId('chain-age'), ageText(chain.head_age_seconds), isOld ? 'bad-text' : '')
  put(byId('chain-questions'), chain.questions_known + (chain.questions_due > 0 ? ', ' + chain.questions_due + ' due' : ''))
  put(byId('store'), store.failed ? 'not writable' : store.full ? 'disk full' : 'writable', store.failed || store.full ? 'bad-text' : '')
  showCluster(cluster)
  showNodes(nodes)
  put(byId('about'), 'Version ' + now.version + ', chain ' + chain.id + ', started ' + whenText(now.started_at) + '.' + (now.url === null ? '' : ' Serves ' + now.url + '.') + ' This page changes nothing.')
  const waiting = queue.received.count + queue.validated.count + queue.selected.count
  const title = (now.ready ? '' : 'not ready \u2013 ') + (waiting > 0 ? waiting + ' in queue \u2013 ' : '') + 'proposer gateway'
  if (document.title !== title) document.title = title
}

function showExecutor(executor, address) {
  putLinked(byId('executor-address'), 'address', address, '\u2013')
  const places = ['balance', 'pays', 'nonce', 'gap', 'gap-final', 'open']
  if (executor === null) {
    for (const place of places) put(byId('executor-' + place), place === 'balance' ? 'switched off' : '\u2013', '')
    putLinked(byId('executor-hash'), 'tx', null, '\u2013')
    return
  }
  const unread = 'not read yet'
  const { pays_for: pays, gap_latest: gap, gap_finalized: gapFinal } = executor
  put(byId('executor-balance'), executor.balance_text ?? unread)
  put(byId('executor-pays'), pays === null ? '\u2013' : about(pays), pays === null || pays >= ${enoughProposals} ? '' : pays < ${fewProposals} ? 'bad-text' : 'warn-text')
  put(byId('executor-nonce'), executor.highest_nonce < 0 ? 'none yet' : String(executor.highest_nonce))
  put(byId('executor-gap'), gap === null ? unread : String(gap))
  put(byId('executor-gap-final'), gapFinal === null ? unread : String(gapFinal))
  put(byId('executor-open'), String(executor.open_slots))
  putLinked(byId('executor-hash'), 'tx', executor.newest_hash, 'none yet')
}

/** Only a store that several gateways share has them. */
function showCluster(cluster) {
  byId('cluster').hidden = byId('leads').hidden = !cluster
  if (!cluster) return
  const { leads, leader, epoch, lag_records: lag, gateways } = cluster
  put(byId('leads'), leads ? 'leads' : leader === null ? 'no leader' : 'follows', 'badge ' + (leader === null ? 'bad' : ''))
  put(byId('cluster-role'), leads ? 'leads' : 'follows')
  put(byId('cluster-leader'), leader === null ? 'nobody' : leads ? 'this one' : shortId(leader), leader === null ? 'bad-text' : '')
  put(byId('cluster-gateways'), String(gateways))
  put(byId('cluster-lag'), String(lag), lag > 0 ? 'warn-text' : '')
  put(byId('cluster-epoch'), String(epoch))
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

/** Columns of points into lines. What is not known is left out. */
function showTrend({ step_seconds: step, ends_at: end, queue, latency, balance }) {
  const draw = (id, values, said) => {
    const known = values.flatMap((value, at) => (value === null ? [] : [[at, value]]))
    const figures = known.map(([, value]) => value)
    const low = id === 'balance' ? Math.min(...figures) : 0
    const high = Math.max(...figures)
    const x = (at) => (values.length < 2 ? 236 : 4 + (232 * at) / (values.length - 1)).toFixed(1)
    const y = (value) => (high === low ? 16 : 28 - (24 * (value - low)) / (high - low)).toFixed(1)
    // A lone point is a line of no length, which its round ends make a dot.
    const path = known.map(([at, value], n) => (n === 0 ? 'M' : 'L') + x(at) + ' ' + y(value)).join('') + (known.length === 1 ? 'h0' : '')
    byId('trend-' + id).firstElementChild.setAttribute('d', path)
    const text = known.length === 0 ? 'nothing yet' : said(figures.at(-1), high, figures[0])
    put(byId('trend-' + id + '-said'), text)
    byId('trend-' + id).setAttribute('aria-label', id + ': ' + text)
  }
  const seconds = (value) => amount(value, value < 10 ? 1 : 0) + ' s'
  draw('queue', queue, (last, most) => last + ', at most ' + most)
  draw('latency', latency, (last, most) => seconds(last) + ', at most ' + seconds(most))
  draw('balance', balance, (last, _, first) => amount(last, 4) + (last === first ? '' : ', ' + (last > first ? '+' : '\u2212') + amount(Math.abs(last - first), 4)))
  put(byId('trend-since'), end === null ? 'points come every ' + step + ' s' : 'from ' + whenText(Date.parse(end) - queue.length * step * 1000) + ' to ' + clockText(end))
}
`
