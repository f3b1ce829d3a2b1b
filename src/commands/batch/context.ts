/** `batch context`: the contexts of many questions, as `context` shows one (contract §6). */
import { Command } from 'commander'
import { readIds } from '../../core/client/input/ids.js'
import {
  type BatchSource,
  inputFault,
  type Place,
  placeText,
} from '../../core/client/input/rows.js'
import { inGroups } from '../../core/client/propose/spending.js'
import { isIdentifier, limits } from '../../core/protocol/words.js'
import { contextSource, unitsOf } from '../session/question.js'
import { addRequesterFlag, type SessionFlags, withSession } from '../session/session.js'
import type { Context } from '../terminal/context.js'
import { amountText, visible } from '../terminal/render.js'
import { addFormatFlag, type FormatFlags, withSource } from './source.js'
import { newResultStream, newTally } from './text.js'

export const batchContextCommand = (context: Context): Command =>
  addRequesterFlag(addFormatFlag(new Command('context')))
    .description('show request, bond and outcomes of many questions, checked against trust')
    .argument('<file>', 'identifiers one a line, or rows that have one; - for stdin')
    .addHelpText('after', '\nExample:\n  proposer batch context questions.txt --ndjson')
    .action(async (path: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SessionFlags & FormatFlags>()
      await withSession(context, flags, async (session) => {
        const { output } = context
        await withSource(context, session.settings.home.value, path, async (source) => {
          const rows = () => readIds(source, 'identifier', flags.format)
          let total = 0
          for await (const some of rows()) {
            for (const one of some) if (!isIdentifier(one.id)) throw badIdentifier(source, one)
            total += some.length
          }
          const contexts = await contextSource(context, session)
          const stream = newResultStream(output, 'context', 'questions')
          const tally = newTally()
          const notes = new Set<string>()
          let errors = 0
          const progress = output.progress(`asking for ${total} questions`)
          try {
            for await (const group of inGroups(rows(), limits.batchItems)) {
              const found = await contexts.contexts(
                group.map(({ id }) => id),
                { signal: session.signal },
              )
              for (const [index, one] of found.entries()) {
                const place = group[index]
                if (one.error) {
                  errors++
                  tally.add(place === undefined ? one.identifier : placeText(place), one.error)
                  const { code, detail } = one.error
                  stream.item({ identifier: one.identifier, error: { code, detail } }, () => [
                    one.identifier,
                    detail,
                  ])
                  continue
                }
                for (const note of one.notes) notes.add(note)
                const { bond, outcomes, price } = one.context
                const answers = outcomes
                  ?.filter(({ allowed }) => allowed)
                  .map(({ outcome, label }) => `${outcome} ${label}`)
                stream.item(one.context, () => [
                  one.identifier,
                  `bond ${amountText(bond.required_bond, unitsOf(one.context))}`,
                  (answers ?? price.allowed_values).join(', '),
                ])
              }
            }
          } finally {
            progress.stop()
          }
          for (const note of notes) output.note(`note: ${visible(note)}`)
          stream.end(
            { summary: { questions: total - errors, errors } },
            () => `${total - errors} questions, ${errors} errors`,
          )
          const error = tally.error({ total, goOn: 'run the same command again later' })
          if (error) throw error
        })
      })
    })

const badIdentifier = (source: BatchSource, place: Place) =>
  inputFault(
    source,
    place,
    'invalid_identifier',
    'it is neither a question id nor a slug',
    'a question id is 0x and 64 lowercase hex digits; a slug has lowercase letters, digits and hyphens',
  )
