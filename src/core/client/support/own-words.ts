/**
 * Which parts of a support bundle the program writes in words of its own: a secret that is the same
 * word says nothing there.
 */

/**
 * Fields that hold one of a few words of ours, a variable's or flag's name, or a URL cut down to
 * scheme, host and port.
 */
const fields: ReadonlySet<string> = new Set([
  ...['key', 'from', 'origin', 'url', 'removed', 'variables'],
  ...['state', 'class', 'form', 'outcome', 'result', 'kind', 'status', 'failure_stage', 'source'],
])

/**
 * Whether the key or value at this path is ours. Key names are, but for those of metrics, which
 * hold labels. Codes and reasons are not: they may come from a gateway. Throws nothing.
 */
export function isOurs(path: readonly string[], part: 'key' | 'value'): boolean {
  if (part === 'key') return !path.includes('metrics')
  return path[0] === 'versions' || fields.has(path.findLast((step) => !/^\d+$/.test(step)) ?? '')
}
