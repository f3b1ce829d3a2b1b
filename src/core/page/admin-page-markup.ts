/**
 * The document of the operator's page. Every figure has its place from the start, so that nothing
 * moves when it comes.
 */

const stage = (name: string) =>
  `<li><span class="name">${name}</span><b id="queue-${name}">&ndash;</b><span class="note" id="oldest-${name}">&nbsp;</span></li>`
const field = (label: string, id: string) =>
  `<div><dt>${label}</dt><dd id="${id}">&ndash;</dd></div>`
const card = (id: string, title: string, body: string) =>
  `<section class="card" aria-labelledby="${id}-title" id="${id}">\n<h2 id="${id}-title">${title}</h2>\n${body}\n</section>`

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
<p class="badges"><span class="badge" id="ready" role="status">&hellip;</span> <span class="badge" id="admission" hidden>admission paused</span></p>
<p class="link" id="link" role="status">connecting&hellip;</p>
</header>
<p class="notice" id="notice" role="status" hidden></p>
<ul class="reasons" id="reasons" aria-label="Why it is not ready"></ul>
<noscript><p class="notice">This page needs its script; <code>proposer operator</code> tells the same in a terminal.</p></noscript>
<main>
<div class="cards">
${card('queue', 'Queue', `<ol class="stages">${stage('received')}${stage('validated')}${stage('selected')}</ol>`)}
${card(
  'budget',
  'Budget window',
  `<p class="big"><b id="budget-spent">&ndash;</b> <span class="note" id="budget-limit">&nbsp;</span></p>
<progress id="budget-bar" value="0" max="1" aria-label="Items spent in this window"></progress>
<dl>${field('Window', 'budget-end')}${field('Left for all', 'budget-left')}${field('One address', 'budget-client')}${field('Addresses', 'budget-clients')}</dl>`,
)}
${card(
  'minute',
  'Last minute',
  `<dl>${field('Admitted', 'minute-admitted')}${field('2xx answers', 'minute-fine')}${field('4xx answers', 'minute-refused')}${field('429 answers', 'minute-limited')}${field('5xx answers', 'minute-failed')}</dl>`,
)}
${card(
  'executor',
  'Executor',
  `<dl>${field('Balance', 'executor-balance')}${field('Pays for', 'executor-pays')}${field('Highest nonce', 'executor-nonce')}${field('Nonces not mined yet', 'executor-gap')}${field('Nonces not final yet', 'executor-gap-final')}${field('Open transactions', 'executor-open')}${field('Newest', 'executor-hash')}</dl>`,
)}
${card(
  'chain',
  'Chain and nodes',
  `<dl>${field('Block', 'chain-head')}${field('Its age', 'chain-age')}${field('Questions', 'chain-questions')}${field('Store', 'store')}</dl>
<ul class="nodes" id="nodes" aria-label="RPC nodes"></ul>`,
)}
</div>
<section aria-labelledby="candidates-title">
<h2 id="candidates-title">Newest candidates</h2>
<p class="columns" aria-hidden="true"><span>received</span><span>status</span><span>question</span><span>answer</span><span>proposer</span><span>candidate</span></p>
<ul class="candidates" id="candidates"></ul>
<p class="note" id="none">none yet</p>
</section>
</main>
<footer><p class="note" id="about">&nbsp;</p></footer>
</body>
</html>
`
