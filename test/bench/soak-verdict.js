/**
 * The least-squares line through [hours, value] points: its slope per hour, the standard error of
 * that slope, the mean of the values and the hours that the points span. Fewer than three points
 * have no line: `undefined`.
 */
export function lineThrough(points) {
  const count = points.length
  if (count < 3) return undefined
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / count
  const meanX = mean(points.map(([x]) => x))
  const meanY = mean(points.map(([, y]) => y))
  const spread = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0)
  const perHour = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0) / spread
  const rest = points.reduce((sum, [x, y]) => sum + (y - meanY - perHour * (x - meanX)) ** 2, 0)
  return {
    perHour,
    error: Math.sqrt(rest / (count - 2) / spread),
    mean: meanY,
    hours: points.at(-1)[0] - points[0][0],
  }
}

/**
 * What a candidate that ended may hold in the gateway's memory: its payload, signature, facts and
 * times, and its share of the question.
 */
const bytesPerCandidate = 8_192
/** Below this the lines through the second half say more about the start than about time. */
const leastMinutes = 15
const mebibytes = (bytes) => `${(bytes / 1_048_576).toFixed(1)} MiB`

/**
 * Judges the second half of the samples: `lines` are sentences with the numbers, `faults` what has
 * grown. A slope counts as far as it exceeds twice its standard error.
 */
export function judgeGrowth(samples) {
  const late = samples.slice(Math.floor(samples.length / 2))
  const line = (pick) =>
    lineThrough(
      late.filter((each) => pick(each) != null).map((each) => [each.seconds / 3600, pick(each)]),
    )
  const rss = line((each) => each.rss_bytes)
  const fds = line((each) => each.fds)
  const age = line((each) => each.oldest_seconds)
  const admitted = line((each) => each.admitted)
  if (!rss || !fds || !age || !admitted)
    return { lines: ['too few samples for a line'], faults: [] }
  const told = (name, found, form) =>
    found === undefined
      ? []
      : [
          `${name}: ${form(found.perHour)} an hour (± ${form(found.error)}), mean ${form(found.mean)}`,
        ]
  const plain = (value) => value.toFixed(2)
  const explained = admitted.perHour * bytesPerCandidate
  const beyond = rss.perHour - 2 * rss.error - explained
  const lines = [
    `second half: ${late.length} samples over ${(rss.hours * 60).toFixed(1)} minutes`,
    ...told('RSS', rss, mebibytes),
    ...told(
      'heap after full collections',
      line((each) => each.heap_after_collection_bytes),
      mebibytes,
    ),
    ...told(
      'external memory',
      line((each) => each.external_bytes),
      mebibytes,
    ),
    ...told('open fds', fds, plain),
    ...told(
      'threads',
      line((each) => each.threads),
      plain,
    ),
    ...told('oldest candidate not ended, seconds', age, plain),
    ...told(
      'event loop delay p99, ms',
      line((each) => each.loop_p99_ms),
      plain,
    ),
    ...told(
      'store',
      line((each) => each.store_bytes),
      mebibytes,
    ),
    `candidates: ${plain(admitted.perHour)} an hour; RSS grows by ${Math.round(rss.perHour / admitted.perHour)} bytes a candidate, ` +
      `${bytesPerCandidate} are explained (${mebibytes(explained)} an hour); beyond that ${((100 * beyond) / rss.mean).toFixed(1)} % an hour`,
  ]
  const minutes = (samples.at(-1).seconds - samples[0].seconds) / 60
  if (minutes < leastMinutes)
    return {
      lines: [...lines, `${minutes.toFixed(1)} minutes are too short to judge growth`],
      faults: [],
    }
  const faults = []
  if (beyond > 0.2 * rss.mean)
    faults.push('RSS grows by more than 20 % an hour beyond what the candidates in memory explain')
  if (fds.perHour - 2 * fds.error > 1) faults.push('the number of open fds grows')
  if (age.perHour - 2 * age.error > 0 && age.perHour * age.hours > 5)
    faults.push('the oldest candidate not ended grows older')
  return { lines, faults }
}
