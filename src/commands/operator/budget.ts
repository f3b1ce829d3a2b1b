/**
 * `operator budget`: what is left of the item budget. Its windows live in the memory of the process
 * that serves (contract §2).
 */
import { Command } from 'commander'
import * as z from 'zod'
import { holderText, type LockHolder, readHolder } from '../../core/storage/lock.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { counted, fields, fold } from '../terminal/render.js'
import { adminUrlOf, siteOf } from './access.js'
import { getAdmin } from './remote.js'

const Budget = z.object({
  window_seconds: z.number(),
  global_items: z.number(),
  per_ip_items: z.number(),
  spent_items: z.number(),
  /** A gateway of an older version does not tell it. */
  window_ends_in_seconds: z.number().optional(),
  clients: z.number(),
})

export const budgetCommand = (context: Context) =>
  new Command('budget')
    .description('items spent in the window that is open, and the limits')
    .addHelpText('after', '\nExample:\n  proposer operator budget')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const { files, liveness } = context
      const holder = await readHolder({ files, liveness }, site.store)
      const url = adminUrlOf(holder)
      const { timeoutMs } = site
      const told =
        url === undefined
          ? undefined
          : Budget.safeParse(await getAdmin(context, `${url}/operator/budget`, { timeoutMs }))
      const { window_seconds, global_items, per_ip_items } = site.loaded.config.budget
      const limits = { window_seconds, global_items, per_ip_items }
      if (!told?.success) {
        context.output.result(
          'operator-budget',
          {
            served: false,
            ...limits,
            spent_items: null,
            left_items: null,
            window_ends_in_seconds: null,
            clients: null,
          },
          () =>
            [`no window is open: ${whyNone(holder)}`, limitLine(limits)]
              .map((line) => fold(line, context.output.columns, '  '))
              .join('\n'),
        )
        return
      }
      const {
        spent_items,
        clients,
        window_ends_in_seconds: endsInSeconds = null,
        ...limit
      } = told.data
      const left_items = Math.max(0, limit.global_items - spent_items)
      context.output.result(
        'operator-budget',
        {
          served: true,
          ...limit,
          spent_items,
          left_items,
          window_ends_in_seconds: endsInSeconds,
          clients,
        },
        () => budgetText(told.data, context.output),
      )
    })

/**
 * The window that is open as a bar, yellow once nothing is left, and what of it anybody may have.
 * Refused calls spend too (§8 rule 4).
 */
export function budgetText(
  told: z.infer<typeof Budget>,
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
): string {
  const {
    window_seconds,
    global_items,
    per_ip_items,
    spent_items,
    clients,
    window_ends_in_seconds: endsInSeconds,
  } = told
  const width = Math.max(8, Math.min(60, columns))
  const used = Math.min(spent_items, global_items)
  // What there is of it shows, and it is full only when nothing is left.
  const filled =
    used === global_items ? width : Math.min(width - 1, Math.ceil((used / global_items) * width))
  const bar = '#'.repeat(filled)
  return [
    fold(
      `${spent_items} of ${global_items} items spent in this window of ${window_seconds} s`,
      columns,
      '  ',
    ),
    `${used === global_items ? paint.yellow(bar) : bar}${paint.dim('.'.repeat(width - filled))}`,
    fields(
      [
        ['left for all', counted(global_items - used, 'item')],
        ['for one address', `at most ${counted(per_ip_items, 'item')}`],
        ['addresses', `${clients} remembered`],
        [
          'window',
          endsInSeconds === undefined
            ? null
            : endsInSeconds === 0
              ? 'none is open: the next call opens one'
              : `ends in ${endsInSeconds} s`,
        ],
      ],
      columns,
    ),
  ].join('\n')
}

function whyNone(holder: LockHolder | undefined): string {
  if (holder === undefined || holder.state === 'free' || holder.state === 'dead')
    return 'nothing serves'
  if (adminUrlOf(holder) !== undefined) return `${holderText(holder)} does not listen`
  return `${holderText(holder)} holds the store and charges nobody`
}

const limitLine = (limit: { window_seconds: number; global_items: number; per_ip_items: number }) =>
  `limits: ${limit.global_items} items for all and ${limit.per_ip_items} for one address in ${limit.window_seconds} s`
