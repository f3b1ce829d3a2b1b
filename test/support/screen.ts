/** What a terminal shows after all that was written: enough of ECMA-48 for blocks and tables. */
export function screenOf(written: string, columns = Number.POSITIVE_INFINITY): string[] {
  const rows: string[] = ['']
  let [row, column] = [0, 0]
  for (const [token = ''] of written.matchAll(/\u001b\[\??(\d*)([A-Za-z])|[\s\S]/g)) {
    const [, count = '', verb] = /^\u001b\[\??(\d*)([A-Za-z])$/.exec(token) ?? []
    if (verb === 'A') row = Math.max(0, row - Number(count))
    else if (verb === 'K') rows[row] = (rows[row] ?? '').slice(0, column)
    else if (verb === 'J') rows.splice(row, rows.length, (rows[row] ?? '').slice(0, column))
    else if (verb !== undefined) continue
    else if (token === '\r') column = 0
    else if (token === '\n') [row, column] = [row + 1, 0]
    else {
      if (column >= columns) [row, column] = [row + 1, 0]
      rows[row] =
        (rows[row] ?? '').padEnd(column).slice(0, column) +
        token +
        (rows[row] ?? '').slice(column + 1)
      column++
    }
    rows[row] ??= ''
  }
  return rows.filter((line, index) => line !== '' || index < rows.length - 1)
}
