/** `proposer` alone: where its user stands, and how to go on. Reads this machine only (R24). */
import {
  type AuthorizationState,
  isOfferOpen,
  type JournaledAuthorization,
  stateOf,
} from '#client/journal/authorizations'
import { openJournal } from '#client/journal/journal'
import { isContestedState, lastPositions } from '#client/positions/last-known'
import { homePaths } from '#io/home'
import { ProposerError } from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { keyVariable } from './session/key-source.js'
import { builtInPins } from './session/session.js'
import { type GlobalFlags, resolveSettings, type Settings } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { fold, publicUrl, shellWord, visible } from './terminal/render.js'
import { commandWithFlags, withFlags } from './terminal/verb.js'

/** What is needed before a proposal can be made: how it is there, or the command that makes it. */
interface Need {
  readonly name: string
  readonly has?: string
  readonly command: string
}

type Line = string | { readonly label: string; readonly command: string }

export async function showNextSteps(
  context: Context,
  flags: GlobalFlags,
  argv: readonly string[],
): Promise<void> {
  const { output } = context
  const lines = await pageLines(context, flags).catch((error: unknown): Line[] => {
    if (!(error instanceof ProposerError)) throw error
    const { hint } = error.meta
    return [visible(error.detail), ...(hint === undefined ? [] : [visible(withFlags(hint, argv))])]
  })
  const page = [
    'Propose answers to oracle questions, and run the gateway that executes them.',
    '',
    ...lines,
    '',
    'All commands:        proposer --help',
    'Flags and examples:  proposer <command> --help',
  ]
  const columns = output.isTerminal ? output.columns : Number.POSITIVE_INFINITY
  const texts = page.map((line) =>
    typeof line === 'string'
      ? fitted(line, columns)
      : fitted(line.label + commandWithFlags(line.command, argv), columns, true),
  )
  output.text(`${texts.join('\n')}\n`)
}

/** Folded before its last column, else at blanks; a command stays whole, to be pasted. */
function fitted(line: string, columns: number, isCommand = false): string {
  if (line.length <= columns) return line
  const [, label, last] = /^(.*\S) {2,}(\S.*)$/.exec(line) ?? []
  if (label !== undefined) return `${label}\n    ${last}`
  const [indent = ''] = /^ */.exec(line) ?? []
  return isCommand ? line : indent + fold(line.trimStart(), columns - indent.length, indent)
}

async function pageLines(context: Context, flags: GlobalFlags): Promise<readonly Line[]> {
  const settings = await resolveSettings(context, flags)
  const home = settings.home.value
  const needs = await needsOf(context, settings)
  const isNew =
    needs.every(({ has }) => has === undefined) && !(await context.files.exists(`${home}/journal`))
  if (isNew) {
    return [
      `Nothing is set up yet in ${visible(home)}.`,
      '',
      // What the demo and a chain of one's own make is theirs alone: no flags.
      'See it work first:   proposer demo',
      'Practise with it:    proposer serve --dev',
      '',
      'To propose:',
      { label: '  all of it, guided  ', command: 'proposer init' },
      ...needs.map(({ name, command }) => ({ label: `  ${name.padEnd(19)}`, command })),
      { label: '  check it all       ', command: 'proposer doctor' },
    ]
  }
  const steps = await openSteps(context, home)
  const missing = needs.some(({ has }) => has === undefined)
  return [
    `Set up in ${visible(home)}:`,
    ...needs.map(({ name, has, command }): Line => {
      const padded = name.padEnd(15)
      if (has !== undefined) return `  ok       ${padded}${visible(has)}`
      return { label: `  missing  ${padded}`, command: visible(command) }
    }),
    '',
    ...steps,
    ...(missing ? [] : ['', { label: 'Check it all:        ', command: 'proposer doctor' }]),
  ]
}

async function needsOf(context: Context, settings: Settings): Promise<readonly Need[]> {
  const { gateway, local } = settings
  const target = gateway === undefined ? local && visible(local.value) : publicUrl(gateway.value)
  return [
    await keyNeed(context, settings),
    await contractsNeed(context, settings),
    {
      name: 'the gateway',
      command: 'proposer config set gateway <url>',
      ...(target !== undefined && { has: target }),
    },
  ]
}

async function keyNeed(context: Context, { home, account }: Settings): Promise<Need> {
  const { files } = context
  const name = 'a key'
  const folder = homePaths.keystores(home.value)
  const keystores = (await files.exists(folder))
    ? (await files.list(folder)).flatMap((one) => /^([^.].*)\.json$/.exec(one)?.[1] ?? [])
    : []
  if (account) {
    const command = `proposer account new ${shellWord(account.value)}`
    return keystores.includes(account.value)
      ? { name, command, has: `the keystore ${account.value}` }
      : { name, command }
  }
  const from = keyVariable(context)
  const [first] = keystores.sort()
  const command =
    first === undefined
      ? 'proposer account new <name>'
      : `proposer config set account ${shellWord(first)}`
  return { name, command, ...(from !== undefined && { has: `from ${from}` }) }
}

async function contractsNeed(context: Context, settings: Settings): Promise<Need> {
  const { trust, profile } = settings
  const need = { name: 'the contracts', command: 'proposer trust init --from <file>' }
  const pins = await builtInPins(context, settings)
  if (pins === undefined)
    return (await context.files.exists(trust.value)) ? { ...need, has: trust.value } : need
  if (pins.signed_proposer !== null) return { ...need, has: `built in, profile ${profile.value}` }
  return {
    ...need,
    command: `proposer trust init --profile ${profile.value} --signed-proposer <address>`,
  }
}

/** Gravest first, each with the one command for it (contract §6). */
async function openSteps(context: Context, home: string): Promise<readonly Line[]> {
  const journal = openJournal(context, home)
  const nowMs = context.clock.nowMs()
  const { authorizations, offers } = await journal.load().finally(() => journal.close())
  const open = authorizations
    .map((one) => ({ one, state: stateOf(one, nowMs).kind }))
    .filter(({ state }) => state !== 'closed')
  const of = (...kinds: readonly AuthorizationState['kind'][]) =>
    open.filter(({ state }) => kinds.includes(state)).map(({ one }) => one)
  const waiting = offers.filter((one) => isOfferOpen(one, nowMs))
  const [signed, accepted] = [of('signed'), of('accepted')]
  const steps: Line[] = []
  const step = (command: string, why: string) =>
    steps.push({ label: '  ', command }, `      ${why}`)
  const last = await lastPositions({ files: context.files, home }, (text) =>
    context.output.note(`note: ${visible(text)}`),
  )
  const contested = [...last.values()].filter(({ state }) => isContestedState(state))
  if (contested.length > 0)
    step('proposer positions --open', counted(contested, 'executed and disputed'))
  const unsent = of('unknown', 'deferred')
  if (unsent.length > 0)
    step(
      'proposer replay --all',
      `${counted(unsent, 'may not have arrived')}: send the same bytes again`,
    )
  for (const [question, those] of byQuestion(of('conflict')))
    step(`proposer reconcile ${question}`, counted(those, 'met a conflict'))
  const [first] = signed
  if (first)
    step(
      submitText(first),
      `${counted(signed, 'signed and never sent')}${signed.length > 1 ? '; this is the first' : ''}`,
    )
  if (accepted.length > 0)
    step('proposer poll --all', `${counted(accepted, 'admitted')}: follow to the end`)
  if (waiting.length > 0)
    step('proposer journal list --open', counted(waiting, 'waiting for an external signature'))
  if (steps.length === 0)
    return [
      'Nothing is open in the journal. Propose:',
      { label: '  ', command: 'proposer questions list' },
      { label: '  ', command: 'proposer submit <question> --outcome <answer> --wait' },
    ]
  return ['Open in the journal:', ...steps]
}

const counted = (some: readonly unknown[], what: string) => `${some.length} ${what}`

/** The first three questions; `reconcile` goes on from there. */
function byQuestion(
  some: readonly JournaledAuthorization[],
): readonly (readonly [string, readonly JournaledAuthorization[]])[] {
  const questions = [...new Set(some.map(({ signed }) => signed.questionId))].slice(0, 3)
  return questions.map((question) => [
    question,
    some.filter(({ signed }) => signed.questionId === question),
  ])
}

/** An equal intent sends the saved bytes (contract §6). */
function submitText({ id, signed }: JournaledAuthorization): string {
  const outcome = outcomeOf(signed.terms.price)
  if (outcome === undefined || visible(signed.identifier) !== signed.identifier)
    return `proposer journal show ${id}`
  return `proposer submit ${shellWord(signed.identifier)} --outcome ${outcome}`
}
