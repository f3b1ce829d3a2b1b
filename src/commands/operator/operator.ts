/** `operator`: the local toolkit on a gateway's store (contract §6). */
import { type MakeCommand, verb } from '../terminal/verb.js'
import { configFlag } from './access.js'
import {
  actExamples,
  admissionVerbs,
  allowVerbs,
  compactVerb,
  questionVerbs,
  rejectVerb,
  repinVerb,
  rotateVerb,
} from './acts.js'
import { candidatesListVerb, explainVerb, showVerb, storeExportVerb } from './candidates.js'
import { questionsListVerb, receiptKeysVerb, walletsListVerb } from './lists.js'
import { acceptLossVerb, gatewaysVerb, resignVerb, storeInitVerb, upgradeVerb } from './shared.js'
import { budgetVerb, statusVerb, topVerb } from './status.js'
import { backupVerb, copyVerb, repairVerb, verifyVerb } from './store.js'

const group = (
  name: string,
  about: string,
  examples: readonly string[],
  verbs: readonly MakeCommand[],
) => verb({ name, about, examples, verbs })

export const operatorCommand = verb({
  name: 'operator',
  about:
    'manage a gateway: allowlist, questions, candidates, store. Lists work whether it runs or not',
  flags: configFlag,
  examples: [
    'operator status',
    'operator allow 0x8ba1f109551bd432803012645ac136ddd64dba72 --reason "contract signed"',
    'operator candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
    'operator pause --reason "node upgrade"',
  ],
  verbs: [
    ...[statusVerb, topVerb, ...allowVerbs, walletsListVerb, ...admissionVerbs],
    group(
      'questions',
      'manage the question registry: slugs, requesters, requests',
      ['operator questions list', actExamples.add, actExamples.import],
      [questionsListVerb, ...questionVerbs],
    ),
    group(
      'candidates',
      'list, explain and reject candidates',
      [
        'operator candidates list --state failed',
        'operator candidates list --csv > candidates.csv',
        'operator candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
        actExamples.reject,
      ],
      [candidatesListVerb, showVerb, explainVerb, rejectVerb],
    ),
    group(
      'store',
      'verify, back up, compact, repair and copy the store',
      [
        'operator store verify',
        'operator store backup /backup/monday',
        'operator store compact',
        'operator store copy --from ./gateway-store --to postgres://proposer@db.internal/proposer',
      ],
      [
        ...[storeInitVerb, upgradeVerb, verifyVerb, backupVerb, compactVerb, storeExportVerb],
        ...[copyVerb, repairVerb, acceptLossVerb],
      ],
    ),
    group('trust', 'pin the code of oracles and tokens', [actExamples.repin], [repinVerb]),
    group(
      'receipts',
      'list and rotate the key that answers are signed with',
      ['operator receipts list', 'operator receipts rotate --reason "yearly"'],
      [receiptKeysVerb, rotateVerb],
    ),
    ...[budgetVerb, gatewaysVerb],
    group(
      'leader',
      'manage the leader of several gateways on one PostgreSQL store',
      ['operator gateways', 'operator leader resign --reason "node upgrade"'],
      [resignVerb],
    ),
  ],
})
