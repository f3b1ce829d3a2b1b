/** The lists of the operator's page: failures, newest candidates, search, the way of each. */
export const listsScript = String.raw`
/** Shown while nobody searches; the others come with a click. */
const shownFirst = 25
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const inQueue = ['received', 'validated', 'selected']
let showsAll = false

/** A list on the page: its items stay where they are as long as their candidate is in it. */
const makeList = (id, timeOf) => ({ node: byId(id), items: new Map(), rows: [], timeOf })
const lists = {
  failures: makeList('failures', (row) => row.failed_at),
  candidates: makeList('candidates', (row) => row.received_at),
  found: makeList('found', (row) => row.received_at),
}

function showList(list, rows) {
  const { node, items, timeOf } = list
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
      fillItem(item, row, timeOf(row))
      if (item.node.firstChild.open) void showWay(item, row.candidate_id)
    }
    if (node.children[index] !== item.node) node.insertBefore(item.node, node.children[index] ?? null)
  })
  filter()
}

const showCandidates = (rows) => showList(lists.candidates, rows)

function showFailures({ count, is_more: isMore, codes, rows }) {
  put(byId('failed-count'), count + (isMore ? '+' : ''), count > 0 ? 'bad-text' : '')
  const told = codes.map(([code, many]) => many + ' ' + code)
  const list = byId('failed-codes')
  if ([...list.children].map((one) => one.textContent).join() !== told.join())
    list.replaceChildren(...told.map((text) => make('li', '', text)))
  put(byId('failures-title'), 'Failed in the last 24 hours' + (count > rows.length ? ', the newest ' + rows.length : ''))
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
    return (state === '' || state === row.status || (state === 'queue' && inQueue.includes(row.status))) && words.every((word) => said.includes(word))
  }
  const counts = {}
  for (const name of ['failures', 'candidates']) {
    const { rows, items } = lists[name]
    let count = 0
    rows.forEach((row, index) => {
      const isShown = matches(row) && (isFiltered || showsAll || name === 'failures' || index < shownFirst)
      items.get(row.candidate_id).node.hidden = !isShown
      if (isShown) count += 1
    })
    counts[name] = count
  }
  byId('failures-section').hidden = counts.failures === 0
  const { length } = lists.candidates.rows
  byId('none').hidden = counts.candidates > 0
  put(byId('none'), length === 0 ? 'none yet' : 'none of the newest ' + length)
  byId('more').hidden = isFiltered || length <= shownFirst
  put(byId('more'), showsAll ? 'Show the newest ' + shownFirst : 'Show the newest ' + length)
  const isKnown = ['failures', 'candidates'].some((name) => lists[name].items.has(text))
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
  const answer = await fetch('/operator/candidates/' + encodeURIComponent(id))
  const told = await answer.json()
  if (!answer.ok) throw new Error(told.error.detail)
  return told
}

byId('search').addEventListener('input', filter)
byId('state').addEventListener('change', filter)
byId('more').addEventListener('click', () => {
  showsAll = !showsAll
  filter()
})

function makeItem({ items }, id) {
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

const answerText = ({ label, outcome }) => (label === null ? outcome : label + ' (' + outcome + ')')

function fillItem({ parts }, row, at) {
  put(parts.received, whenText(at))
  parts.received.title = at
  put(parts.badge, row.status, 'badge status-' + row.status)
  put(parts.more, row.failure_code ?? row.submission ?? '')
  parts.more.title = parts.more.textContent
  put(parts.question, row.slug ?? short(row.question_id))
  parts.question.title = row.slug === null ? row.question_id : row.slug + ' ' + row.question_id
  put(parts.answer, answerText(row))
  parts.answer.title = answerText(row)
  put(parts.proposer, short(row.proposer), 'proposer hash')
  parts.proposer.title = row.proposer
  put(parts.id, shortId(row.candidate_id))
  parts.id.title = row.candidate_id
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
  return dateText(seconds * 1000) + (left > 0 ? ', in ' + ageText(left) : ', ' + ageText(-left) + ' ago')
}

async function showWay(item, id) {
  let told
  try {
    told = await askFor(id)
  } catch (error) {
    item.way.replaceChildren(make('p', 'note', 'Could not be read: ' + error.message))
    return
  }
  const steps = make('ol')
  for (const { at, what, detail } of told.steps) {
    const step = make('li')
    const time = make('time', 'note', at === null ? '' : dateText(at))
    if (at !== null) time.dateTime = at
    step.append(time, make('span', '', what))
    const isHash = detail !== null && /^0x[0-9a-f]{64}$/.test(detail)
    if (isHash) {
      const place = make('span', 'detail')
      place.append(linked('tx', detail))
      step.append(place)
    } else if (detail !== null) step.append(make('span', 'detail', detail))
    steps.append(step)
  }
  const facts = make('dl')
  for (const [label, value, kind] of [
    ['Candidate', told.candidate_id, 'copy'],
    ['Question', told.question_id, 'copy'],
    ['Slug', told.slug, 'copy'],
    ['Answer', answerText(told)],
    ['Proposer', told.proposer, 'address'],
    ['Authorizes', told.amount_text],
    ['Deadline', deadlineText(Number(told.deadline))],
    ['Transaction', told.transaction_hash, 'tx'],
  ]) {
    if (value === null) continue
    const fact = make('div')
    const place = make('dd')
    if (kind === undefined) place.append(value)
    else place.append(...copied(kind === 'copy' ? make('span', 'hash', value) : linked(kind, value), value))
    fact.append(make('dt', '', label), place)
    facts.append(fact)
  }
  item.way.replaceChildren(steps, facts)
}
`
