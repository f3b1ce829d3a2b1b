/** The script's end: events of the gateway, and what is shown while it is away. */
export const liveScript = `
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
  put(byId('link'), why + ' Reconnecting since ' + clockText(lostAt) + '; the figures are out of date.', 'link lost')
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
  on('trend', showTrend)
  on('failures', showFailures)
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
  lost('The gateway does not respond.')
  connect()
}, 1000)
connect()
`
