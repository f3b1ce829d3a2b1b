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
import { howToRepin, nothingPinned, receiptKeysOf, type Trust } from '#client/trust/trust'
import { permissionsOf } from '#io/files'
import { fromCwd, homePaths } from '#io/home'
import type { Chain } from '#ports'
import { ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import type { Address } from '#protocol/schema'
import { namesIn } from '#storage/durable'
import { builtInPins, type Session, sessionVerb, withHost, withSession } from './session/session.js'
import { accountFlags, allowedHttp, type GlobalFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { contestedLines, lastKnown } from './terminal/last-known.js'
import { apart, type Block, type Screen, together } from './terminal/output.js'
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
  flags: accountFlags,
  help: "Changes nothing; uses one item of the gateway's rate limit.",
  examples: ['doctor --rpc-url http://127.0.0.1:8545'],
  async run(session) {
    const { output } = session
    const { findings: checks } = await output.during('looking', () => examine(session))
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

/** `proposer` alone: where its user stands, and goes on. Reads this machine only (R24). */
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
  const { gateway, home: setting, local } = session.settings
  const home = setting.value
  const { findings } = await examine(session, ['trust', 'account', 'journal', 'open'])
  const named = gateway ? publicUrl(gateway.value) : local?.value
  const found = [
    ...findings,
    named === undefined
      ? skip('gateway', ...noGateway)
      : note('gateway', `${named}, not asked here`),
  ]
  const isNew = !(await namesIn(files, home)).includes('journal')
  const parts = found.filter(({ id }) => ['trust', 'account', 'gateway'].includes(id))
  const isEmpty = isNew && parts.every(({ result }) => result !== 'pass' && result !== 'note')
  const command =
    (label: string, line: string) =>
    ({ columns, isTerminal }: Screen) => {
      const whole = pasted(`\`${line}\``).replaceAll('`', '')
      const beside = `${label.padEnd(21)}${whole}`
      if (!isTerminal || beside.length <= columns) return beside
      return `${label && `${label}\n`}${foldHelp(`  ${whole}`, columns)}`
    }
  return [
    ...contestedLines(await lastKnown(session, home)),
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
  readonly session: Session
  readonly findings: Finding[]
  trust?: Trust
  account?: Address
  view?: JournalView
  proof?: Awaited<ReturnType<typeof verifyJournal>>
  gateway?: GatewayClient
  clock?: Finding
  chain?: Chain
}

type Run = (facts: Facts, id: string) => Promise<Found> | Found

type Lacking = 'view' | 'trust' | 'account' | 'gateway' | 'chain'
const lacks: Readonly<Record<Lacking, (facts: Facts) => readonly [string, string]>> = {
  view: () => ['the journal cannot be read', 'see the check journal'],
  trust: () => ['nothing is pinned', 'see the check trust'],
  account: () => ['no account is selected', 'see the check account'],
  gateway: ({ session: { settings } }) =>
    settings.gateway === undefined && settings.local === undefined
      ? noGateway
      : ['the gateway cannot be used', 'see the check gateway'],
  chain: ({ findings }) => [
    'the node cannot be used',
    findings.find(({ id }) => id === 'rpc')?.fix || noNode,
  ],
}

/** What an earlier check has not found: the check that needs it is skipped. */
class Missing extends Error {
  constructor(readonly why: readonly [string, string]) {
    super(why[0])
  }
}
function need<Key extends Lacking>(facts: Facts, key: Key) {
  const found = facts[key]
  if (found === undefined) throw new Missing(lacks[key](facts))
  return found
}

/** In the order of the report; what one finds the later ones use. */
const checksById: Readonly<Record<string, Run>> = {
  async trust(facts) {
    const { session } = facts
    const trust = await session.trust()
    facts.trust = trust
    const where =
      (await builtInPins(session)) === undefined
        ? `in ${session.settings.trust.value}`
        : `by the built-in profile ${session.settings.profile.value}`
    return pass('trust', `pins chain ${trust.chain_id} ${where}`)
  },
  async account(facts) {
    facts.account = await facts.session.account.address()
    return pass('account', facts.account)
  },
  key_files: ({ session }) => secretChecks(session),
  async journal(facts) {
    const { session } = facts
    facts.view = await session.journal.load()
    facts.proof = await verifyJournal(session, session.settings.home.value)
    const { authorizations, records, runs } = facts.proof
    const held = `${counted(authorizations, 'authorization')}, ${counted(records, 'record')}`
    return pass('journal', `sound: ${held}, ${counted(runs, 'run')}`)
  },
  open: (facts) => openCheck(need(facts, 'view'), facts.session.clock.nowMs()),
  gateway: gatewayCheck,
  clock: (facts) => facts.clock ?? skip('clock', ...lacks.gateway(facts)),
  receipts: receiptsOfGateway,
  eligibility: (facts) =>
    eligibilityCheck(need(facts, 'gateway'), need(facts, 'account'), facts.session.until),
  async rpc(facts) {
    const chain = await facts.session.chain()
    if (chain === undefined) return skip('rpc', 'no node is configured', noNode)
    const found = await rpcCheck(chain, facts.trust?.chain_id, facts.session.clock.nowMs())
    if (found.result !== 'fail') facts.chain = chain
    return found
  },
  trust_on_chain: trustOnChain,
  balance: (facts) =>
    fundsChecks(
      need(facts, 'chain'),
      need(facts, 'trust'),
      facts.view ?? { authorizations: [], offers: [] },
      need(facts, 'account'),
    ),
  async safe(facts) {
    const { account } = facts.session
    const [chain, trust] = [need(facts, 'chain'), need(facts, 'trust')]
    return safeCheck(chain, trust, await account.address(), await account.safe?.owner?.address())
  },
  account_code: (facts) => codeCheck(need(facts, 'chain'), need(facts, 'account')),
}

export async function examine(session: Session, only = Object.keys(checksById)): Promise<Facts> {
  const facts: Facts = { session, findings: [] }
  const other = session.account.safe === undefined ? 'safe' : 'account_code'
  for (const [id, run] of Object.entries(checksById))
    if (only.includes(id) && id !== other)
      facts.findings.push(
        ...(await guarded(id, async () => {
          try {
            return await run(facts, id)
          } catch (error) {
            if (!(error instanceof Missing)) throw withHost(error, session.settings)
            const ids = id === 'balance' ? [id, 'allowance'] : [id]
            return ids.map((one) => skip(one, ...error.why))
          }
        })),
      )
  return { ...facts, findings: withPastedFixes(session, facts.findings) }
}

/** Free of charge. Of a gateway in this process there is nothing to compare. */
async function receiptsOfGateway({ session, trust, gateway }: Facts) {
  const { gateway: setting, allowHttp } = session.settings
  if (setting === undefined || gateway === undefined) return []
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

const noGateway = [
  'no gateway is configured',
  'give --gateway <url> or --local <gateway.json>',
] as const

/** `/healthz` costs no budget; a 404 is an answer with a Date too. */
async function gatewayCheck(facts: Facts) {
  const { session } = facts
  const { gateway: setting, local } = session.settings
  if (setting === undefined && local === undefined) return skip('gateway', ...noGateway)
  const gateway = await session.gateway('read')
  const { origin } = gateway
  if (setting === undefined) {
    facts.gateway = gateway
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
    if (status >= 300 && (status < 400 || status >= 500)) {
      const what = status < 400 ? 'redirects, and redirects are not followed' : `answers ${status}`
      return fail('gateway', `${origin} ${what}`, 'check the address, or ask the operator')
    }
    facts.gateway = gateway
    return pass('gateway', `${origin} answers`)
  } catch (error) {
    if (session.signal.aborted) throw session.signal.reason
    const detail = `gateway ${new URL(setting.value).host}: ${networkFault(error)}`
    return fail('gateway', detail, `check ${setting.from}, then retry`)
  }
}

async function trustOnChain(facts: Facts, id: string): Promise<Found> {
  const [chain, trust] = [need(facts, 'chain'), need(facts, 'trust')]
  const found = await onChain(() => verifyTrust(chain, trust))
  const failed = found.filter(({ result }) => result === 'fail')
  if (failed.length > 0)
    return failed.map(({ id: fact, name, detail }) =>
      fact === 'implementation'
        ? fail(fact, detail, howToRepin)
        : fail(
            id,
            `${name}: ${detail}`,
            'do not sign with these pins until you know why: `proposer trust verify`',
          ),
    )
  const all = `${found.length} facts of the pinned contracts confirmed`
  return trust.implementations === undefined ? note(id, `${all}; ${nothingPinned}`) : pass(id, all)
}

async function secretChecks(session: Session) {
  const { accountPinFiles } = await import('#io/accounts')
  const home = session.settings.home.value
  const keyFile = session.env.PROPOSER_KEY_FILE ?? ''
  const keystores = homePaths.keystores(home)
  const files = [
    ...(keyFile === '' ? [] : [fromCwd(session.cwd, keyFile)]),
    ...(await namesIn(session.files, keystores))
      .filter((name) => name.endsWith('.json'))
      .sort()
      .map((name) => join(keystores, name)),
    ...(await accountPinFiles(session.files, home)),
  ]
  const open: string[] = []
  for (const file of files) if (((await permissionsOf(file)) ?? 0) & 0o077) open.push(file)
  const folderCheck = async (id: string, folder: string) => {
    const mode = await permissionsOf(folder)
    const fix = `chmod 700 ${folder}`
    if (mode === undefined) return pass(id, 'is created on first use')
    if ((mode & 0o077) !== 0) return warn(id, `other users can read ${folder}`, fix)
    if ((mode & 0o700) !== 0o700) return fail(id, `${folder} cannot be read and written`, fix)
    return pass(id, folder)
  }
  return [
    open.length > 0
      ? fail('key_files', `other users can read ${open.join(', ')}`, `chmod 600 ${open.join(' ')}`)
      : session.environmentKey
        ? warn(
            'key_files',
            'the key comes from PROPOSER_PRIVATE_KEY',
            'keep it in a keystore: `proposer account import <name>`',
          )
        : pass(
            'key_files',
            files.length === 0 ? 'no key files' : `${files.length} readable by you alone`,
          ),
    await folderCheck('journal_folder', join(home, 'journal')),
    await folderCheck('budget', join(home, 'budget')),
  ]
}
