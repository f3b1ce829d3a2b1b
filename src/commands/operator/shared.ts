/** What is about a store in PostgreSQL and its gateways (contract §9). */
import { defaultReason } from '#gateway/operator/acts'
import { seenFile, storeFolder } from '#host/config-file'
import type { SqlDatabase } from '#ports'
import { instant } from '#protocol/candidate'
import { StorageError, UsageError } from '#protocol/errors'
import { joinPath } from '#storage/durable'
import { endLease, leaseOf } from '#storage/postgres/leadership'
import { endAndGroup, lossSince } from '#storage/postgres/log-state'
import { isGone, membersOf, type SeenMember } from '#storage/postgres/members'
import {
  openStoreTables,
  requireTables,
  schemaVersion,
  upgradeTables,
} from '#storage/postgres/schema'
import { readSeen, type SeenEnd } from '#storage/postgres/seen'
import { openQueries, type Queries } from '#storage/postgres/session'
import type { Context } from '../terminal/context.js'
import { counted, durationText, fold, type Screen } from '../terminal/render.js'
import { dryRunFlag, showDryRun } from '../terminal/verb.js'
import { neededSaidFlags, type Said, type Site, saidFlags, saidOf, siteVerb } from './access.js'

export async function sharedDatabase({ edges, loaded: { place, path } }: Site) {
  if (place.kind === 'database') return edges.database(place.url)
  throw new UsageError(
    'store_not_shared',
    `the store of ${path} is the folder ${storeFolder({ place })}, which one gateway serves`,
    'this command is for a store in PostgreSQL: give --config with its gateway.json, or set PROPOSER_STORE_URL_FILE',
  )
}

async function withQueries<T>(database: SqlDatabase, work: (queries: Queries) => Promise<T>) {
  const queries = openQueries(database)
  try {
    return await work(queries)
  } finally {
    queries.close()
  }
}

async function withStore<T>(site: Site, work: (queries: Queries) => Promise<T>) {
  const database = await sharedDatabase(site)
  await requireTables(database)
  return withQueries(database, work)
}

export const storeInitVerb = siteVerb({
  name: 'init',
  about: 'create the tables of a store in an empty PostgreSQL database',
  help: 'A database with tables of another program is refused. `proposer serve` creates them too, if its user may.',
  examples: ['operator store init --config gateway.json'],
  async run(site) {
    const made = (await openStoreTables(await sharedDatabase(site))) === 'empty'
    site.output.show('operator-store-init', { store: site.store, made, form: schemaVersion }, [
      made
        ? `${site.store} now holds an empty store, schema version ${schemaVersion}`
        : `${site.store} already holds a store: nothing changed`,
    ])
  },
})

export const upgradeVerb = siteVerb({
  name: 'upgrade',
  about:
    'upgrade the tables of a PostgreSQL store to this version; gateways of the previous version keep running',
  help: 'Rerun it once every gateway is of this version: only then is the new schema written.',
  examples: ['operator store upgrade'],
  async run(site) {
    const done = await upgradeTables(await sharedDatabase(site))
    const { migrations, writeVersion: write_version, olderGateways: older_gateways } = done
    const waits = `; ${counted(older_gateways, 'gateway')} of an older version still run: rerun this once they have stopped`
    site.output.show(
      'operator-store-upgrade',
      { store: site.store, form: schemaVersion, migrations, write_version, older_gateways },
      [
        `${counted(migrations, 'change')} made: the tables have schema version ${schemaVersion}, gateways write version ${write_version}${older_gateways === 0 ? '' : waits}`,
      ],
    )
  },
})

/** So the loss of a database stands in its log; what it is counted in are records. */
const lossRecord = `
WITH ended AS (UPDATE proposer.head SET n = n + 1 WHERE id = 1 RETURNING n)
INSERT INTO proposer.record (n, grp, k, t, d)
SELECT n, $1::uuid, 'store.repaired', $2::bigint,
       json_strip_nulls(json_build_object('file', $3::text, 'offset', n - 1, 'lostBytes', 0,
         'saved', '[]'::json, 'reason', $4::text, 'by', $5::text))
  FROM ended`

export const acceptLossVerb = siteVerb({
  name: 'accept-loss',
  about:
    'let the gateways of this machine serve a PostgreSQL store that lacks records they have seen',
  flags: { ...neededSaidFlags('reason, stored with it'), ...dryRunFlag },
  help: 'First look for the database that has them: a standby, the former primary, a newer backup. What was acknowledged and is lost comes back with `proposer replay` of its proposers alone. Each machine that says 74 store_rolled_back needs this once.',
  examples: ['operator store accept-loss --reason "the former primary is destroyed"'],
  async run(site, flags) {
    const { store, loaded } = site
    const said = saidOf(site, flags)
    const database = await sharedDatabase(site)
    const file = seenFile(loaded)
    const seen = await readSeen(site, file).catch((error: unknown): 'unreadable' => {
      if (error instanceof StorageError && error.code === 'store_damaged') return 'unreadable'
      throw error
    })
    const loss = await lossIn(database, seen)
    const seen_record = typeof seen === 'object' ? seen.n : null
    const document = { store, loss: loss ?? null, seen_record, ...said }
    if (loss !== undefined && site.isDryRun)
      return showDryRun(site, `accept that ${loss}`, { act: 'store/accept-loss', ...document })
    if (loss !== undefined) {
      await writeLoss(site, database, said)
      await site.files.remove(joinPath(file.folder, file.name))
      await site.files.syncDir(file.folder)
    }
    site.output.show('operator-store-loss', { ...document, accepted: loss !== undefined }, [
      loss === undefined
        ? `${store} has ${seen === undefined ? 'not been seen by this machine yet' : 'all that this machine has seen'}: nothing changed`
        : `accepted: ${loss}. Gateways of this machine serve ${store} from now on`,
    ])
  },
})

async function lossIn(database: SqlDatabase, seen: SeenEnd | 'unreadable' | undefined) {
  // A database that cannot be asked is told as that, also where there is nothing to compare.
  const isStore = await hasTables(database)
  if (seen === undefined) return undefined
  if (seen === 'unreadable') return 'what this machine has seen cannot be read any more'
  if (!isStore) return 'the database holds no store any more'
  return withQueries(database, async ({ ask }) => {
    const [row] = await ask(endAndGroup, [seen.n])
    return lossSince(seen, Number(row?.n), row?.grp)
  })
}

async function writeLoss({ clock, random }: Context, database: SqlDatabase, { reason, by }: Said) {
  if (!(await hasTables(database))) return
  const values = [random.uuid(), Math.trunc(clock.nowMs()), database.name, reason, by ?? null]
  await withQueries(database, ({ ask }) => ask(lossRecord, values))
}

async function hasTables(database: SqlDatabase) {
  try {
    await requireTables(database)
    return true
  } catch (error) {
    if (error instanceof StorageError && error.code === 'store_missing') return false
    throw error
  }
}

export const gatewaysVerb = siteVerb({
  name: 'gateways',
  about: 'list the gateways of a PostgreSQL store: which run, which leads, how far each has read',
  examples: ['operator gateways --json'],
  async run(site) {
    const { lease, members } = await withStore(site, async (queries) => ({
      members: await membersOf(queries),
      lease: await leaseOf(queries),
    }))
    const { n: records, leader: id, epoch, endsInMs } = lease
    const leader =
      id === undefined ? null : { id, epoch, lease_ends_in_seconds: Math.ceil(endsInMs / 1_000) }
    const leading = leader === null ? 'no leader' : `epoch ${epoch}`
    const gone = members.filter(isGone).length
    const there = counted(members.length - gone, 'gateway')
    site.output.show(
      'operator-gateways',
      { store: site.store, records, leader, gateways: members.map(memberJson) },
      [
        `${there}${gone === 0 ? '' : `, ${gone} gone`}, ${counted(records, 'record')}, ${leading}`,
        ...members.map(memberText),
      ],
    )
  },
})

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
  gone: isGone(member),
})

const memberText =
  (one: SeenMember) =>
  ({ columns }: Screen) => {
    const age = durationText(one.seenMsAgo / 1_000, 1)
    const read = one.lag === 0 ? 'has read everything' : `lags ${counted(one.lag, 'record')}`
    const lines = [
      `version ${one.version} on ${one.host}${one.adminUrl === undefined ? '' : `, admin ${one.adminUrl}`}`,
      one.executor === undefined ? 'no executor key' : `executor ${one.executor}`,
      isGone(one) ? `gone: no sign of life for ${age}` : `${read}; seen ${age} ago`,
    ]
    const folded = lines.map((line) => `  ${fold(line, columns - 2, '    ')}`)
    return [`${one.id}${one.isLeader ? '  leads' : ''}`, ...folded].join('\n')
  }

export const resignVerb = siteVerb({
  name: 'resign',
  about: 'end the lease of the leading gateway, so that another one executes',
  flags: { ...saidFlags, ...dryRunFlag },
  examples: ['operator leader resign --reason "node upgrade"'],
  async run(site, flags) {
    const { store, clock, random } = site
    const { reason = defaultReason, by } = saidOf(site, flags)
    const { led, isEnded, others } = await withStore(site, async (queries) => {
      const { leader, epoch } = await leaseOf(queries)
      if (leader === undefined) return { led: null, isEnded: false, others: 0 }
      const members = await membersOf(queries)
      const { host = null, adminUrl: admin_url = null } =
        members.find(({ id }) => id === leader) ?? {}
      const end = { leader, reason, by, clock, random }
      return {
        led: { id: leader, epoch, host, admin_url },
        isEnded: !site.isDryRun && (await endLease(queries, end)),
        others: members.filter((one) => one.id !== leader && !isGone(one)).length,
      }
    })
    if (site.isDryRun && led !== null)
      return showDryRun(site, `end the lease of gateway ${led.id} on ${store}`, {
        act: 'leader/resign',
        store,
        gateway: led.id,
      })
    const through = isEnded ? 'store' : null
    const who = led && `gateway ${led.id}${led.host === null ? '' : ` on ${led.host}`}`
    const next =
      others === 0
        ? 'no other gateway is running, so it may lead again in a few seconds'
        : 'another one takes over'
    site.output.show(
      'operator-leader',
      { store, led, through, reason, ...(by && { by }), others },
      [
        led === null
          ? 'no gateway leads: there is no lease to end'
          : !isEnded
            ? `${who} led with epoch ${led.epoch}, and has already lost the lease`
            : `${who} led with epoch ${led.epoch}; its lease has ended: ${next}`,
      ],
    )
  },
})
