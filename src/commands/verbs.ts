/** Every verb by name and summary; its file is loaded where it is asked for. */

import { version as node } from 'node:process'
import { programVersion as version } from '#protocol/version'
import { attributeOf, type MakeCommand, verb } from './terminal/verb.js'

const versionCommand = verb({
  name: 'version',
  about: 'print the version',
  examples: ['version --json'],
  run: ({ output }) => output.show('version', { version, node }, [version]),
})

type Row = readonly [summary: string, file: () => Promise<object>]

const groups: Readonly<Record<string, Readonly<Record<string, Row>>>> = {
  Proposing: {
    questions: ['list questions that can be proposed on', () => import('./questions.js')],
    context: ['show what a question needs, checked against trust', () => import('./check.js')],
    check: ['show findings before an answer is signed', () => import('./check.js')],
    eligibility: ['check whether a wallet may propose', () => import('./check.js')],
    plan: ['estimate rate-limit use and time of a batch', () => import('./run.js')],
    sign: ['sign a proposal and save it in the journal', () => import('./sign.js')],
    submit: ['send a proposal, signing it first where needed', () => import('./sign.js')],
    batch: ['sign, send and follow many proposals from a file', () => import('./batch.js')],
    run: [
      'check, plan, sign, submit and follow a file; safe to run again',
      () => import('./run.js'),
    ],
  },
  Following: {
    poll: ['follow candidates until they are done', () => import('./poll.js')],
    status: ['show one candidate', () => import('./poll.js')],
    replay: ['resend saved payloads with unknown outcome', () => import('./replay.js')],
    reconcile: ['compare journal, gateway and chain for a question', () => import('./replay.js')],
    journal: [
      'list, show, verify and export what was signed and sent',
      () => import('./journal.js'),
    ],
    receipt: [
      'verify and export answers that the gateway has signed',
      () => import('./receipt.js'),
    ],
  },
  Money: {
    funds: ['show what a wallet holds, reserves and has free', () => import('./funds.js')],
    positions: [
      'show what became of executed proposals and their bonds',
      () => import('./positions.js'),
    ],
    pnl: ['show what proposals earned and lost', () => import('./positions.js')],
    payouts: ['list and claim payouts that the oracle deferred', () => import('./funds.js')],
    revoke: ['cancel signed authorizations on the chain', () => import('./funds.js')],
  },
  'Setting up': {
    init: ['set up profile, gateway, node, key, trust and approval', () => import('./init.js')],
    doctor: ['check the set-up and suggest fixes', () => import('./doctor.js')],
    account: ['manage encrypted keys', () => import('./account.js')],
    trust: ['pin trusted contracts and verify them on chain', () => import('./trust.js')],
    config: ['read and set preferences', () => import('./account.js')],
    'support-bundle': [
      'collect diagnostics for support in one file, without secrets',
      () => import('./support-bundle.js'),
    ],
    version: ['print the version', async () => ({ versionCommand })],
    completion: ['generate shell completion scripts', () => import('./completion.js')],
  },
  Operating: {
    serve: ['run the gateway', () => import('./serve.js')],
    operator: [
      'manage a gateway: allowlist, questions, candidates, store',
      () => import('./operator/operator.js'),
    ],
    conformance: [
      'check a gateway against the service spec, rule by rule',
      () => import('./conformance.js'),
    ],
  },
  Practising: {
    demo: ['show the whole life of a proposal on a throwaway chain', () => import('./demo.js')],
    devchain: ['run a development chain, or control a running one', () => import('./devchain.js')],
  },
}

export const verbs = Object.fromEntries(
  Object.entries(groups).flatMap(([heading, rows]) =>
    Object.entries(rows).map(([name, [summary, file]]) => {
      const load = async (): Promise<MakeCommand> =>
        Reflect.get(await file(), `${attributeOf(name)}Command`)
      return [name, { heading, summary, load }] as const
    }),
  ),
)
