/** How both pages are drawn: outside text becomes text nodes and nothing else (R20). ASCII alone. */
export const byId = (id) => document.getElementById(id)

/** By a selector such as `span.badge.warn`, with texts and elements in it. */
export function make(selector, ...parts) {
  const [tag, ...classes] = selector.split('.')
  const node = document.createElement(tag)
  node.classList.add(...classes)
  node.append(...parts)
  return node
}

/** Of a `dl`: labels, each with its value or values; what is null or undefined is not known. */
export const lines = (rows) =>
  rows.map(([label, value]) =>
    make('div', make('dt', label), make('dd', ...[value ?? '\u2013'].flat())),
  )

/** Only what has changed is written, so that a selection and a screen reader's place stay. */
export function show(id, ...parts) {
  const next = byId(id).cloneNode()
  next.append(...parts)
  update(byId(id), next)
}

function update(place, next) {
  const nodes = [...next.childNodes]
  if (place.childNodes.length !== nodes.length) return place.replaceChildren(...nodes)
  for (const [at, node] of nodes.entries()) {
    const there = place.childNodes[at]
    if (there.cloneNode().isEqualNode(node.cloneNode())) update(there, node)
    else there.replaceWith(node)
  }
}

/** JSON of the listener that serves the page, or an Error with its words. */
export async function call(path, request) {
  const answer = await fetch(path, request)
  const body = await answer.json()
  if (answer.ok) return body
  throw Object.assign(new Error(body.error?.detail ?? 'no response'), { isRefusal: true })
}
