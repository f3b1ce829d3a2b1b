/** What only a gateway on a store in a database measures. */
import type { Counter, Histogram } from 'prom-client'
import type { ClusterVitals, GatewayStatus, Observation } from '../../protocol/vitals.js'

export interface SharedMeterMakers {
  histogram(name: string, help: string, buckets: number[]): Histogram
  counter(name: string, help: string): Counter
}

type SharedKind = 'appended' | 'charged' | 'retried' | 'fenced'
type Handlers = {
  readonly [Kind in SharedKind]: (seen: Extract<Observation, { kind: Kind }>) => void
}

/** A round trip takes a fifth of a millisecond on one machine, and a standby far away 100. */
const statementBucketsSeconds = [
  0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
]

export function sharedMeters({ histogram, counter }: SharedMeterMakers): Handlers {
  const appends = histogram(
    'proposer_store_append_seconds',
    'Time the database took to commit a group of records, including retries',
    statementBucketsSeconds,
  )
  const charges = histogram(
    'proposer_store_charge_seconds',
    'Time the database took to charge the rate limit',
    statementBucketsSeconds,
  )
  const retries = counter(
    'proposer_store_retries_total',
    'Transactions of the store that were retried',
  )
  const fences = counter(
    'proposer_store_fences_total',
    'Writes refused because another gateway leads',
  )
  return {
    appended: ({ seconds }) => appends.observe(seconds),
    charged: ({ seconds }) => charges.observe(seconds),
    retried: () => retries.inc(),
    fenced: () => fences.inc(),
  }
}

export const noSharedMeters: Handlers = {
  appended: () => undefined,
  charged: () => undefined,
  retried: () => undefined,
  fenced: () => undefined,
}

const cluster =
  (value: (cluster: ClusterVitals) => number) =>
  ({ vitals }: GatewayStatus) =>
    vitals?.cluster && value(vitals.cluster)

/** Figures of the gateways on one store, as this one last heard. */
export const sharedGauges = [
  [
    'proposer_store_leader',
    '1 while this gateway leads; over all gateways of a store the sum is 1',
    cluster(({ leads }) => Number(leads)),
  ],
  [
    'proposer_store_epoch',
    'The newest epoch: it grows with each leader',
    cluster(({ epoch }) => epoch),
  ],
  [
    'proposer_store_lag_records',
    'Records of the store that this gateway has not read yet',
    cluster(({ lagRecords }) => lagRecords),
  ],
  [
    'proposer_store_gateways',
    'Gateways heard of within 30 seconds',
    cluster(({ gateways }) => gateways),
  ],
] as const
