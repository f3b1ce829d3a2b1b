/** `doctor`: every precondition with a fix for each failure (contract §6). Read-only (R24). */

import { join } from 'node:path'
import { onChain } from '#chain/unavailable'
import { verifyTrust } from '#checks/chain'
import {
  clockCheck,
  codeCheck,
  eligibilityCheck,
  fundsChecks,
  openCheck,
  receiptKeysCheck,
  rpcCheck,
  safeCheck,
} from '#checks/doctor'
import { type Finding, type Found, fail, guarded, note, pass, skip, warn } from '#checks/finding'
import { type GatewayClient, listedReceiptKeys } from '#client/gateway/gateway-client'
import { type JournalView, verifyJournal } from '#client/journal/journal'
import { howToRepin, nothingPinned, type Trust } from '#client/trust/trust'
import { receiptKeysOf } from '#client/trust/trust-file'
import { permissionsOf } from '#io/files'
import { fromCwd, homePaths } from '#io/home'
import type { Chain } from '#ports'
import { ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import type { Address } from '#protocol/schema'
import { builtInPins, type Session, sessionVerb, withHost, withSession } from './session/session.js'
import {
  allowedHttp,
  browserFlags,
  type GlobalFlags,
  safeFlags,
  signerFlags,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { apart, type Block, type Screen, together } from './terminal/output.js'
import { contestedLines, lastKnown } from './terminal/poll-table.js'
import {
  counted,
  findingsText,
  foldHelp,
  publicUrl,
  visible,
  withPastedFixes,
} from './terminal/render.js'

export const doctorCommand = sessionVerb({
  name: 'doctor',
  about: 'check everything a proposal needs, and suggest fixes; exit 2 if a check fails',
  flags: { ...signerFlags, ...browserFlags, ...safeFlags },
  help: "Changes nothing; uses one item of the gateway's rate limit.",
  examples: ['doctor --rpc-url http://127.0.0.1:8545'],
  async run(session) {
    const { output } = session
    const checks = await output.during('looking', () => examine(session))
    const counts = { pass: 0, warn: 0, fail: 0, skip: 0, note: 0 }
    for (const { result } of checks) counts[result]++
    const { note: _note, ...summary } = counts
    output.show('doctor', { checks, summary }, [checksText(checks)], { items: checks, summary })
    const failed = checks.filter(({ result }) => result === 'fail').map(({ id }) => id)
    if (failed.length === 0) return
    throw new UsageError(
      'doctor_found_faults',
      `${failed.length} of ${checks.length} checks failed: ${[...new Set(failed)].join(', ')}`,
      'fix the failures above in order, then rerun `proposer doctor`',
    )
  },
})

export const checksText = (checks: readonly Finding[]) =>
  findingsText(checks.map((one) => ({ ...one, name: one.id.replaceAll('_', ' ') })))

/** `proposer` alone: where its user stands, and how to go on. Reads this machine only (R24). */
export async function showNextSteps(context: Context, flags: GlobalFlags) {
  const { output } = context
  const blocks = await withSession(context, flags, (session) => standing(session)).catch(
    (error: unknown) => {
      if (!(error instanceof ProposerError)) throw error
      const { hint = '' } = error.meta
      return [together([error.detail, context.pasted?.(hint) ?? hint])]
    },
  )
  const page = apart([
    'Propose answers to oracle questions, and run the gateway that executes them.',
    ...blocks,
    together([
      'All commands:        proposer --help',
      'Flags and examples:  proposer <command> --help',
    ]),
  ])
  output.text(`${page(output)}\n`)
}

async function standing(session: Session): Promise<Block[]> {
  const { files, pasted = (text: string) => text } = session
  const home = session.settings.home.value
  const found = await examine(session, true)
  const isNew = !(await files.exists(join(home, 'journal')))
  const parts = found.filter(({ id }) => ['trust', 'account', 'gateway'].includes(id))
  const isEmpty = isNew && parts.every(({ result }) => result !== 'pass' && result !== 'note')
  const last = await lastKnown(session, home)
  const command =
    (label: string, line: string) =>
    ({ columns, isTerminal }: Screen) => {
      const whole = pasted(`\`${line}\``).replaceAll('`', '')
      const beside = `${label.padEnd(21)}${whole}`
      if (!isTerminal || beside.length <= columns) return beside
      return `${label && `${label}\n`}${foldHelp(`  ${whole}`, columns)}`
    }
  return [
    ...contestedLines(last),
    `${isEmpty ? 'Nothing is set up yet in' : 'Set up in'} ${visible(home)}${isEmpty ? '.' : ':'}`,
    // What the demo and a chain of one's own make is theirs alone: no flags.
    isEmpty &&
      together([
        'See it work first:   proposer demo',
        'Practise with it:    proposer serve --dev',
        command('All of it, guided:', 'proposer init'),
      ]),
    checksText(found),
    together([
      command('Check it all:', 'proposer doctor'),
      !isEmpty && command('Propose:', 'proposer questions list'),
      !isEmpty && command('', 'proposer submit <question> --outcome <answer> --wait'),
      !isNew && command('What is open:', 'proposer journal list --open'),
    ]),
  ]
}

const noNode = 'give --rpc-url <url>'

interface Facts {
  readonly isLocal: boolean
  readonly session: Session
  readonly findings: Finding[]
  trust?: Trust
  account?: Address
  view?: JournalView
  gateway?: GatewayClient
  clock?: Finding
  chain?: Chain
}

type Having<Key extends keyof Facts> = Facts & Required<Pick<Facts, Key>>
type Run<Known = Facts> = (facts: Known, id: string) => Promise<Found>

const lacks = {
  view: () => ['the journal cannot be read', 'see the check journal'],
  trust: () => ['nothing is pinned', 'see the check trust'],
  account: () => ['no account is selected', 'see the check account'],
  gateway: ({ session: { settings } }) =>
    settings.gateway === undefined && settings.local === undefined
      ? ['no gateway is configured', 'give --gateway <url> or --local <gateway.json>']
      : ['the gateway cannot be used', 'see the check gateway'],
  chain: (facts) => ['the node cannot be used', findingOf(facts, 'rpc')?.fix || noNode],
} as const satisfies Partial<Record<keyof Facts, (facts: Facts) => readonly [string, string]>>

/** Skipped, as each of `ids`, where earlier checks have not found what it needs. */
const needing =
  <Key extends keyof typeof lacks>(
    keys: readonly Key[],
    run: Run<Having<Key>>,
    ids?: readonly string[],
  ): Run =>
  async (facts, id) => {
    const missing = keys.find((key) => facts[key] === undefined)
    if (missing === undefined) return run(facts as Having<Key>, id)
    const why = lacks[missing](facts)
    return (ids ?? [id]).map((one) => skip(one, ...why))
  }

interface DoctorCheck {
  readonly id: string
  readonly run: Run
  readonly isLocal?: true
  readonly unless?: (session: Session) => boolean
}

const checks: readonly DoctorCheck[] = [
  {
    id: 'trust',
    isLocal: true,
    async run(facts) {
      const { session } = facts
      const trust = await session.trust()
      facts.trust = trust
      const builtIn = await builtInPins(session)
      const where =
        builtIn === undefined
          ? `in ${session.settings.trust.value}`
          : `by the built-in profile ${session.settings.profile.value}`
      return pass('trust', `pins chain ${trust.chain_id} ${where}`)
    },
  },
  {
    id: 'account',
    isLocal: true,
    async run(facts) {
      facts.account = await facts.session.account.address()
      return pass('account', facts.account)
    },
  },
  { id: 'key_files', run: ({ session }) => secretChecks(session) },
  {
    id: 'journal',
    isLocal: true,
    async run(facts) {
      const { session } = facts
      const { settings, journal } = session
      const { authorizations, records, runs } = await verifyJournal(session, settings.home.value)
      facts.view = await journal.load()
      const held = [counted(authorizations, 'authorization'), counted(records, 'record')]
      return pass('journal', `sound: ${[...held, counted(runs, 'run')].join(', ')}`)
    },
  },
  {
    id: 'open',
    isLocal: true,
    run: needing(['view'], async ({ view, session }) => openCheck(view, session.clock.nowMs())),
  },
  { id: 'gateway', isLocal: true, run: gatewayCheck },
  {
    id: 'clock',
    run: async (facts) => facts.clock ?? skip('clock', ...lacks.gateway(facts)),
  },
  { id: 'receipts', run: receiptsOfGateway },
  {
    id: 'eligibility',
    run: needing(['gateway', 'account'], async ({ gateway, account, ...facts }, id) =>
      findingOf(facts, 'gateway')?.result === 'fail'
        ? skip(id, 'the gateway was not reached', 'see the check gateway')
        : eligibilityCheck(gateway, account, facts.session.until),
    ),
  },
  {
    id: 'rpc',
    async run(facts) {
      const chain = await facts.session.chain()
      if (chain === undefined) return skip('rpc', 'no node is configured', noNode)
      const found = await rpcCheck(chain, facts.trust?.chain_id, facts.session.clock.nowMs())
      if (found.result !== 'fail') facts.chain = chain
      return found
    },
  },
  { id: 'trust_on_chain', run: needing(['chain', 'trust'], trustOnChain) },
  {
    id: 'balance',
    run: needing(
      ['chain', 'trust', 'account'],
      ({ chain, trust, account, view = { authorizations: [], offers: [] } }) =>
        fundsChecks(chain, trust, view, account),
      ['balance', 'allowance'],
    ),
  },
  {
    id: 'safe',
    unless: ({ account }) => account.safe === undefined,
    run: needing(['chain', 'trust'], async ({ chain, trust, session: { account } }) =>
      safeCheck(chain, trust, await account.address(), await account.safe?.owner?.address()),
    ),
  },
  {
    id: 'account_code',
    // Of a Safe that is named as one the check before has said it.
    unless: ({ account }) => account.safe !== undefined,
    run: needing(['chain', 'trust', 'account'], ({ chain, account }) => codeCheck(chain, account)),
  },
]

export async function examine(session: Session, isLocal = false) {
  const facts: Facts = { session, isLocal, findings: [] }
  const named = (error: unknown) => Promise.reject(withHost(error, session.settings))
  const wanted = checks.filter((one) => !isLocal || one.isLocal === true)
  for (const { id, run } of wanted.filter(({ unless }) => unless?.(session) !== true))
    facts.findings.push(...(await guarded(id, () => Promise.resolve(run(facts, id)).catch(named))))
  return withPastedFixes(session, facts.findings)
}

/** Free of charge. Of a gateway in this process there is nothing to compare. */
async function receiptsOfGateway(facts: Facts) {
  const { session, trust } = facts
  const { gateway: setting, allowHttp } = session.settings
  if (setting === undefined || findingOf(facts, 'gateway')?.result !== 'pass') return []
  const pinned = trust === undefined ? [] : receiptKeysOf(trust)
  const listed = await listedReceiptKeys(await session.edges.fetch(), setting.value, {
    signal: session.until,
    allowHttp: allowedHttp(allowHttp),
  }).catch((error: unknown) => {
    if (pinned.length === 0 && error instanceof UnavailableError) return []
    throw error
  })
  return receiptKeysCheck(pinned, listed, Math.floor(session.clock.nowMs() / 1_000))
}

const findingOf = ({ findings }: Pick<Facts, 'findings'>, wanted: string) =>
  findings.find(({ id }) => id === wanted)

/** `/healthz` costs no budget; a 404 is an answer with a Date too. */
async function gatewayCheck(facts: Facts) {
  const { session } = facts
  const { gateway: setting, local } = session.settings
  if (setting === undefined && local === undefined) return skip('gateway', ...lacks.gateway(facts))
  if (facts.isLocal)
    return note('gateway', `${setting ? publicUrl(setting.value) : local?.value}, not asked here`)
  facts.gateway = await session.gateway('read')
  const { origin } = facts.gateway
  if (setting === undefined) {
    facts.clock = skip('clock', 'the gateway runs in this process', '')
    return pass('gateway', origin)
  }
  const sentMs = session.clock.nowMs()
  try {
    const fetch = await session.edges.fetch()
    const { until: signal } = session
    const url = `${setting.value.replace(/\/+$/, '')}/healthz`
    const { body, headers, status } = await fetch(url, { redirect: 'manual', signal })
    await body?.cancel()
    facts.clock = clockCheck(headers.get('date'), sentMs, session.clock.nowMs())
    if (status < 300 || (status >= 400 && status < 500)) return pass('gateway', `${origin} answers`)
    const what = status < 400 ? 'redirects, and redirects are not followed' : `answers ${status}`
    return fail('gateway', `${origin} ${what}`, 'check the address, or ask the operator')
  } catch (error) {
    if (session.signal.aborted) throw session.signal.reason
    facts.clock = skip('clock', 'the gateway was not reached', 'see the check gateway')
    const detail = `gateway ${new URL(setting.value).host}: ${networkFault(error)}`
    return fail('gateway', detail, `check ${setting.from}, then retry`)
  }
}

async function trustOnChain(
  { chain, trust }: Having<'chain' | 'trust'>,
  id: string,
): Promise<Found> {
  const facts = await onChain(() => verifyTrust(chain, trust))
  const isCode = (fact: Finding) => fact.id === 'implementation'
  const allFailed = facts.filter(({ result }) => result === 'fail')
  const upgrades = allFailed
    .filter(isCode)
    .map(({ detail }) => fail('implementation', visible(detail), howToRepin))
  const failed = allFailed.filter((fact) => !isCode(fact))
  if (failed.length === 0 && upgrades.length > 0) return upgrades
  const confirmed = `${facts.length} facts of the pinned contracts confirmed`
  const versions = facts.filter(({ name }) => name.endsWith(' version'))
  if (failed.length === 0) {
    const all = [confirmed, ...versions.map(({ detail }) => detail)].join('; ')
    return trust.implementations === undefined
      ? note(id, `${all}; ${nothingPinned}`)
      : pass(id, all)
  }
  const other = fail(
    id,
    failed.map(({ name, detail }) => `${name}: ${visible(detail)}`).join('; '),
    'do not sign with these pins until you know why: `proposer trust verify`',
  )
  return [other, ...upgrades]
}

/** Nobody else's to read (R5). */
export async function secretChecks(session: Session) {
  const { accountPinFiles } = await import('#io/accounts')
  const home = session.settings.home.value
  const keyFile = session.env.PROPOSER_KEY_FILE ?? ''
  const keystores = homePaths.keystores(home)
  const names = (await session.files.exists(keystores)) ? await session.files.list(keystores) : []
  const files = [
    ...(keyFile === '' ? [] : [fromCwd(session.cwd, keyFile)]),
    ...names
      .filter((name) => name.endsWith('.json'))
      .sort()
      .map((name) => join(keystores, name)),
    ...(await accountPinFiles(session.files, home)),
  ]
  const open: string[] = []
  for (const file of files) if (((await permissionsOf(file)) ?? 0) & 0o077) open.push(file)
  const kept = files.length === 0 ? 'no key files' : `${files.length} readable by you alone`
  const keys =
    open.length > 0
      ? fail('key_files', `other users can read ${open.join(', ')}`, `chmod 600 ${open.join(' ')}`)
      : (session.environmentKey ?? '') !== ''
        ? warn(
            'key_files',
            'the key comes from PROPOSER_PRIVATE_KEY',
            'keep it in a keystore: `proposer account import <name>`',
          )
        : pass('key_files', kept)
  const folderCheck = async (id: string, folder: string) => {
    const mode = await permissionsOf(folder)
    const fix = `chmod 700 ${folder}`
    if (mode === undefined) return pass(id, 'is created on first use')
    if ((mode & 0o077) !== 0) return warn(id, `other users can read ${folder}`, fix)
    if ((mode & 0o700) !== 0o700) return fail(id, `${folder} cannot be read and written`, fix)
    return pass(id, folder)
  }
  return [
    keys,
    await folderCheck('journal_folder', join(home, 'journal')),
    await folderCheck('budget', join(home, 'budget')),
  ]
}
