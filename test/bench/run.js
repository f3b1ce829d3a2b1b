// npm run bench [-- --json] [-- --rows 1,4]: what we are proud of, as ratios to something known,
// measured in one run on one machine.
//   1       admissions a second, beside another gateway (more is better)
//   2       a batch of 100, beside the same (more is better)
//   3       admissions a second in batches, beside native signature recovery on one core (more is better)
//   4       a digest, beside viem's hashTypedData (more is better)
//   7       `sign` offline, beside node itself (less is better)
//   9       seconds to open a store of a million candidates (less is better)
//   12      from the 202 of a single proposal until a node 80 ms away has it, in round trips (less is better)
//   13      the same of a hundred in one call, its slowest hundredth in seconds (less is better)
//   14      a thousand in ten calls, until the node has the last, in seconds (less is better)
//   15      HTTP requests to the node per candidate of row 13 (less is better)
//   18      eligibility answers a second over 4,000 connections, beside 64 (1 is the best there is)
//   19      the slowest hundredth of status and eligibility calls while row 14 runs, beside idle (1 is the best there is)
//   20      admissions a second on PostgreSQL, beside the JSON store (more is better)
//   21      admissions a second of four gateways on one PostgreSQL, beside one (more is better)
//   22      admissions a second on PostgreSQL, beside another gateway there (more is better)
//   23      seconds to open a shared store of a million candidates (less is better)
//   24      seconds from the kill of the gateway that executes to the next execution (less is better)
//   25      a batch of 100 answered with one receipt, beside none (1 is the best there is)
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
const measurements = new Map([
  ['1', admissionRow],
  ['2', batchRow],
  ['3', recoverRow],
  ['4', digestRow],
  ['7', signRow],
  ['9', openRow],
  ['12', singleRow],
  ['13', hundredRow],
  ['14', thousandRow],
  ['15', requestsRow],
  ['18', goodputRow],
  ['19', looksRow],
  ['20', sharedRow],
  ['21', gatewaysRow],
  ['22', sharedPeerRow],
  ['23', sharedOpenRow],
  ['24', takeoverRow],
  ['25', receiptRow],
])

const { values } = parseArgs({
  options: { json: { type: 'boolean', default: false }, rows: { type: 'string' } },
})
const chosen =
  values.rows === undefined
    ? [...measurements.keys()]
    : values.rows.split(',').map((id) => id.trim())
const unknown = chosen.filter((id) => !measurements.has(id))
if (unknown.length > 0) {
  process.stderr.write(
    `no row ${unknown.join(', ')}; there are ${[...measurements.keys()].join(', ')}\n`,
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
for (const id of chosen) {
  let row
  try {
    row = await measurements.get(id)(setting)
  } catch (error) {
    row = { id, name: 'not measured', value: null, unit: '', detail: error.message }
    process.exitCode = 1
  }
  rows.push(row)
  const value = row.value === null ? '-' : figure(row.value)
  const bounds = row.must === undefined ? '' : ` (must ${row.must}, aim ${row.aim})`
  if (!values.json)
    process.stdout.write(
      `${String(row.id).padStart(2)}  ${row.name.padEnd(36)} ${value} ${row.unit ?? ''}${bounds}\n    ${row.detail}\n`,
    )
}
if (values.json) process.stdout.write(`${JSON.stringify({ rows }, undefined, 2)}\n`)
