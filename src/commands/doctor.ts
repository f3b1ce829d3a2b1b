/** `doctor`: every precondition with a fix for each failure (contract §6). Read-only (R24). */
import { join } from 'node:path'
import { Command } from 'commander'
import { verifyTrust } from '../core/checks/trust.js'
import { type JournalView, verifyJournal } from '../core/client/journal/journal.js'
import type { Trust } from '../core/client/trust/trust.js'
import {
  type Check,
  clockCheck,
  codeCheck,
  eligibilityCheck,
  fundsChecks,
  guarded,
  openCheck,
  pass,
  rpcCheck,
  skip,
  wrong,
} from '../core/client/wallet/doctor.js'
import { type Address, type Chain, ChainError } from '../core/ports.js'
import { ProposerError, UsageError } from '../core/protocol/errors.js'
import { fromCwd, homePaths } from './session/paths.js'
import {
  addSignerFlags,
  builtInPins,
  type Session,
  type SessionFlags,
  withSession,
} from './session/session.js'
import type { Context } from './terminal/context.js'
import type { Output } from './terminal/output.js'
import { counted, fold, visible } from './terminal/render.js'

export const doctorCommand = (context: Context): Command =>
  addSignerFlags(new Command('doctor'))
    .description(
      'check everything a proposal needs, and say how to mend what fails; exit 2 where something does',
    )
    .addHelpText(
      'after',
      "\nChanges nothing, and costs one item of the gateway's budget.\n\nExample:\n  proposer doctor --rpc-url http://127.0.0.1:8545",
    )
    .action(async (_own: unknown, command: Command) => {
      await withSession(context, command.optsWithGlobals<SessionFlags>(), async (session) => {
        const { output } = context
        const progress = output.progress('looking')
        const checks = await examine(context, session).finally(() => progress.stop())
        if (output.mode === 'ndjson') for (const check of checks) output.line(check)
        const count = (result: Check['result']) =>
          checks.filter((check) => check.result === result).length
        const summary = {
          pass: count('pass'),
          warn: count('warn'),
          fail: count('fail'),
          skip: count('skip'),
        }
        if (output.mode === 'ndjson') output.result('doctor', { summary }, () => '')
        else output.result('doctor', { checks, summary }, () => checksText(checks, output))
        const failed = checks.filter(({ result }) => result === 'fail').map(({ id }) => id)
        if (failed.length === 0) return
        throw new UsageError(
          'doctor_found_faults',
          `${failed.length} of ${checks.length} checks failed: ${[...new Set(failed)].join(', ')}`,
          {
            hint: 'mend what fails from the top down, then run `proposer doctor` again',
          },
        )
      })
    })

const paints = { pass: 'green', warn: 'yellow', fail: 'red', skip: 'gray' } as const
const words = { pass: 'ok  ', warn: 'WARN', fail: 'FAIL', skip: 'skip' } as const

/** What was skipped for one reason is told once, and a fix that stands above is not repeated. */
function checksText(checks: readonly Check[], output: Output): string {
  const shown: Check[] = []
  for (const check of checks) {
    const last = shown.at(-1)
    const isLike =
      last?.result === 'skip' && check.result === 'skip' && last.detail === check.detail
    if (isLike) shown[shown.length - 1] = { ...last, id: `${last.id}, ${check.id}` }
    else shown.push(check)
  }
  return shown
    .map((check, index) =>
      checkText(check.fix === shown[index - 1]?.fix ? { ...check, fix: '' } : check, output),
    )
    .join('\n')
}

function checkText({ id, result, detail, fix }: Check, { columns, paint }: Output): string {
  const line = fold(`${id.replaceAll('_', ' ')}: ${detail}`, columns - 6, '      ')
  const mend = fix === '' ? '' : `\n      ${fold(`fix: ${fix}`, columns - 6, '      ')}`
  return `${paint[paints[result]](words[result])}  ${line}${mend}`
}

const noGateway = 'give --gateway <url> or --local <gateway.json>'
const noNode = 'give --rpc-url <url>'

async function examine(context: Context, session: Session): Promise<readonly Check[]> {
  const checks: Check[] = []
  const trust = await take(checks, 'trust', async () => {
    const pins = await session.trust()
    const builtIn = await builtInPins(context, session.settings)
    const where =
      builtIn === undefined
        ? `in ${session.settings.trust.value}`
        : `by the built-in profile ${session.settings.profile.value}`
    return { value: pins, check: pass('trust', `pins chain ${pins.chain_id} ${where}`) }
  })
  const account = await take(checks, 'account', async () => {
    const address = await session.account.address()
    return { value: address, check: pass('account', address) }
  })
  checks.push(...(await secretChecks(context, session)))
  const view = await take(checks, 'journal', async () => {
    const proof = await verifyJournal(session.ports, session.settings.home.value)
    const check = pass(
      'journal',
      `sound: ${counted(proof.authorizations, 'authorization')}, ${counted(proof.records, 'record')}, ${counted(proof.runs, 'run')}`,
    )
    return { value: await session.journal.load(), check }
  })
  checks.push(
    view === undefined
      ? skip('open', 'the journal cannot be read', 'see the check journal')
      : openCheck(view, context.clock.nowMs()),
  )
  checks.push(...(await gatewayChecks(context, session, account)))
  checks.push(...(await chainChecks(context, session, trust, view, account)))
  return checks
}

/** A value that later checks need, and the check that it could be had. */
async function take<T>(
  checks: Check[],
  id: string,
  make: () => Promise<{ value: T; check: Check }>,
): Promise<T | undefined> {
  let value: T | undefined
  checks.push(
    await guarded(id, async () => {
      const made = await make()
      value = made.value
      return made.check
    }),
  )
  return value
}

/** Files that hold keys, and the folders with signatures and budget: nobody else's to read (R5). */
export async function secretChecks(
  context: Context,
  session: Pick<Session, 'settings'>,
): Promise<readonly Check[]> {
  const { permissionsOf } = await import('../core/io/file-modes.js')
  const home = session.settings.home.value
  const keyFile = context.env.PROPOSER_KEY_FILE
  const keystores = homePaths.keystores(home)
  const names = (await context.files.exists(keystores))
    ? (await context.files.list(keystores)).filter((name) => name.endsWith('.json'))
    : []
  const files = [
    ...(keyFile === undefined || keyFile === '' ? [] : [fromCwd(context.cwd, keyFile)]),
    ...names.sort().map((name) => join(keystores, name)),
  ]
  const open: string[] = []
  for (const file of files) if (((await permissionsOf(file)) ?? 0) & 0o077) open.push(file)
  const keys =
    open.length > 0
      ? wrong(
          'key_files',
          'fail',
          `others may read ${open.join(', ')}`,
          `chmod 600 ${open.join(' ')}`,
        )
      : (context.environmentKey ?? '') !== ''
        ? wrong(
            'key_files',
            'warn',
            'the key comes from PROPOSER_PRIVATE_KEY',
            'keep it in a keystore: `proposer account import <name>`',
          )
        : pass(
            'key_files',
            files.length === 0 ? 'no key is kept here' : `${files.length} readable by you alone`,
          )
  return [
    keys,
    await folderCheck('journal_folder', join(home, 'journal')),
    await folderCheck('budget', join(home, 'budget')),
  ]

  async function folderCheck(id: string, folder: string): Promise<Check> {
    const mode = await permissionsOf(folder)
    if (mode === undefined) return pass(id, 'is made on first use')
    if ((mode & 0o077) !== 0)
      return wrong(id, 'warn', `others may look into ${folder}`, `chmod 700 ${folder}`)
    if ((mode & 0o700) !== 0o700)
      return wrong(id, 'fail', `${folder} cannot be read and written`, `chmod 700 ${folder}`)
    return pass(id, folder)
  }
}

async function gatewayChecks(
  context: Context,
  session: Session,
  account: Address | undefined,
): Promise<readonly Check[]> {
  const { gateway, local } = session.settings
  if (gateway === undefined && local === undefined) {
    return ['gateway', 'clock', 'eligibility'].map((id) =>
      skip(id, 'no gateway is configured', noGateway),
    )
  }
  const checks: Check[] = []
  const opened = await take(checks, 'gateway', async () => {
    const client = await session.gateway('read')
    if (gateway === undefined)
      return {
        value: { client, clock: skip('clock', 'a gateway in this process has this clock', '') },
        check: pass('gateway', client.origin),
      }
    const asked = await askHealth(context, session, gateway.value, client.origin)
    return { value: { client, clock: asked.clock }, check: asked.check }
  })
  if (opened === undefined)
    return [
      ...checks,
      ...['clock', 'eligibility'].map((id) =>
        skip(id, 'no gateway can be asked', 'see the check gateway'),
      ),
    ]
  const isReached = checks.at(-1)?.result !== 'fail'
  const eligibility =
    account === undefined
      ? skip('eligibility', 'no account is selected', 'see the check account')
      : isReached
        ? await eligibilityCheck(opened.client, account, session.signal)
        : skip('eligibility', 'the gateway was not reached', 'see the check gateway')
  return [...checks, opened.clock, eligibility]
}

/**
 * `/healthz` costs no budget; a gateway without it answers 404, which is an answer with a Date all
 * the same.
 */
async function askHealth(
  context: Context,
  session: Session,
  baseUrl: string,
  origin: string,
): Promise<{ check: Check; clock: Check }> {
  const sentMs = context.clock.nowMs()
  try {
    const fetch = await context.edges.fetch()
    const response = await fetch(`${baseUrl.replace(/\/+$/, '')}/healthz`, {
      redirect: 'manual',
      signal: session.signal,
    })
    await response.body?.cancel()
    const clock = clockCheck(response.headers.get('date'), sentMs, context.clock.nowMs())
    if (response.status < 500 && (response.status < 300 || response.status >= 400))
      return { check: pass('gateway', `${origin} answers`), clock }
    const what =
      response.status < 400 ? 'redirects, which is never followed' : `answers ${response.status}`
    return {
      check: wrong('gateway', 'fail', `${origin} ${what}`, 'check the address; ask the operator'),
      clock,
    }
  } catch (error) {
    if (context.signal.aborted) throw context.signal.reason
    // Whatever a connection fails with: its code, never an address (R5).
    const code = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : ''
    return {
      check: wrong(
        'gateway',
        'fail',
        `${origin} cannot be reached${code}`,
        'check --gateway and the network',
      ),
      clock: skip('clock', 'the gateway was not reached', 'see the check gateway'),
    }
  }
}

async function chainChecks(
  context: Context,
  session: Session,
  trust: Trust | undefined,
  view: JournalView | undefined,
  account: Address | undefined,
): Promise<readonly Check[]> {
  const ids = ['trust_on_chain', 'balance', 'allowance', 'account_code'] as const
  const checks: Check[] = []
  const chain =
    session.settings.rpcUrl === undefined
      ? undefined
      : await take(checks, 'rpc', () => opened(context, session, trust))
  if (chain === undefined && checks.length === 0)
    checks.push(skip('rpc', 'no node is configured', noNode))
  const usable = chain !== undefined && checks.at(-1)?.result !== 'fail'
  if (!usable)
    return [
      ...checks,
      ...ids.map((id) =>
        skip(id, 'no node of the chain can be asked', checks.at(-1)?.fix || noNode),
      ),
    ]
  if (trust === undefined)
    return [...checks, ...ids.map((id) => skip(id, 'nothing is pinned', 'see the check trust'))]
  checks.push(await trustOnChain(chain, trust))
  if (account === undefined)
    return [
      ...checks,
      ...ids.slice(1).map((id) => skip(id, 'no account is selected', 'see the check account')),
    ]
  const nothing: Pick<JournalView, 'authorizations' | 'offers'> = { authorizations: [], offers: [] }
  return [
    ...checks,
    ...(await fundsChecks(chain, trust, view ?? nothing, account)),
    await codeCheck(chain, account),
  ]
}

async function opened(
  context: Context,
  session: Session,
  trust: Trust | undefined,
): Promise<{ value: Chain; check: Check }> {
  const chain = await session.chain()
  if (chain === undefined)
    throw new UsageError('no_rpc_url', 'no node is configured', { hint: noNode })
  return { value: chain, check: await rpcCheck(chain, trust?.chain_id, context.clock.nowMs()) }
}

async function trustOnChain(chain: Chain, trust: Trust): Promise<Check> {
  const id = 'trust_on_chain'
  try {
    const checks = await verifyTrust(chain, trust)
    const failed = checks.filter(({ ok }) => !ok)
    if (failed.length === 0) return pass(id, `${checks.length} facts of the pinned contracts hold`)
    const detail = failed.map(({ name, detail: found }) => `${name}: ${visible(found)}`).join('; ')
    return wrong(
      id,
      'fail',
      detail,
      'sign nothing with these pins before you know why: `proposer trust verify`',
    )
  } catch (error) {
    if (error instanceof ProposerError)
      return wrong(id, 'fail', error.detail, error.meta.hint ?? noNode)
    if (error instanceof ChainError)
      return wrong(id, 'fail', `the node does not answer (${error.kind})`, 'use another --rpc-url')
    throw error
  }
}
