/** How a served gateway stands: what the live status, the page and the metrics show. */
import type { GatewayStatus, Vitals } from '../protocol/vitals.js'
import type { Activity, MinuteCounts, StatusChange } from './activity.js'
import type { HostedGateway } from './gateway-host.js'

export interface StatusSnapshot extends GatewayStatus {
  /** Where callers reach it; `undefined` until it listens. */
  readonly url: string | undefined
  readonly adminUrl: string | undefined
  readonly vitals: Vitals
  readonly lastMinute: MinuteCounts
  /** What one caller or wallet can cost at most, by name; only where the operator asked. */
  readonly ceilings?: Readonly<Record<string, number>>
  /** Wallets that cost gas for nothing in the last 24 hours; names are of the wire. */
  readonly wallets?: readonly {
    readonly address: string
    readonly state: string
    readonly until: string | null
    readonly failed_gas: string
  }[]
  /** The newest last. */
  readonly changes: readonly StatusChange[]
}

/** From memory: nobody is asked. Throws nothing. */
export const snapshotOf = (
  { gateway, vitals }: Pick<HostedGateway, 'gateway' | 'vitals'>,
  activity: Activity,
  urls: Pick<StatusSnapshot, 'url' | 'adminUrl'>,
): StatusSnapshot => ({
  ...urls,
  reasons: gateway.readiness(),
  gauges: gateway.gauges(),
  vitals: vitals(),
  lastMinute: activity.lastMinute(),
  changes: activity.changes(),
})
