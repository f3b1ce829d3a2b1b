/** Every verb by name and summary; its file is loaded where it is asked for. */
import type { MakeCommand } from './terminal/verb.js'

interface Verb {
  readonly summary: string
  /** The verbs below it, by path: a mistyped one is found without loading it. */
  readonly verbs?: string
  load(): Promise<MakeCommand>
}

/** As help shows them: what one does most, first. */
export const verbGroups: Readonly<Record<string, Readonly<Record<string, Verb>>>> = {
  Proposing: {
    questions: {
      summary: 'list questions that can be proposed on',
      verbs: 'list',
      load: async () => (await import('./questions.js')).questionsCommand,
    },
    context: {
      summary: 'show what a question needs, checked against trust',
      load: async () => (await import('./check.js')).contextCommand,
    },
    check: {
      summary: 'show findings before an answer is signed',
      load: async () => (await import('./check.js')).checkCommand,
    },
    eligibility: {
      summary: 'check whether a wallet may propose',
      load: async () => (await import('./check.js')).eligibilityCommand,
    },
    plan: {
      summary: 'estimate rate-limit use and time of a batch',
      load: async () => (await import('./run.js')).planCommand,
    },
    sign: {
      summary: 'sign a proposal and save it in the journal',
      load: async () => (await import('./sign.js')).signCommand,
    },
    submit: {
      summary: 'send a proposal, signing it first where needed',
      load: async () => (await import('./submit.js')).submitCommand,
    },
    batch: {
      summary: 'sign, send and follow many proposals from a file',
      verbs: 'context, sign, submit, status',
      load: async () => (await import('./batch/batch.js')).batchCommand,
    },
    run: {
      summary: 'check, plan, sign, submit and follow a file; safe to run again',
      load: async () => (await import('./run.js')).runCommand,
    },
  },
  Following: {
    poll: {
      summary: 'follow candidates until they are done',
      load: async () => (await import('./poll.js')).pollCommand,
    },
    status: {
      summary: 'show one candidate',
      load: async () => (await import('./poll.js')).statusCommand,
    },
    replay: {
      summary: 'resend saved payloads with unknown outcome',
      load: async () => (await import('./poll.js')).replayCommand,
    },
    reconcile: {
      summary: 'compare journal, gateway and chain for a question',
      load: async () => (await import('./reconcile.js')).reconcileCommand,
    },
    journal: {
      summary: 'list, show, verify and export what was signed and sent',
      verbs: 'list, show, verify, export',
      load: async () => (await import('./journal.js')).journalCommand,
    },
    receipt: {
      summary: 'verify and export answers that the gateway has signed',
      verbs: 'verify, export',
      load: async () => (await import('./receipt.js')).receiptCommand,
    },
  },
  Money: {
    funds: {
      summary: 'show what a wallet holds, reserves and has free',
      verbs: 'approve',
      load: async () => (await import('./funds.js')).fundsCommand,
    },
    positions: {
      summary: 'show what became of executed proposals and their bonds',
      load: async () => (await import('./positions.js')).positionsCommand,
    },
    pnl: {
      summary: 'show what proposals earned and lost',
      load: async () => (await import('./positions.js')).pnlCommand,
    },
    payouts: {
      summary: 'list and claim payouts that the oracle deferred',
      verbs: 'list, claim',
      load: async () => (await import('./funds.js')).payoutsCommand,
    },
    revoke: {
      summary: 'cancel signed authorizations on the chain',
      load: async () => (await import('./funds.js')).revokeCommand,
    },
  },
  'Setting up': {
    init: {
      summary: 'set up profile, gateway, node, key, trust and approval',
      load: async () => (await import('./init.js')).initCommand,
    },
    doctor: {
      summary: 'check the set-up and suggest fixes',
      load: async () => (await import('./doctor.js')).doctorCommand,
    },
    account: {
      summary: 'manage encrypted keys',
      verbs: 'new, import, add-pkcs11, add-kms, list, show, rename, remove',
      load: async () => (await import('./account.js')).accountCommand,
    },
    trust: {
      summary: 'pin trusted contracts and verify them on chain',
      verbs: 'show, init, pin, verify',
      load: async () => (await import('./trust.js')).trustCommand,
    },
    config: {
      summary: 'read and set preferences',
      verbs: 'get, set, unset, list, path',
      load: async () => (await import('./config.js')).configCommand,
    },
    'support-bundle': {
      summary: 'collect diagnostics for support in one file, without secrets',
      load: async () => (await import('./support-bundle.js')).supportBundleCommand,
    },
    version: {
      summary: 'print the version',
      load: async () => (await import('./version-verb.js')).versionCommand,
    },
    completion: {
      summary: 'generate shell completion scripts',
      load: async () => (await import('./completion.js')).completionCommand,
    },
  },
  Operating: {
    serve: {
      summary: 'run the gateway',
      load: async () => (await import('./serve.js')).serveCommand,
    },
    operator: {
      summary: 'manage a gateway: allowlist, questions, candidates, store',
      verbs:
        'status, top, allow, disallow, list, pause, resume, questions, questions list, questions add, questions import, ' +
        'questions remove, candidates, candidates list, candidates show, candidates explain, candidates reject, store, ' +
        'store init, store upgrade, store verify, store backup, store compact, store export, store copy, store repair, ' +
        'store accept-loss, trust, trust repin, receipts, receipts list, receipts rotate, budget, gateways, leader, ' +
        'leader resign',
      load: async () => (await import('./operator/operator.js')).operatorCommand,
    },
    conformance: {
      summary: 'check a gateway against the service spec, rule by rule',
      load: async () => (await import('./conformance.js')).conformanceCommand,
    },
  },
  Practising: {
    demo: {
      summary: 'show the whole life of a proposal on a throwaway chain',
      load: async () => (await import('./demo.js')).demoCommand,
    },
    devchain: {
      summary: 'run a development chain, or control a running one',
      verbs:
        'start, ask, dispute, pause, unpause, flag, unflag, reset, propose, set-bond, set-whitelist, fund, grant, warp, settle, vote, clarify',
      load: async () => (await import('./devchain.js')).devchainCommand,
    },
  },
}

export const verbs: Readonly<Record<string, Verb>> = Object.assign({}, ...Object.values(verbGroups))
