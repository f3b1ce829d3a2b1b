// npm run bench [-- --json] [-- --rows 1,4]: what we are proud of, as ratios to something known,
// measured in one run on one machine.
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { bundle } from '../../scripts/build.js'
import { admissionRow } from './admission.js'
import { batchRow, recoverRow } from './batch-admission.js'
import { digestRow } from './digest.js'
import { goodputRow } from './goodput.js'
import { figure } from './measure.js'
import { receiptRow } from './receipts.js'
import { gatewaysRow, sharedPeerRow, sharedRow } from './shared-admission.js'
import { sharedOpenRow } from './shared-open.js'
import { signRow } from './start.js'
import { takeoverRow } from './takeover.js'
import { looksRow, thousandRow } from './thousand.js'
import { hundredRow, requestsRow, singleRow } from './to-chain.js'
import { openRow } from './volume.js'

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
/** At least or at most: the must, then the aim. */
const measurements = {
  // Admissions a second, beside another gateway.
  1: [admissionRow, 'at least', 8, 10],
  // A batch of 100, beside the same.
  2: [batchRow, 'at least', 12, 15],
  // Admissions a second in batches, beside native signature recovery on one core.
  3: [recoverRow, 'at least', 0.3, 0.5],
  // A digest, beside viem's hashTypedData.
  4: [digestRow, 'at least', 8, 80],
  // `sign` offline, beside node itself.
  7: [signRow, 'at most', 4, 3],
  // Seconds to open a store of a million candidates.
  9: [openRow, 'at most', 8, 4],
  // From the 202 of a single proposal until a node 80 ms away has it, in round trips.
  12: [singleRow, 'at most', 6, 4],
  // The same of a hundred in one call, its slowest hundredth in seconds.
  13: [hundredRow, 'at most', 1.5, 0.8],
  // A thousand in ten calls, until the node has the last, in seconds.
  14: [thousandRow, 'at most', 12, 10],
  // HTTP requests to the node per candidate of row 13.
  15: [requestsRow, 'at most', 1, 0.4],
  // Eligibility answers a second over 4,000 connections, beside 64.
  18: [goodputRow, 'at least', 0.7, 0.9],
  // The slowest hundredth of status and eligibility calls while row 14 runs, beside idle.
  19: [looksRow, 'at most', 10, 3],
  // Admissions a second on PostgreSQL, beside the JSON store.
  20: [sharedRow, 'at least', 0.5, 0.8],
  // Admissions a second of four gateways on one PostgreSQL, beside one.
  21: [gatewaysRow, 'at least', 0.4, 0.8],
  // Admissions a second on PostgreSQL, beside another gateway there.
  22: [sharedPeerRow, 'at least', 5, 8],
  // Seconds to open a shared store of a million candidates.
  23: [sharedOpenRow, 'at most', 20, 8],
  // Seconds from the kill of the gateway that executes to the next execution.
  24: [takeoverRow, 'at most', 15, 12],
  // A batch of 100 answered with one receipt, beside none.
  25: [receiptRow, 'at least', 0.95, 1],
}

const { values } = parseArgs({
  options: { json: { type: 'boolean', default: false }, rows: { type: 'string' } },
})
const chosen =
  values.rows === undefined
    ? Object.keys(measurements)
    : values.rows.split(',').map((id) => id.trim())
const unknown = chosen.filter((id) => !(id in measurements))
if (unknown.length > 0) {
  process.stderr.write(
    `no row ${unknown.join(', ')}; there are ${Object.keys(measurements).join(', ')}\n`,
  )
  process.exit(2)
}

await bundle()
const setting = {
  root,
  library: () => import(join(root, 'dist', 'library.js')),
  note: (text) => process.stderr.write(`${text}\n`),
}
const rows = []
const missed = []
for (const id of chosen) {
  const [measure, bound, must, aim] = measurements[id]
  let row
  try {
    row = { ...(await measure(setting)), bound, must, aim }
    const isMet = bound === 'at least' ? row.value >= must : row.value <= must
    if (row.value !== null && !isMet) missed.push(id)
  } catch (error) {
    row = { id, name: 'not measured', value: null, detail: error.message }
    missed.push(id)
    process.exitCode = 1
  }
  rows.push(row)
  const value =
    row.value === null ? '-' : `${figure(row.value)} ${row.unit} (${bound} ${must}, aim ${aim})`
  if (!values.json)
    process.stdout.write(`${id.padStart(2)}  ${row.name.padEnd(36)} ${value}\n    ${row.detail}\n`)
}
if (values.json) process.stdout.write(`${JSON.stringify({ rows, missed }, undefined, 2)}\n`)
else
  process.stdout.write(
    missed.length === 0 ? 'every must is met\n' : `missed: rows ${missed.join(', ')}\n`,
  )
