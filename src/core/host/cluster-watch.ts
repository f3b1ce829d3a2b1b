/** What a gateway knows of the others on its store, without asking when somebody looks. */
import type { Clock } from '#ports'
import { StorageError } from '#protocol/errors'
import type { ClusterVitals } from '#protocol/vitals'
import { type Lease, leaseOf } from '#storage/postgres/leadership'
import { isGone, membersOf } from '#storage/postgres/members'
import type { SharedLog } from '#storage/postgres/shared-log'

const everyMs = 3_000

export interface ClusterWatch {
  now(): ClusterVitals | undefined
  stop(): Promise<void>
}

export function watchCluster(
  { clock, log }: { readonly clock: Clock; readonly log: SharedLog },
  leads: () => boolean,
): ClusterWatch {
  let heard: { readonly lease: Lease; readonly gateways: number } | undefined
  const stopping = new AbortController()
  const look = async () => {
    const members = await membersOf(log)
    const gateways = members.filter((one) => !isGone(one)).length
    heard = { lease: await leaseOf(log), gateways }
  }
  const loop = (async () => {
    while (!stopping.signal.aborted) {
      await look().catch((error: unknown) => {
        if (!(error instanceof StorageError)) throw error
        heard = undefined
      })
      await clock.sleep(everyMs, stopping.signal).catch(() => undefined)
    }
  })()
  return {
    now: () =>
      heard && {
        leads: leads(),
        leader: heard.lease.leader,
        epoch: heard.lease.epoch,
        lagRecords: Math.max(0, heard.lease.n - log.applied),
        gateways: heard.gateways,
      },
    async stop() {
      stopping.abort()
      await loop
    },
  }
}
