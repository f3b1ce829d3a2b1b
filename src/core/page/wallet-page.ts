/**
 * The page on which a browser wallet is asked to sign or send (contract §9, `--browser`): what we
 * say that it is stands beside what the wallet is given. Files as strings, as of the operator's page.
 */
import { type PageFile, pageHeaders } from './admin-page.js'
import { pageStyle } from './admin-page-style.js'
import { walletScript } from './wallet-page-script.js'

const markup = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>proposer: sign with a browser wallet</title>
<link rel="stylesheet" href="page.css">
<script type="module" src="page.js"></script>
</head>
<body>
<header><h1>proposer <span>browser wallet</span></h1></header>
<noscript><p class="notice">This page needs its script to reach the wallet.</p></noscript>
<p class="notice" id="said" role="status" hidden></p>
<section class="card" id="pick" aria-labelledby="pick-title">
<h2 id="pick-title">Wallets in this browser</h2>
<p id="wallets"></p>
<p class="note" id="none">No wallet has announced itself yet. Open this page in the browser that has your wallet.</p>
</section>
<main id="task" hidden>
<p class="head"><b id="title"></b> <span class="note" id="count"></span></p>
<progress id="bar" hidden></progress>
<div class="sides">
<section class="card" aria-labelledby="ours-title"><h2 id="ours-title">What it says</h2><dl id="summary"></dl></section>
<section class="card" id="wallet-side" aria-labelledby="theirs-title"><h2 id="theirs-title">What the wallet is given</h2><dl id="document"></dl></section>
</div>
<p class="acts"><button type="button" id="again" hidden>Try again</button> <button type="button" id="refuse">Refuse</button></p>
</main>
<p class="note" id="idle">Waiting for the command in the terminal.</p>
</body>
</html>
`

const more = `
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0.75rem; margin: 0.75rem 0; align-items: start; }
.sides dl div { padding: 0.25rem 0; border-top: 1px solid var(--line); }
.sides dl div:first-child { border-top: 0; }
.sides dt { color: var(--soft); font-size: 0.8125rem; }
.sides dd { overflow-wrap: anywhere; white-space: pre-wrap; max-height: 12rem; overflow-y: auto; }
#document dd { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.8125rem; }
#pick, #task, #idle { margin-top: 0.75rem; }
.notice.bad { background: var(--bad-ground); color: var(--bad); }
.acts button, #wallets button { margin: 0.25rem 0.5rem 0.25rem 0; padding: 0.5rem 1rem; border: 1px solid var(--line); border-radius: 0.375rem; background: var(--card); color: var(--ink); font: inherit; }
#wallets button { border-color: var(--move); color: var(--move); font-weight: 600; }
`

/** By name, relative to the page's own path. */
export const walletPageFiles: Readonly<Record<string, PageFile>> = {
  '': { body: markup, headers: { ...pageHeaders, 'content-type': 'text/html; charset=utf-8' } },
  'page.css': {
    body: pageStyle + more,
    headers: { ...pageHeaders, 'content-type': 'text/css; charset=utf-8' },
  },
  'page.js': {
    body: walletScript,
    headers: { ...pageHeaders, 'content-type': 'text/javascript; charset=utf-8' },
  },
}
