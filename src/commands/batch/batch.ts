/** `batch`: many proposals from one file, by the batch routes (spec §4.2, contract §6). */
import { verb } from '../terminal/verb.js'
import { batchContextVerb } from './context.js'
import { batchSignVerb } from './sign.js'
import { batchStatusVerb } from './status.js'
import { batchSubmitVerb } from './submit.js'

export const batchCommand = verb({
  name: 'batch',
  about: 'sign, send and follow many proposals from a file: NDJSON, a JSON array or CSV',
  help: `A row is {"identifier", "outcome" or "proposed_price"}, optionally with
"client_ref", "proposer", "amount", "nonce" and "deadline"; or a signed batch
item. CSV has the same names as headers.`,
  examples: ['batch submit rows.csv --wait'],
  verbs: [batchContextVerb, batchSignVerb, batchSubmitVerb, batchStatusVerb],
})
