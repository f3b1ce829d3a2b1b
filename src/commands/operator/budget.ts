/**
 * `operator budget`: what is left of the rate limit. Its windows live in the memory of the process
 * that serves (contract §2).
 */
import { Command } from 'commander'
import * as z from 'zod/mini'
import { holderText, type LockHolder } from '../../core/storage/lock.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { counted, fields, fold } from '../terminal/render.js'
import { adminUrlOf, servingUrl, siteOf } from './access.js'
import { getAdmin } from './remote.js'

const Budget = z.object({
  window_seconds: z.number(),
  global_items: z.number(),
  per_ip_items: z.number(),
  spent_items: z.number(),
  /** A gateway of an older version does not tell it. */
  window_ends_in_seconds: z.optional(z.number()),
  clients: z.number(),
})
type Budget = z.infer<typeof Budget>

export const budgetCommand = (context: Context) =>
  new Command('budget')
    .description('show rate-limit use of the open window, and the limits')
    .addHelpText('after', '\nExample:\n  proposer operator budget')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const { timeoutMs, loaded } = site
      const { output } = context
      const { url, holder } = await servingUrl(context, site)
      const body = url && (await getAdmin(context, `${url}/operator/budget`, { timeoutMs }))
      const read = Budget.safeParse(body)
      const { window_seconds, global_items, per_ip_items } = read.data ?? loaded.config.budget
      const { spent_items, clients = null, window_ends_in_seconds = null } = read.data ?? {}
      const document = {
        served: read.success,
        window_seconds,
        global_items,
        per_ip_items,
        spent_items: spent_items ?? null,
        left_items: spent_items === undefined ? null : Math.max(0, global_items - spent_items),
        window_ends_in_seconds,
        clients,
      }
      output.result('operator-budget', document, () =>
        read.success
          ? budgetText(read.data, output)
          : [
              `no window is open: ${whyNone(holder)}`,
              `limits: ${global_items} items for all and ${per_ip_items} for one address in ${window_seconds} s`,
            ]
              .map((line) => fold(line, output.columns, '  '))
              .join('\n'),
      )
    })

/**
 * The window that is open as a bar, yellow once nothing is left, and what of it anybody may have.
 * Refused calls spend too (§8 rule 4).
 */
export function budgetText(
  budget: Budget,
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
): string {
  const { window_seconds, global_items, spent_items, window_ends_in_seconds: ends } = budget
  const width = Math.max(8, Math.min(60, columns))
  const used = Math.min(spent_items, global_items)
  const isSpent = used === global_items
  // What there is of it shows, and it is full only when nothing is left.
  const filled = isSpent ? width : Math.min(width - 1, Math.ceil((used / global_items) * width))
  const bar = '#'.repeat(filled)
  const spent = `${spent_items} of ${global_items} items spent in this window of ${window_seconds} s`
  const window = ends === 0 ? 'none is open: the next call opens one' : `ends in ${ends} s`
  return [
    fold(spent, columns, '  '),
    `${isSpent ? paint.yellow(bar) : bar}${paint.dim('.'.repeat(width - filled))}`,
    fields(
      [
        ['left in total', counted(global_items - used, 'item')],
        ['for one address', `at most ${counted(budget.per_ip_items, 'item')}`],
        ['addresses', `${budget.clients} seen`],
        ['window', ends === undefined ? null : window],
      ],
      columns,
    ),
  ].join('\n')
}

function whyNone(holder: LockHolder | undefined): string {
  if (holder === undefined || holder.state === 'free' || holder.state === 'dead')
    return 'no gateway is running'
  return adminUrlOf(holder) === undefined
    ? `${holderText(holder)} has the store open but does not serve`
    : `${holderText(holder)} does not listen`
}
