/** `operator gateways` and `operator leader resign`: the gateways of a store in PostgreSQL. */
import { Command } from 'commander'
import { defaultReason } from '../../core/gateway/operator/acts.js'
import { adminTokenFile } from '../../core/host/config-file.js'
import { instant } from '../../core/protocol/candidate.js'
import { ProposerError } from '../../core/protocol/errors.js'
import { endLease, type Lease, leaseOf } from '../../core/storage/postgres/leadership.js'
import { membersOf, type SeenMember } from '../../core/storage/postgres/members.js'
import type { Context } from '../terminal/context.js'
import { type DryRunFlag, dryRunOption, showDryRun } from '../terminal/dry-run.js'
import { ageText, counted, fold } from '../terminal/render.js'
import { type Site, siteOf } from './access.js'
import { postResign } from './remote.js'
import { byOption, reasonOption, type SaidFlags, saidFlags } from './said.js'
import { withQueries } from './shared-site.js'

/** After so long without a sign of life a gateway is taken for gone. */
const goneMs = 30_000

export const gatewaysCommand = (context: Context) =>
  new Command('gateways')
    .description(
      'list the gateways of a PostgreSQL store: which run, which leads, how far each has read',
    )
    .addHelpText('after', '\nExample:\n  proposer operator gateways --json')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const { lease, members } = await withQueries(context, site, async (queries) => ({
        members: await membersOf(queries),
        lease: await leaseOf(queries),
      }))
      const document = {
        store: site.store,
        records: lease.n,
        leader: leaderJson(lease),
        gateways: members.map(memberJson),
      }
      context.output.result('operator-gateways', document, () =>
        gatewaysText(context, lease, members),
      )
    })

const leaderJson = ({ leader, epoch, endsInMs }: Lease) =>
  leader === undefined
    ? null
    : { id: leader, epoch, lease_ends_in_seconds: Math.ceil(endsInMs / 1_000) }

const memberJson = (member: SeenMember) => ({
  id: member.id,
  leads: member.isLeader,
  version: member.version,
  host: member.host,
  admin_url: member.adminUrl ?? null,
  executor: member.executor ?? null,
  lag_records: member.lag,
  started_at: instant(member.startedAtMs),
  seen_seconds_ago: Math.floor(member.seenMsAgo / 1_000),
})

function gatewaysText({ output }: Context, lease: Lease, members: readonly SeenMember[]): string {
  const { columns } = output
  const leading = lease.leader === undefined ? 'no leader' : `epoch ${lease.epoch}`
  const heading = `${counted(members.length, 'gateway')}, ${counted(lease.n, 'record')}, ${leading}`
  const blocks = members.map((one) => {
    const seen = `seen ${ageText(one.seenMsAgo / 1_000)} ago`
    const state = one.seenMsAgo > goneMs ? `${seen}, gone?` : seen
    const reached = one.adminUrl === undefined ? '' : `, admin ${one.adminUrl}`
    const lines = [
      `version ${one.version} on ${one.host}${reached}`,
      one.executor === undefined ? 'no executor key' : `executor ${one.executor}`,
      `${one.lag === 0 ? 'has read everything' : `lags ${counted(one.lag, 'record')}`}; ${state}`,
    ]
    const folded = lines.map((line) => `  ${fold(line, columns - 2, '    ')}`)
    return [`${one.id}${one.isLeader ? '  leads' : ''}`, ...folded].join('\n')
  })
  return [fold(heading, columns, '  '), ...blocks].join('\n')
}

type ResignFlags = DryRunFlag & SaidFlags

/** A listener that does not answer by then is passed by. */
const listenerMs = 5_000

export const resignCommand = (context: Context) =>
  new Command('resign')
    .description('end the lease of the leading gateway, so that another one executes')
    .option(...reasonOption)
    .option(...byOption)
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer operator leader resign --reason "node upgrade"')
    .action(async (own: ResignFlags, command: Command) => {
      const said = saidFlags(context, own)
      const { reason = defaultReason, by } = said
      const site = await siteOf(context, command)
      const done = await withQueries(context, site, async (queries) => {
        const { leader, epoch } = await leaseOf(queries)
        if (leader === undefined) return { led: null, through: null, others: 0 }
        const members = await membersOf(queries)
        const led = members.find(({ id }) => id === leader)
        if (site.isDryRun) return { dryRun: leader }
        const isByListener = led !== undefined && (await askedByListener(context, site, led, said))
        const { clock, random } = context
        const isEnded =
          isByListener || (await endLease(queries, { leader, reason, by, clock, random }))
        const others = members.filter((one) => one.id !== leader && one.seenMsAgo <= goneMs).length
        return {
          led: { id: leader, epoch, host: led?.host ?? null, admin_url: led?.adminUrl ?? null },
          through: isByListener ? ('gateway' as const) : isEnded ? ('store' as const) : null,
          others,
        }
      })
      if (done.dryRun !== undefined) {
        const shown = { act: 'leader/resign', store: site.store, gateway: done.dryRun }
        showDryRun(context, `end the lease of gateway ${done.dryRun} on ${site.store}`, shown)
        return
      }
      const { led, through, others } = done
      const document = { store: site.store, led, through, reason, ...(by && { by }), others }
      context.output.result('operator-leader', document, () =>
        fold(resignText(document), context.output.columns, '  '),
      )
    })

/** Whether the leader has given its lease up by its own listener, which only this machine reaches. */
async function askedByListener(
  context: Context,
  { loaded, timeoutMs = listenerMs }: Site,
  { host, adminUrl }: SeenMember,
  said: SaidFlags,
): Promise<boolean> {
  const tokenFile = adminTokenFile(loaded)
  const isHere = host === context.liveness.host && adminUrl !== undefined
  if (!isHere || !(await context.files.exists(tokenFile))) return false
  try {
    const call = { url: adminUrl, tokenFile, body: said, timeoutMs }
    return (await postResign(context, call)) === true
  } catch (error) {
    // Whatever keeps that listener from it: the store itself can end the lease.
    if (error instanceof ProposerError) return false
    throw error
  }
}

function resignText({
  led,
  through,
  others,
}: {
  readonly led: { readonly id: string; readonly epoch: number; readonly host: string | null } | null
  readonly through: 'gateway' | 'store' | null
  readonly others: number
}): string {
  if (led === null) return 'no gateway leads: there is no lease to end'
  const who = `gateway ${led.id}${led.host === null ? '' : ` on ${led.host}`}`
  if (through === null) return `${who} led with epoch ${led.epoch}, and has already lost the lease`
  const next =
    others === 0
      ? 'no other gateway is running, so it may lead again in a few seconds'
      : 'another one takes over'
  return `${who} led with epoch ${led.epoch}; its lease has ended: ${next}`
}
