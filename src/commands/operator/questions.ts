/**
 * `operator questions`: questions.json and what operators added to it and took from it (contract
 * §6, §7).
 */
import { Command } from 'commander'
import { createDecisions } from '../../core/gateway/status/listing.js'
import { registryOf } from '../../core/host/config-file.js'
import { instant } from '../../core/protocol/candidate.js'
import { UsageError } from '../../core/protocol/errors.js'
import { isQuestionId, isSlug } from '../../core/protocol/words.js'
import { dryRunOption } from '../dry-run.js'
import { requireAddress } from '../eligibility.js'
import { readOwnJson } from '../session/inputs.js'
import type { Context } from '../terminal/context.js'
import { counted, fold, timeText, visible } from '../terminal/render.js'
import { act, look, siteOf } from './access.js'
import { reasonOf, reasonOption, showActed } from './wallets.js'

export const questionsCommand = (context: Context): Command =>
  new Command('questions')
    .description(
      'the question registry: slugs, requesters and requests beyond what trusted adapters know by id',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  proposer operator questions list\n  proposer operator questions add 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --slug will-it-rain\n  proposer operator questions import more-questions.json',
    )
    .addCommand(listCommand(context))
    .addCommand(addCommand(context))
    .addCommand(importCommand(context))
    .addCommand(removeCommand(context))

const listCommand = (context: Context) =>
  new Command('list')
    .description('every entry in force and where it comes from')
    .addHelpText('after', '\nExample:\n  proposer operator questions list')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const decisions = createDecisions()
      const { output } = context
      await look(context, site, [decisions], async ({ registry, ledger }) => {
        const configured = new Set(
          (await registryOf(context, site.loaded)).map(({ questionId }) => questionId),
        )
        const removed = [...ledger.questions].flatMap(([questionId, entry]) =>
          entry === null && configured.has(questionId) ? [questionId] : [],
        )
        const rows = [
          ...registry.map((entry) => {
            const decision = ledger.questions.has(entry.questionId)
              ? decisions.questions.get(entry.questionId)
              : undefined
            return {
              question_id: entry.questionId,
              slug: entry.slug ?? null,
              requester: entry.requester ?? entry.request?.requester ?? null,
              has_request: entry.request !== undefined,
              source: decision === undefined ? 'questions file' : 'operator',
              since: decision === undefined ? null : instant(decision.atMs),
              reason: decision?.reason ?? null,
            }
          }),
          ...removed.map((questionId) => {
            const decision = decisions.questions.get(questionId)
            return {
              question_id: questionId,
              slug: null,
              requester: null,
              has_request: false,
              source: 'removed by operator',
              since: decision === undefined ? null : instant(decision.atMs),
              reason: decision?.reason ?? null,
            }
          }),
        ]
        if (output.mode === 'ndjson') for (const row of rows) output.line(row)
        const data =
          output.mode === 'ndjson'
            ? { summary: { questions: registry.length, removed: removed.length } }
            : { questions: rows }
        output.result('operator-questions', data, () =>
          rows.length === 0
            ? 'the registry is empty; questions of trusted adapters are served by their ids all the same'
            : rows.map((row) => rowText(row, output.columns)).join('\n'),
        )
      })
    })

interface Row {
  readonly question_id: string
  readonly slug: string | null
  readonly requester: string | null
  readonly source: string
  readonly since: string | null
  readonly reason: string | null
}

function rowText(
  { question_id, slug, requester, source, since, reason }: Row,
  columns: number,
): string {
  const from = since === null ? source : `${source} since ${timeText(since)}: ${reason ?? ''}`
  const told = [
    ...(slug === null ? [] : [question_id]),
    ...(requester === null ? [] : [`requester ${requester}`]),
    `from ${from}`,
  ]
  return [
    visible(slug ?? question_id),
    ...told.map((line) => `  ${fold(line, columns - 2, '    ')}`),
  ].join('\n')
}

interface AddFlags {
  readonly slug?: string
  readonly requester?: string
  readonly request?: string
  readonly reason?: string
}

const addCommand = (context: Context) =>
  new Command('add')
    .description('add one question, or change its entry; the chain confirms it first')
    .argument('<question-id>', '0x and 64 hex digits')
    .option('--slug <slug>', 'the name under which clients may ask for it')
    .option('--requester <address>', 'the one trusted requester to ask')
    .option(
      '--request <file.json>',
      'its request, for a requester of kind direct: {oracle, requester, identifier, timestamp, ancillary_data}',
    )
    .option(...reasonOption)
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nExample:\n  proposer operator questions add 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --slug will-it-rain',
    )
    .action(async (given: string, own: AddFlags, command: Command) => {
      const questionId = requireQuestionId(given)
      requireSlug(own.slug)
      const requester = own.requester === undefined ? undefined : requireAddress(own.requester)
      const site = await siteOf(context, command)
      const request =
        own.request === undefined ? undefined : await readOwnJson(context, own.request)
      const entry = {
        question_id: questionId,
        ...(own.slug === undefined ? {} : { slug: own.slug }),
        ...(requester === undefined ? {} : { requester }),
        ...(request === undefined ? {} : { request }),
      }
      const acted = await act(context, site, 'questions/add', {
        entries: [entry],
        ...reasonOf(own),
      })
      if (acted === undefined) return
      showActed(context, acted, (id) => [
        `${id} is in the registry now`,
        `${id} stood there so already: nothing changed`,
      ])
    })

const importCommand = (context: Context) =>
  new Command('import')
    .description('add every question of a file, or none of them')
    .argument('<file>', 'a JSON array of entries as in questions.json; - for stdin')
    .option(...reasonOption)
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer operator questions import more-questions.json')
    .action(async (file: string, own: { reason?: string }, command: Command) => {
      const site = await siteOf(context, command)
      const entries = await readOwnJson(context, file)
      if (!Array.isArray(entries) || entries.length === 0) {
        throw new UsageError('questions_invalid', `${file} holds no entries`, {
          hint: 'give a JSON array of entries as in questions.json',
        })
      }
      const acted = await act(context, site, 'questions/add', { entries, ...reasonOf(own) })
      if (acted === undefined) return
      const { changed, unchanged } = acted.result
      const { output } = context
      output.result('operator-act', { ...acted.result, through: acted.through }, () =>
        fold(
          `${counted(changed.length, 'question')} added or changed, ${unchanged.length} stood there so already`,
          output.columns,
          '  ',
        ),
      )
    })

const removeCommand = (context: Context) =>
  new Command('remove')
    .description('take an entry away, also one of the questions file, until it is added again')
    .argument('<question-id>', '0x and 64 hex digits')
    .option(...reasonOption)
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nExample:\n  proposer operator questions remove 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --reason "asked twice"',
    )
    .action(async (questionId: string, own: { reason?: string }, command: Command) => {
      const site = await siteOf(context, command)
      const acted = await act(context, site, 'questions/remove', {
        question_id: requireQuestionId(questionId),
        ...reasonOf(own),
      })
      if (acted === undefined) return
      showActed(context, acted, (id) => [
        `${id} is out of the registry`,
        `${id} was not in the registry: nothing changed`,
      ])
    })

function requireSlug(slug: string | undefined): void {
  if (slug === undefined || isSlug(slug)) return
  throw new UsageError('invalid_identifier', `--slug "${slug.slice(0, 80)}" is not a slug`, {
    hint: 'give lowercase letters, digits and hyphens, 200 at most; not `eligibility`, and no question id',
  })
}

function requireQuestionId(text: string): string {
  const id = text.toLowerCase()
  if (isQuestionId(id)) return id
  throw new UsageError('invalid_identifier', `"${text.slice(0, 80)}" is not a question id`, {
    hint: 'give 0x and 64 hex digits; `proposer context <slug>` shows the id of a slug',
  })
}
