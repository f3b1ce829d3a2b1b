import { titleOf } from '#chain/ancillary'
import type { QuestionFinding } from '#client/check/checker'
import type { OutOfBand, Signed } from '#client/journal/authorizations'
import {
  type AskRules,
  firstRulesNotes,
  type IntentInWords,
  requireClientRef,
  requireRules,
} from '#client/propose/intent'
import { checkRefusal, type Preview, type ProposeParts } from '#client/propose/plan'
import type { SafePartsFile } from '#client/propose/safe'
import type { SettledEarlier } from '#client/propose/send'
import { preview } from '#client/propose/sign-rows'
import { type ContextSource, givenContexts, parseContext } from '#client/trust/context'
import { quickestCurve } from '#io/native-curve'
import { instant } from '#protocol/candidate'
import { instantMs, spanMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { answerText, wordFault } from '#protocol/outcome-words'
import { isQuestionId, isUint256 } from '#protocol/words'
import type { Context } from '../terminal/context.js'
import { type Block, together } from '../terminal/output.js'
import { amountText, amountWithRaw, cut, dateText, fold, visible } from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'
import { asksPerson, confirm, inputJson } from './inputs.js'
import {
  asksGateway,
  type CheckFlags,
  capsOf,
  clarificationTexts,
  contextRows,
  contextSource,
  findingLine,
  givenAmount,
  isRequired,
  openChecker,
  pinnedUnits,
  questionText,
  requiredBy,
  requireIdentifier,
  rulesLine,
  unitsOf,
} from './question.js'
import { partsOf, type Session } from './session.js'
import {
  accountFlags,
  checkFlags,
  flagged,
  headroomFlag,
  notA,
  requesterFlag,
  type SessionFlags,
} from './settings.js'

export const signingFlags = [
  'outcome',
  'amount',
  'maxAmount',
  'headroom',
  'nonce',
  'deadline',
  'context',
  'clientRef',
  'rulesSeen',
  'asOwner',
  'parts',
  'browser',
] as const

export const intentFlags = {
  ...accountFlags,
  ...requesterFlag,
  ...checkFlags,
  '--outcome <yes|no|p1|p2|p3|label>': 'answer to propose; a label such as Porto',
  '--amount <amount>': 'authorize this much, such as 750usdc; default: the bond',
  ...headroomFlag,
  '--max-amount <amount>':
    'refuse to authorize more than this; headroom is cut to it; default: 5000usdc (5000000000raw) where no --rpc-url confirms the bond',
  '--nonce <n>': { about: 'Permit2 nonce; default: a fresh one of this run', parse: nonceOf },
  '--deadline <time>': 'Unix seconds, or from now such as 90m or 2h30m; default: 1h',
  '--context <file>': 'context to sign, from `context --json`',
  '--parts <file>': 'with --safe: what other owners have signed, as -o wrote it',
  '--client-ref <text>': 'your own reference, kept in the journal',
  '--rules-seen <hash>': {
    about: 'hash of the clarifications you have read, from `context`',
    parse: rulesHashOf,
  },
  '--supersede <journal-id>': 'replace this open authorization',
  '--dry-run': 'show what would happen; sign and send nothing',
} as const
type IntentFlags = FlagsOf<typeof intentFlags> & SessionFlags

export async function parseIntent(session: Session, named: string, flags: IntentFlags) {
  requireIdentifier(named)
  const outcome = requireOutcome(flags.outcome)
  const deadlineSeconds = parseDeadline(flags.deadline, session.clock.nowMs())
  const units = () => pinnedUnits(session, flags.context)
  const amount = await givenAmount(flagged('--amount', flags.amount), units)
  const parts = await givenParts(session, flags)
  const words = {
    ...(await capsOf(session, units, amount)),
    outcome,
    amountRaw: amount?.raw ?? (parts && BigInt(parts.amount)),
    nonce: flags.nonce ?? (parts && BigInt(parts.nonce)),
    deadlineSeconds: deadlineSeconds ?? (parts && BigInt(parts.deadline)),
    foreign: parts && { amount: amount === undefined, deadline: flags.deadline === undefined },
    supersede: flags.supersede,
    clientRef: requireClientRef(flags.clientRef),
    rulesSeen: flags.rulesSeen,
  }
  return { words, parts }
}

export function requireOutcome(word: string | undefined) {
  const wrong = word === undefined ? 'is missing' : wordFault(word)
  if (word !== undefined && wrong === undefined) return word
  throw new UsageError(
    'bad_outcome',
    `--outcome ${word === undefined ? '' : `${word} `}${wrong}`,
    `give --outcome yes, no, a label of the question, or p1, p2, p3`,
  )
}

function nonceOf(value: string) {
  if (isUint256(value)) return BigInt(value)
  const what = 'a whole number below 2^256'
  throw notA('bad_number', what, { value, from: '--nonce' }, 'give --nonce in digits')
}

export function parseDeadline(text: string | undefined, nowMs: number) {
  if (text === undefined) return undefined
  if (/^\d{1,12}$/.test(text)) return BigInt(text)
  const at = instantMs(text)
  if (at !== undefined && at >= 0) return BigInt(Math.floor(at / 1_000))
  const ms = spanMs(text)
  if (ms !== undefined) return BigInt(Math.floor(nowMs / 1000) + Math.floor(ms / 1000))
  throw new UsageError(
    'bad_deadline',
    `--deadline ${text} is neither Unix seconds nor a duration nor a time`,
    'give --deadline 90m or 2h30m (d, h, m and s are known), 2026-11-20T05:38:00Z, or Unix seconds',
  )
}

/** `isBrief`: only what a person decides on is shown before signing. */
export async function authorizeParts(
  session: Session,
  flags: IntentFlags,
  identifier: string,
  {
    others,
    isBrief,
  }: { readonly others?: SafePartsFile | undefined; readonly isBrief?: true } = {},
): Promise<ProposeParts> {
  const { output } = session
  const parts = await signingParts(session, flags)
  return {
    ...parts,
    form: 'single',
    contextsAreFree: parts.gateway === undefined || parts.chain !== undefined,
    proposer: () => session.account.address(),
    signer: () => session.account.signer(),
    safe: await safeSigning(session, flags, others),
    // Asked only where a finding warns: the command itself is the word to sign.
    confirm: async (shown) => {
      const isRead = flags.quiet !== true && (output.isForPeople || output.notesAreTerminal)
      const findings = await findingsOf(session, flags, shown, isRead)
      const blocksOf = isBrief ? briefBlocks : previewBlocks
      if (isRead) output.note(together(blocksOf(shown, identifier, findings))(output))
      // What a first signature acknowledges, told to programs (contract §9, Rules).
      if (!output.isForPeople)
        for (const detail of firstRulesNotes(identifier, shown.rules))
          output.warning('rules_taken_as_read', visible(detail))
      requireFindings(identifier, findings, flags)
      if (warnings(findings).length > 0 && asksPerson(session, flags))
        await confirm(session, 'Sign although these findings warn?', false)
    },
    judge: async (question, outcome) => {
      const shown = { context: question, outcome }
      requireFindings(identifier, await findingsOf(session, flags, shown, false), flags)
    },
    note: (text: string) => output.remark(text),
  }
}

export async function signingParts(
  session: Session,
  flags: SessionFlags & { readonly context?: string },
) {
  const { clock, until: signal } = session
  const parts = await partsOf(session)
  const { context: file } = flags
  /** Opened where the journal has nothing to reuse (contract §6). */
  const source = async () => {
    if (file === undefined) return contextSource(session)
    const json = await inputJson(session, file)
    return givenContexts({ ...parts, clock }, (identifier) => parseContext(json, identifier))
  }
  const contexts: ContextSource = {
    contexts: async (...asked) => (await source()).contexts(...asked),
  }
  // Offline a configured gateway is left alone; with a node it only settles earlier rounds.
  const isAsked = file === undefined && asksGateway(session)
  return {
    ...{ ...parts, contexts, signal },
    recovery: async () => (await quickestCurve()).recover,
    askRules: askingForRules(session, flags),
    ...(isAsked && { gateway: await session.gateway('read') }),
  }
}

/** Where they are read or decide. Offline, with a file alone, nobody is asked. */
async function findingsOf(
  session: Session,
  flags: IntentFlags,
  { context: shown, outcome, rules }: Pick<Preview, 'context' | 'outcome' | 'rules'>,
  isRead: boolean,
) {
  const isOffline = flags.context !== undefined && session.settings.rpcUrl === undefined
  if (!isRequired(requiredBy(flags)) && (isOffline || !isRead)) return []
  const checker = await openChecker(session)
  // As they were read just now: a file tells no clarifications.
  const question = rules === undefined ? shown : { ...shown, rules: rules.rules }
  const [findings = []] = await checker.check([{ context: question, outcome }], session.until)
  return findings
}

export async function showPreview(
  session: Session,
  flags: IntentFlags,
  parts: ProposeParts,
  intent: IntentInWords,
) {
  const { output } = session
  const { identifier } = intent
  const shown = await preview(parts, intent)
  if ('resumed' in shown) {
    const { id, offered } = shown.resumed
    const text = `${id} was already issued as typed data: that would be signed`
    return showSaved(session, 'resumed', id, { ...offered, identifier }, text)
  }
  if ('reused' in shown) {
    const { id, signed } = shown.reused
    const what = 'its saved bytes would be used, nothing would be signed'
    const text = `${id} is open with the same answer: ${what}`
    return showSaved(session, 'reused', id, { ...signed, identifier }, text)
  }
  const findings = await findingsOf(session, flags, shown, true)
  output.show(
    'preview',
    { dry_run: true, ...previewData(shown, identifier), findings },
    previewBlocks(shown, identifier, findings),
  )
  requireFindings(identifier, findings, flags)
  await requireRules(identifier, shown.rules, undefined)
}

export const showSaved = (
  { output }: Context,
  how: 'resumed' | 'reused' | 'executed',
  id: string,
  { questionId, identifier, digest }: Pick<Signed, 'questionId' | 'identifier' | 'digest'>,
  text: string,
) =>
  output.show(
    'preview',
    { dry_run: true, [how]: id, question_id: questionId, identifier, digest: digest ?? null },
    [() => text],
  )

const previewData = (shown: Preview, identifier: string) => ({
  question_id: shown.context.question_id,
  identifier,
  proposer: shown.proposer,
  outcome: shown.outcome,
  label: shown.label,
  price: shown.price,
  amount: String(shown.amountRaw),
  required_bond: String(shown.requiredBondRaw),
  nonce: String(shown.nonce),
  deadline: String(shown.deadlineSeconds),
  digest: shown.digest,
  typed_data: shown.typedData,
  notes: [...(shown.contextNotes ?? []), ...shown.notes],
  unchecked: shown.unchecked,
  rules: shown.rules?.rules ?? null,
  rules_changed: shown.rules?.isChanged ?? null,
})

const briefBlocks = (
  { context, outcome, label, amountRaw, notes }: Preview,
  identifier: string,
  findings: readonly QuestionFinding[],
) => [
  titleOf(context.request.ancillary_data) ?? identifier,
  `${answerText(outcome, label)}, ${amountText(amountRaw, unitsOf(context))}`,
  ...notes.map((note) => `note: ${note}`),
  ...findingLines(warnings(findings)),
]

const warnings = (findings: readonly QuestionFinding[]) =>
  findings.filter(({ result }) => result === 'warn')

function previewBlocks(
  shown: Preview,
  identifier: string,
  findings: readonly QuestionFinding[],
): Block[] {
  const units = unitsOf(shown.context)
  return [
    ...textInShort(
      questionText(shown.context.request.ancillary_data),
      `proposer context ${identifier}`,
    ),
    [
      ['answer', answerText(shown.outcome, shown.label)],
      ['authorizes', amountWithRaw(shown.amountRaw, units)],
      ['bond now', amountWithRaw(shown.requiredBondRaw, units)],
      ['proposer', shown.proposer],
      ['deadline', dateText(String(shown.deadlineSeconds))],
      ['nonce', String(shown.nonce)],
      ...contextRows(shown.context).filter(
        ([label]) => !['bond', 'answers', 'rules'].includes(label),
      ),
      ['rules', shown.rules && rulesLine(shown.rules.rules)],
      ['digest', shown.digest],
    ],
    ...clarificationTexts(shown.rules?.newer ?? []),
    ...shown.notes.map((note) => `note: ${note}`),
    ...findingLines(findings),
  ]
}

/** `--yes` does not acknowledge what nobody has read. `undefined`: nobody can be asked. */
function askingForRules(context: Context, flags: SessionFlags): AskRules | undefined {
  if (!asksPerson(context, flags)) return undefined
  const { output } = context
  return async (identifier, { newer, unknownHash }) => {
    const head =
      unknownHash === undefined
        ? `The rules of ${identifier} have changed since they were acknowledged.`
        : `The acknowledged hash is not a state of the rules of ${identifier}: ${unknownHash}`
    for (const text of [head, ...clarificationTexts(newer)])
      output.note(fold(text, output.columns, '  '))
    try {
      await confirm(context, 'Sign with these rules?', false)
      return true
    } catch (error) {
      if (error instanceof UsageError && error.code === 'declined') return false
      throw error
    }
  }
}

function rulesHashOf(text: string) {
  const hash = text.toLowerCase()
  if (isQuestionId(hash)) return hash
  throw new UsageError(
    'bad_rules_seen',
    '--rules-seen is not a hash of 32 bytes in hex',
    'give the hash that `proposer context <identifier>` prints under rules',
  )
}

const shownText = 400

/** What its answers mean stands at its end (domain §5.3: the last `res_data:` counts). */
function textInShort(text: string, whole: string) {
  const at = text.lastIndexOf('res_data:')
  const parts = (at > 0 ? [text.slice(0, at), text.slice(at)] : [text]).map((part) => part.trim())
  const shown = parts.map((part) => cut(part, shownText))
  const ellipses = shown.filter((part, index) => part !== parts[index]).length
  const over = parts.join('').length - shown.join('').length + ellipses
  return ellipses === 0
    ? [text]
    : [...shown, `[${over} characters left out; the whole text: \`${whole}\`]`]
}

function findingLines(findings: readonly QuestionFinding[]) {
  const unknown = findings.filter(({ result }) => result === 'unknown').map(({ id }) => id)
  return [
    ...warnings(findings).map(findingLine),
    ...(unknown.length === 0 ? [] : [`unknown: ${unknown.join(', ')}`]),
  ]
}

function requireFindings(
  identifier: string,
  findings: readonly QuestionFinding[],
  flags: CheckFlags,
) {
  const error = checkRefusal(identifier, findings, requiredBy(flags))
  if (error !== undefined) throw error
}

async function givenParts(session: Session, { parts: path, safe: named }: IntentFlags) {
  if (path === undefined) return undefined
  if (named === undefined)
    throw new UsageError(
      'flag_without_meaning',
      '--parts belongs to a Safe',
      'add --safe <address>, or leave out --parts',
    )
  const safe = session.account.safe?.address
  if (safe === undefined) return undefined
  const { parseParts } = await import('#client/propose/safe')
  const { chain_id: chainId } = await session.trust()
  return parseParts(await inputJson(session, path), path, { safe, chainId })
}

async function safeSigning(
  { account: { safe } }: Session,
  { asOwner }: IntentFlags,
  given: SafePartsFile | undefined,
) {
  if (safe === undefined) return undefined
  const { address, owner } = safe
  const as = typeof asOwner === 'string' ? await owner?.address() : undefined
  return { safe: address, owner: owner?.signer, as, given }
}

/** Nothing silences an outcome that only the operator can tell (§7 rule 3). */
export function collector({ output }: Context, { quiet = false }: { readonly quiet?: boolean }) {
  const settled: SettledEarlier[] = []
  const onSettled = (one: SettledEarlier) => {
    settled.push(one)
    if (one.outcome !== 'unknown') return
    if (!output.isForPeople) output.warning('out_of_band', one.line)
    else if (quiet) output.warn(visible(one.line))
  }
  return { settled, onSettled }
}

export const outOfBandData = ({ questionId, clientRef, submittedAtMs }: OutOfBand) => ({
  question_id: questionId,
  client_ref: clientRef ?? null,
  submitted_at: instant(submittedAtMs),
})

export const settledData = (settled: readonly SettledEarlier[] = []) =>
  settled.length === 0
    ? undefined
    : settled.map((one) => ({
        journal_id: one.journalId,
        outcome: one.outcome,
        ...(one.outcome === 'unknown'
          ? { out_of_band: outOfBandData(one.outOfBand) }
          : { code: one.code ?? null }),
      }))
