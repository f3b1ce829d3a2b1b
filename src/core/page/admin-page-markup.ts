/**
 * The document of the operator's page. Every figure has its place from the start, so that nothing
 * moves when it comes.
 */

const stage = (name: string) =>
  `<li><span class="name">${name}</span><b id="queue-${name}">&ndash;</b><span class="note" id="oldest-${name}">&nbsp;</span></li>`
const field = (label: string, id: string) =>
  `<div><dt>${label}</dt><dd id="${id}">&ndash;</dd></div>`
const card = (id: string, title: string, body: string, more = '') =>
  `<section class="card${more}" aria-labelledby="${id}-title" id="${id}">\n<h2 id="${id}-title">${title}</h2>\n${body}\n</section>`
const trend = (id: string, name: string) =>
  `<li><span class="name">${name}</span><svg id="trend-${id}" role="img" viewBox="0 0 240 32" preserveAspectRatio="none"><path d=""/></svg><span class="note" id="trend-${id}-said">&ndash;</span></li>`
const list = (id: string, more: string) =>
  `<p class="columns" aria-hidden="true"><span>${more}</span><span>status</span><span>question</span><span>answer</span><span>proposer</span><span>candidate</span></p>\n<ul class="candidates" id="${id}"></ul>`

export const pageMarkup = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>proposer gateway</title>
<link rel="stylesheet" href="/page.css">
<script type="module" src="/page.js"></script>
</head>
<body>
<header>
<h1>proposer <span>gateway</span></h1>
<p class="badges"><span class="badge" id="ready" role="status">&hellip;</span> <span class="badge" id="leads" hidden></span> <span class="badge warn" id="admission" hidden>admission paused</span></p>
<p class="link" id="link" role="status">connecting&hellip;</p>
</header>
<p class="notice" id="notice" role="status" hidden></p>
<ul class="reasons" id="reasons" aria-label="Why it is not ready"></ul>
<p class="notice" id="paused" hidden></p>
<noscript><p class="notice">This page requires JavaScript; <code>proposer operator</code> shows the same in a terminal.</p></noscript>
<main>
<div class="cards first">
${card('failed', 'Failed (24 h)', '<p class="big"><b id="failed-count">&ndash;</b></p>\n<ul class="codes" id="failed-codes" aria-label="By code"></ul>')}
${card('queue', 'Queue', `<ol class="stages">${stage('received')}${stage('validated')}${stage('selected')}</ol>`)}
${card('trend', 'Trend', `<ul class="trends">${trend('queue', 'Queue')}${trend('latency', 'Latency')}${trend('balance', 'Balance')}</ul>\n<p class="note" id="trend-since">&nbsp;</p>`, ' wide')}
</div>
<div class="lists">
<p class="tools">
<input type="search" id="search" aria-label="Search" placeholder="Question, wallet, candidate, code" autocomplete="off" spellcheck="false">
<select id="state" aria-label="Status"><option value="">any status</option><option value="queue">in the queue</option><option value="executed">executed</option><option value="failed">failed</option></select>
<span class="note" id="found-note" role="status"></span>
</p>
<ul class="candidates" id="found" aria-label="Found in the store"></ul>
<section aria-labelledby="failures-title" id="failures-section" hidden>
<h2 id="failures-title">Failed in the last 24 hours</h2>
${list('failures', 'failed')}
</section>
<section aria-labelledby="candidates-title">
<h2 id="candidates-title">Newest candidates</h2>
${list('candidates', 'received')}
<p class="note" id="none">none yet</p>
<button type="button" id="more" hidden></button>
</section>
</div>
<div class="cards rest">
${card(
  'budget',
  'Rate limit',
  `<p class="big"><b id="budget-spent">&ndash;</b> <span class="note" id="budget-limit">&nbsp;</span></p>
<progress id="budget-bar" value="0" max="1" aria-label="Items spent in this window"></progress>
<dl>${field('Window ends', 'budget-end')}${field('Left for all', 'budget-left')}${field('For each client', 'budget-client')}${field('Client addresses', 'budget-clients')}</dl>`,
)}
${card(
  'minute',
  'Last minute',
  `<dl>${field('Admitted', 'minute-admitted')}${field('2xx responses', 'minute-fine')}${field('4xx responses', 'minute-refused')}${field('429 responses', 'minute-limited')}${field('5xx responses', 'minute-failed')}</dl>`,
)}
${card(
  'executor',
  'Executor',
  `<dl>${field('Address', 'executor-address')}${field('Balance', 'executor-balance')}${field('Can pay for proposals', 'executor-pays')}${field('Highest nonce', 'executor-nonce')}${field('Nonces not mined yet', 'executor-gap')}${field('Nonces not final yet', 'executor-gap-final')}${field('Open transactions', 'executor-open')}${field('Newest', 'executor-hash')}</dl>`,
)}
${card(
  'chain',
  'Chain and nodes',
  `<dl>${field('Block', 'chain-head')}${field('Block age', 'chain-age')}${field('Questions', 'chain-questions')}${field('Store', 'store')}</dl>
<ul class="nodes" id="nodes" aria-label="RPC nodes"></ul>`,
)}
${card(
  'cluster',
  'Gateways of this store',
  `<dl>${field('This gateway', 'cluster-role')}${field('Leader', 'cluster-leader')}${field('Gateways', 'cluster-gateways')}${field('Records behind', 'cluster-lag')}${field('Leaders so far', 'cluster-epoch')}</dl>`,
)}
</div>
</main>
<footer><p class="note" id="about">&nbsp;</p></footer>
</body>
</html>
`
