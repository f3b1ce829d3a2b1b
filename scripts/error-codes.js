// The two tables of docs/reference/error-codes.md, from the rows in the code.

const laterOf = (retryable) => (retryable === undefined ? 'by cause' : retryable ? 'yes' : 'no')

/** The page with both tables as the code has them; the rest of it stays. */
export function withCodes(page, wireFailures, failures) {
  const wire = Object.entries(wireFailures).map(([code, { status, retryable = false, when }]) => [
    `\`${code}\``,
    String(status),
    laterOf(retryable),
    when,
  ])
  const ends = Object.entries(failures).map(([code, { retryable, nextAction, when }]) => [
    `\`${code}\``,
    when,
    laterOf(retryable),
    `\`${nextAction}\``,
  ])
  const withWire = replaced(page, 'Codes of the gateway', ['Code', 'Status', 'Later', 'When'], wire)
  const columns = ['Code', 'What happened', 'Later', '`next_action`']
  return replaced(withWire, 'Codes of a failed candidate', columns, ends)
}

/** The first table below a heading, in the widths that the formatter gives it. */
function replaced(page, heading, columns, rows) {
  const widths = columns.map((column, at) =>
    Math.max(column.length, ...rows.map((row) => row[at].length)),
  )
  const line = (cells, filler) =>
    `| ${cells.map((cell, at) => cell.padEnd(widths[at], filler)).join(' | ')} |\n`
  const dashes = columns.map(() => '')
  const table = [line(columns, ' '), line(dashes, '-'), ...rows.map((row) => line(row, ' '))]
  const start = page.indexOf('\n|', page.indexOf(`## ${heading}`)) + 1
  const end = page.indexOf('\n\n', start) + 1
  return page.slice(0, start) + table.join('') + page.slice(end)
}
