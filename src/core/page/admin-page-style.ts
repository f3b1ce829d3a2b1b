/**
 * The style of the operator's page. One column at 360 px, cards beside each other where there is
 * room; light or dark as the reader has it.
 */
export const pageStyle = `
:root {
  --ground: #f6f7f9; --card: #fff; --line: #d9dde3; --ink: #1b2330; --soft: #5b6675;
  --good: #1a7f45; --good-ground: #e2f4e9; --warn: #8a5a00; --warn-ground: #fdf0d2; --bad: #b3261e; --bad-ground: #fbe6e4;
  --move: #1d5fb8; --move-ground: #e4eefb; --focus: #1d5fb8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #12161c; --card: #1a2029; --line: #313a47; --ink: #e6eaf0; --soft: #9aa6b5;
    --good: #6fd39a; --good-ground: #16382a; --warn: #f0c160; --warn-ground: #3d3113; --bad: #ff9c93; --bad-ground: #47201d;
    --move: #8dbbfa; --move-ground: #1b3050; --focus: #8dbbfa;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 84rem; background: var(--ground); color: var(--ink);
  font: 0.9375rem/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums;
}
h1, h2, p, ul, ol, dl, dd { margin: 0; padding: 0; }
h1 { font-size: 1.25rem; }
h1 span { font-weight: 400; color: var(--soft); }
h2 { font-size: 0.8125rem; font-weight: 600; color: var(--soft); margin-bottom: 0.625rem; }
ul, ol { list-style: none; }
b { font-weight: 600; }
code, .id, .hash { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.875em; }
.note { color: var(--soft); font-size: 0.8125rem; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 0.375rem 0.75rem; min-height: 2rem; }
.link { margin-left: auto; color: var(--soft); font-size: 0.8125rem; }
.link.lost { color: var(--bad); font-weight: 600; }
.badge { display: inline-block; padding: 0.0625rem 0.5rem; border-radius: 1rem; font-size: 0.8125rem; font-weight: 600; background: var(--line); }
.badge.good, .status-executed { color: var(--good); background: var(--good-ground); }
.badge.warn { color: var(--warn); background: var(--warn-ground); }
.badge.bad, .status-failed { color: var(--bad); background: var(--bad-ground); }
.status-validated, .status-selected { color: var(--move); background: var(--move-ground); }
[hidden] { display: none !important; }
.notice, .reasons li { margin-top: 0.5rem; padding: 0.375rem 0.75rem; border-radius: 0.375rem; background: var(--warn-ground); color: var(--warn); overflow-wrap: anywhere; }
.reasons li { background: var(--bad-ground); color: var(--bad); }
main { display: flex; flex-direction: column; }
.rest { order: 1; }
.lists { order: 2; }
.notice.good { background: var(--good-ground); color: var(--good); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); gap: 0.75rem; margin: 0.75rem 0 0; }
.rest { margin-bottom: 1.25rem; }
.card { min-width: 0; padding: 0.75rem 1rem; border: 1px solid var(--line); border-radius: 0.5rem; background: var(--card); }
.stages { display: grid; grid-template-columns: repeat(3, 1fr); gap: 0.5rem; }
.stages li { display: flex; flex-direction: column; min-width: 0; }
.stages .name { font-size: 0.8125rem; }
.stages b, .big b { font-size: 1.75rem; line-height: 1.2; }
progress { display: block; width: 100%; height: 0.5rem; margin: 0.375rem 0 0.625rem; appearance: none; border: 0; border-radius: 0.25rem; background: var(--line); overflow: hidden; }
progress::-webkit-progress-bar { background: var(--line); }
progress::-webkit-progress-value { background: var(--move); }
progress::-moz-progress-bar { background: var(--move); }
progress.warn::-webkit-progress-value { background: var(--warn); }
progress.warn::-moz-progress-bar { background: var(--warn); }
.codes li { font-size: 0.8125rem; overflow-wrap: anywhere; }
.first { grid-template-columns: minmax(11rem, 1fr) minmax(16rem, 1.5fr) minmax(0, 3fr); }
.trends { display: grid; gap: 0.25rem; }
.trends li { display: grid; grid-template-columns: 4rem minmax(4rem, 1fr) minmax(9rem, auto); gap: 0.75rem; align-items: center; }
.trends .name { font-size: 0.8125rem; }
.trends svg { width: 100%; height: 1.75rem; }
.trends path { fill: none; stroke: var(--move); stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.trends .note { text-align: right; }
.tools { display: flex; flex-wrap: wrap; gap: 0.5rem 0.75rem; align-items: center; margin-bottom: 0.75rem; }
input, select, button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 0.375rem; padding: 0.25rem 0.5rem; }
#search { flex: 1 1 16rem; max-width: 28rem; min-width: 0; }
button { cursor: pointer; }
.copy { padding: 0 0.375rem; margin-left: 0.5rem; font-size: 0.75rem; color: var(--soft); }
input:focus-visible, select:focus-visible, button:focus-visible, a:focus-visible { outline: 2px solid var(--focus); outline-offset: 1px; }
a { color: var(--move); }
.lists section { margin-bottom: 1.25rem; }
#more { margin-top: 0.5rem; }
#found:not(:empty) { margin-bottom: 1.25rem; }
dl div { display: flex; justify-content: space-between; gap: 0.75rem; }
dt { color: var(--soft); white-space: nowrap; }
dd { text-align: right; min-width: 0; overflow-wrap: anywhere; }
.good-text { color: var(--good); } .warn-text { color: var(--warn); } .bad-text { color: var(--bad); }
.nodes { margin-top: 0.375rem; border-top: 1px solid var(--line); padding-top: 0.375rem; }
.nodes li { display: flex; justify-content: space-between; gap: 0.75rem; font-size: 0.8125rem; }
.columns, summary { display: grid; grid-template-columns: 9.5rem minmax(12rem, 16.5rem) minmax(8rem, 1fr) minmax(5rem, 8.5rem) 7.5rem 6rem; gap: 0.75rem; align-items: baseline; padding: 0.375rem 1rem; }
.columns { color: var(--soft); font-size: 0.75rem; }
.candidates { border: 1px solid var(--line); border-radius: 0.5rem; background: var(--card); overflow: hidden; }
.candidates:empty { display: none; }
.candidates > li + li { border-top: 1px solid var(--line); }
summary { cursor: pointer; list-style: none; }
summary::-webkit-details-marker { display: none; }
.received::before { content: "\\25b8"; display: inline-block; width: 1rem; color: var(--soft); }
[open] .received::before { content: "\\25be"; }
summary:hover { background: var(--ground); }
summary:focus-visible { outline: 2px solid var(--focus); outline-offset: -2px; }
summary > * { min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
summary .question, summary .answer { white-space: normal; overflow-wrap: anywhere; }
summary .more { color: var(--soft); font-size: 0.8125rem; }
.way { padding: 0.25rem 1rem 0.875rem; min-height: 6rem; background: var(--ground); }
.way ol { margin: 0.5rem 0 0.75rem; border-left: 2px solid var(--line); padding-left: 0.75rem; }
.way li { display: grid; grid-template-columns: 10rem 1fr; gap: 0 0.75rem; padding: 0.125rem 0; }
.way li > * { min-width: 0; overflow-wrap: anywhere; }
.way .detail { grid-column: 2; color: var(--soft); font-size: 0.8125rem; }
.way dl { display: grid; gap: 0.125rem; }
.way dl div { justify-content: flex-start; }
.way dt { min-width: 6.5rem; }
.way dd { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.lost .cards { opacity: 0.55; }
#none { padding: 0.25rem 1rem; }
footer { margin-top: 1rem; }
@media (max-width: 56rem) {
  .first { grid-template-columns: 1fr 1.5fr; }
  .wide { grid-column: 1 / -1; }
  .columns { display: none; }
  .received::before, [open] .received::before { content: ""; width: 0; }
  .status::before { content: "\\25b8"; display: inline-block; width: 1rem; color: var(--soft); }
  [open] .status::before { content: "\\25be"; }
  summary { grid-template-columns: minmax(0, 1fr) fit-content(45%); gap: 0.125rem 0.75rem; }
  summary .status { white-space: normal; overflow-wrap: anywhere; }
  summary .status { grid-row: 1; grid-column: 1; }
  summary .received { grid-row: 1; grid-column: 2; }
  summary .question { grid-row: 2; grid-column: 1; }
  summary .answer { grid-row: 2; grid-column: 2; text-align: right; }
  summary .proposer { grid-row: 3; grid-column: 1; }
  summary .id { grid-row: 3; grid-column: 2; text-align: right; }
}
@media (max-width: 30rem) {
  body { padding: 0.75rem; }
  .first { grid-template-columns: minmax(0, 1fr); }
  .lists { order: 0; margin-top: 1.25rem; }
  #search { flex-basis: 100%; max-width: none; }
  .trends li { grid-template-columns: 4rem minmax(3rem, 1fr) auto; }
  .link { margin-left: 0; flex-basis: 100%; }
  .way li { grid-template-columns: 1fr; padding: 0.25rem 0; }
  .way .detail { grid-column: 1; }
  .way dl div { flex-direction: column; gap: 0; }
}
`
