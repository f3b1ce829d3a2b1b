/** `operator budget`: what is left of the item budget. Its windows live in the memory of the process that serves (contract §2). */
import { Command } from 'commander'
import { z } from 'zod'
import { readHolder } from '../../core/storage/lock.js'
import type { Context } from '../context.js'
import { adminUrlOf, siteOf } from './access.js'
import { getAdmin } from './remote.js'

const Budget = z.object({
  window_seconds: z.number(),
  global_items: z.number(),
  per_ip_items: z.number(),
  spent_items: z.number(),
  clients: z.number(),
})

export const budgetCommand = (context: Context) =>
  new Command('budget')
    .description('items spent in the window that is open, and the limits')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const { files, liveness } = context
      const url = adminUrlOf(await readHolder({ files, liveness }, site.store))
      const told = url === undefined ? undefined : Budget.safeParse(await getAdmin(context, `${url}/operator/budget`))
      const { window_seconds, global_items, per_ip_items } = site.loaded.config.budget
      const limits = { window_seconds, global_items, per_ip_items }
      if (!told?.success) {
        context.output.result('operator-budget', { served: false, ...limits, spent_items: null, left_items: null, clients: null }, () =>
          ['no window is open: nothing serves', ...limitLines(limits)].join('\n'),
        )
        return
      }
      const { spent_items, clients, ...limit } = told.data
      const left_items = Math.max(0, limit.global_items - spent_items)
      context.output.result('operator-budget', { served: true, ...limit, spent_items, left_items, clients }, () =>
        [
          `${spent_items} items spent in this window, ${left_items} left for all; ${clients} client addresses remembered`,
          ...limitLines(limit),
        ].join('\n'),
      )
    })

const limitLines = (limit: { window_seconds: number; global_items: number; per_ip_items: number }) => [
  `limits: ${limit.global_items} items for all and ${limit.per_ip_items} for one address in ${limit.window_seconds} s`,
]
