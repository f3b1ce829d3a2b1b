import { titleOf } from '#chain/ancillary'
import type { QuestionFinding, Subject } from '#client/check/checker'
import { acceptedValue, gravest } from '#client/gateway/answer'
import { type BatchRow, readBatch } from '#client/input/input'
import { placeText, readIds } from '#client/input/rows'
import { checkRefusal } from '#client/propose/plan'
import type { ContextResult } from '#client/trust/context'
import { outcomeMeant, type Trust } from '#client/trust/trust'
import { givenAddress } from '#protocol/address'
import { ProposerError, reworded, UnauthorizedError, UsageError } from '#protocol/errors'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { answerText, labelIn, outcomeNamed } from '#protocol/outcome-words'
import { outcomeOf } from '#protocol/proposal'
import { formatFlag, readSource } from './batch/parts.js'
import { requireOutcome } from './session/intent.js'
import {
  type CheckFlags,
  clarificationTexts,
  contextGroups,
  contextRows,
  openChecker,
  questionText,
  requiredBy,
  requireIdentifier,
  rulesLine,
  unitsOf,
  worksheetHead,
  worksheetLine,
} from './session/question.js'
import { type Session, sessionVerb, slugsById } from './session/session.js'
import { checkFlags, requesterFlag } from './session/settings.js'
import { type Block, newResults, together } from './terminal/output.js'
import { counted, errorData, visible } from './terminal/render.js'

export const checkCommand = sessionVerb({
  name: 'check',
  about: 'show findings about questions before an answer is signed',
  args: {
    '<identifier|file>': 'question id, slug or Polymarket URL; or rows of a batch, - for stdin',
  },
  flags: {
    ...formatFlag,
    ...requesterFlag,
    ...checkFlags,
    '--outcome <yes|no|p1|p2|p3|label>': {
      about: 'answer to compare with the market',
      parse: requireOutcome,
    },
    '--gamma-url <url>': "Polymarket's market API",
  },
  help: 'Each finding is ok, warn or unknown, with its source. A node (--rpc-url) and Gamma are the sources; what neither reports is unknown.\nWith --require-check or --require-known such a finding is exit 2.',
  examples: ['check some-slug --outcome yes', 'check today.csv --require-check'],
  async run(session, flags, { identifier }) {
    const { outcome: word } = flags
    const isFile = identifier === '-' || namedQuestion(identifier) === undefined
    if (isFile && word !== undefined)
      throw new UsageError(
        'flag_without_meaning',
        '--outcome does not apply to a file, whose rows have their own outcomes',
        'omit --outcome',
      )
    const input = isFile
      ? readBatch(await readSource(session, identifier), flags.format)
      : undefined
    input?.faults.throwAny()
    for (const line of input?.unanswered ?? [])
      session.output.note(`note: left out without an outcome: line ${line}`)
    await checkAll(session, flags, input?.rows.map(askedIn) ?? [{ identifier, word }])
  },
})

interface Asked {
  readonly identifier: string
  readonly word?: string | undefined
  readonly place?: string
}

const placed = (error: ProposerError, { place }: Asked) =>
  place === undefined ? error : reworded(error, `${place}: ${error.detail}`)

function throwAny(errors: readonly ProposerError[], all: readonly Asked[]) {
  const error = gravest(errors)
  if (error === undefined) return
  if (errors.length === 1) throw error
  const what = all[0]?.place ? 'rows' : 'questions'
  throw reworded(error, `${errors.length} of ${all.length} ${what}; the first, ${error.detail}`)
}

const askedIn = (row: BatchRow) => ({
  identifier: row.identifier,
  word: row.kind === 'intent' ? row.outcome : outcomeOf(row.item.proposed_price),
  place: placeText(row),
})

async function checkAll(session: Session, flags: CheckFlags, all: readonly Asked[]) {
  const { output } = session
  const [trust, checker] = await Promise.all([session.trust(), openChecker(session)])
  const stream = newResults(output, 'check', 'findings')
  const questions: object[] = []
  const counts = { ok: 0, warn: 0, unknown: 0 }
  const errors: ProposerError[] = []
  const refusals: ProposerError[] = []
  for await (const group of contextGroups(session, all, 'checking')) {
    const some = group.map(({ asked, result }) => ({ asked, ...subjectOf(trust, result, asked) }))
    const subjects = some.flatMap(({ subject }) => subject ?? [])
    const found = (await checker.check(subjects, session.until)).values()
    for (const { asked, subject, error } of some) {
      const { identifier, place } = asked
      const { question_id = null, rules = null } = subject?.context ?? {}
      const outcome = subject?.outcome ?? null
      questions.push({ identifier, question_id, outcome, rules, error: errorData(error) })
      if (error) errors.push(placed(error, asked))
      if (error) stream.block(`${place ?? identifier}: ${error.detail}`)
      if (subject) {
        const findings = found.next().value ?? []
        for (const { result } of findings) counts[result]++
        const refusal = checkRefusal(identifier, findings, requiredBy(flags))
        if (refusal) refusals.push(placed(refusal, asked))
        for (const finding of findings) stream.item(finding)
        stream.block(blockOf(subject, findings, place))
      }
      stream.gap()
    }
  }
  const summary = { questions: questions.length, ...counts, errors: errors.length }
  stream.end({ summary, questions }, [
    `${counted(summary.questions, 'question')}: ${counts.ok} ok, ${counts.warn} warn, ${counts.unknown} unknown`,
  ])
  throwAny(errors, all)
  throwAny(refusals, all)
}

function subjectOf(
  trust: Trust,
  { context, error }: ContextResult,
  { word }: Asked,
): { readonly subject?: Subject; readonly error?: ProposerError } {
  if (error !== undefined) return { error }
  try {
    const outcome = word && (outcomeNamed(word) ?? outcomeMeant(trust, context, word))
    return { subject: { context, outcome: outcome || undefined } }
  } catch (fault) {
    if (fault instanceof ProposerError) return { error: fault }
    throw fault
  }
}

function blockOf(
  { context, outcome }: Subject,
  findings: readonly QuestionFinding[],
  place: string | undefined,
) {
  return together([
    `${place === undefined ? '' : `${place}: `}${titleOf(context.request.ancillary_data) ?? context.question_id}`,
    outcome && `answer: ${answerText(outcome, labelIn(context.outcomes, outcome))}`,
    ...findings.map(
      ({ id, result, detail, source }) => `${result.padEnd(7)} ${id}: ${detail} [${source}]`,
    ),
    context.rules && `rules: ${rulesLine(context.rules)}`,
    ...clarificationTexts(context.rules?.updates ?? []),
  ])
}

export const contextCommand = sessionVerb({
  name: 'context',
  about: 'show request, bond, outcomes and contracts of questions, checked against trust',
  args: { '<identifier...>': 'question ids, slugs or Polymarket URLs' },
  flags: requesterFlag,
  help: 'Asks the gateway, or with --rpc-url the chain, which uses no rate limit.',
  examples: ['context some-slug --json > context.json'],
  async run(session, _flags, { identifier: identifiers }) {
    for (const identifier of identifiers) requireIdentifier(identifier)
    const asked = identifiers.map((identifier) => ({ identifier }))
    await showContexts(session, asked)
  },
})

export const batchContextVerb = sessionVerb({
  name: 'context',
  about: 'show request, bond and outcomes of many questions, checked against trust',
  args: { '<file>': 'identifiers, one per line, or rows that have one; - for stdin' },
  flags: {
    ...formatFlag,
    ...requesterFlag,
    '--csv': 'print a worksheet: fill in outcome, then hand it to batch submit',
  },
  examples: [
    'batch context questions.txt --ndjson',
    'batch context questions.txt --csv > today.csv',
  ],
  async run(session, { format, csv }, { file }) {
    const source = await readSource(session, file)
    const { ids, faults } = readIds(source, 'identifier', format)
    const asked = ids.map((one) => {
      const what = 'it is neither a question id nor a slug nor a URL of Polymarket'
      if (namedQuestion(one.id) === undefined)
        faults.add(new UsageError('invalid_identifier', what, identifierHint(one.id)), one)
      return { identifier: one.id, place: placeText(one) }
    })
    faults.throwAny()
    await showContexts(session, asked, csv)
  },
})

async function showContexts(session: Session, all: readonly Asked[], csv = false) {
  const { output } = session
  const errors: ProposerError[] = []
  const stream = newResults(output, 'context', 'questions')
  let toldBefore = false
  const tellWhole = (result: ContextResult) => {
    const { identifier, context, error } = result
    stream.item(context ?? { identifier, error: errorData(error) })
    if (error && output.isTerminal && all.length === 1) return
    if (toldBefore) stream.gap()
    toldBefore = true
    stream.block(contextBlock(result))
  }
  const tell = csv ? await newSheet(session) : tellWhole
  const what = `asking for ${counted(all.length, 'question')}`
  for await (const group of contextGroups(session, all, what))
    for (const { asked, result } of group) {
      if (result.error) errors.push(placed(result.error, asked))
      tell(result)
    }
  const summary = { questions: all.length - errors.length, errors: errors.length }
  if (!csv) stream.end({ summary }, [])
  throwAny(errors, all)
}

async function newSheet({ output, trust }: Session) {
  const slugOf = slugsById((await trust()).slugs)
  output.text(worksheetHead)
  return ({ context, error, identifier }: ContextResult) => {
    if (error !== undefined) return output.note(`left out ${identifier}: ${visible(error.detail)}`)
    const { question_id, slug, outcomes = [], bond, reward, request, rules } = context
    output.text(
      worksheetLine({
        identifier: question_id,
        slug: slug ?? slugOf.get(question_id) ?? null,
        title: titleOf(request.ancillary_data) ?? null,
        outcomes: outcomes.filter(({ allowed }) => allowed),
        bond: bond.required_bond,
        reward: reward ?? null,
        units: unitsOf(context),
        rules,
      }),
    )
  }
}

function contextBlock({ identifier, context, error }: ContextResult): Block {
  if (context === undefined)
    return [
      ['question', identifier],
      ['error', error.detail],
    ]
  return together([
    [...contextRows(context), ['text', questionText(context.request.ancillary_data)]],
    ...clarificationTexts(context.rules?.updates ?? []),
  ])
}

export const eligibilityCommand = sessionVerb({
  name: 'eligibility',
  about: 'check whether a wallet may propose; exit 4 if it may not',
  args: { '[address]': 'wallet address; default: the selected account' },
  flags: {
    '--password-file <file>':
      'file with the keystore password, if its file does not name the address',
  },
  examples: [
    'eligibility 0x8ba1f109551bd432803012645ac136ddd64dba72 --gateway https://gateway.example',
  ],
  async run(session, _flags, { address }) {
    const wallet = address === undefined ? await session.account.address() : givenAddress(address)
    const gateway = await session.gateway('read')
    const answer = acceptedValue(await gateway.eligibility(wallet, { signal: session.until }))
    const { eligible } = answer
    session.output.show('eligibility', answer, [
      `${wallet} ${eligible ? 'may' : 'may not'} propose`,
    ])
    if (!eligible)
      throw new UnauthorizedError(
        'proposer_not_eligible',
        `${wallet} is not eligible at this gateway now`,
        'ask the operator of the gateway to allow this wallet, or choose another one with --account',
      )
  },
})
