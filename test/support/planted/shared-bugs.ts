// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are source
/**
 * Bugs of a store that several gateways share, in the form of `bugs.ts`. The first six are where
 * others broke, the rest are of this program's own history.
 */
import type { PlantedBug } from './plant.js'

const storage = 'src/core/storage/postgres'
const io = 'src/core/io'
const connections = 'test/e2e/shared-failures.test.ts'
const servers = 'test/e2e/shared-failures-servers.test.ts'
const leader = 'test/e2e/shared-failures-leader.test.ts'

export const plantedSharedBugs: readonly PlantedBug[] = [
  {
    name: 'plain SELECT as fence',
    room: storage,
    edits: [
      {
        find: 'const [row] = await session.script($text)',
        replace: "const [row] = await session.script(($text).replace('FOR UPDATE OF h', ''))",
      },
    ],
    caughtBy: { file: connections, title: 'R2: one payload through four gateways' },
  },
  {
    name: "tail read before the lock's wait",
    room: storage,
    edits: [
      {
        find: 'const [head, rows] = await together([lockHead(log, session), rowsAfter(session, log.applied)])',
        replace: `const rows = await rowsAfter(session, log.applied)
    const head = await lockHead(log, session)`,
      },
      { find: 'head.n - log.applied === rows.length', replace: 'true' },
    ],
    caughtBy: { file: connections, title: 'R2: one payload through four gateways' },
  },
  {
    name: 'epoch in an unlogged table',
    room: storage,
    edits: [
      {
        find: 'return await session.script($script)',
        replace: `return await session.script(
      ($script).replace('CREATE TABLE proposer.head', 'CREATE UNLOGGED TABLE proposer.head'),
    )`,
      },
    ],
    caughtBy: { file: servers, title: 'R1: killed under load' },
  },
  {
    name: 'ack despite 01000',
    room: storage,
    edits: [{ find: 'if (doubt) throw breakOff($$told)', replace: '' }],
    caughtBy: { file: servers, title: 'R10: a COMMIT whose wait was cancelled' },
  },
  {
    name: 'read from a replica',
    room: io,
    edits: [{ find: 'if (state?.read_only === true) throw $error', replace: '' }],
    caughtBy: { file: servers, title: 'a standby that is named first' },
  },
  {
    name: 'advisory lock',
    room: storage,
    edits: [
      {
        find: 'const [seen] = await log.ask($$asked)',
        replace: "const [seen] = await log.ask('SELECT pg_try_advisory_lock(7) AS is_free')",
      },
      {
        find: 'epoch = head.isFree || head.holder === id ? head.epoch + 1 : undefined',
        replace: 'epoch = head.epoch + 1',
      },
    ],
    caughtBy: { file: leader, title: 'the clock of the database is put back an hour' },
  },
  {
    name: 'a new session waits for no standby',
    room: storage,
    edits: [
      {
        find: `await session.await("SELECT pg_logical_emit_message(true, 'proposer', ''::text)")`,
        replace: '',
      },
    ],
    caughtBy: { file: servers, title: 'R1: what a killed server shows again' },
  },
  {
    name: 'a lost COMMIT is appended again',
    room: storage,
    edits: [{ find: 'if (await settle($$told)) return', replace: '' }],
    caughtBy: { file: connections, title: 'R1: each round trip of an admission is cut' },
  },
  {
    name: 'a gateway without an executor keeps the lease',
    room: storage,
    edits: [{ find: 'if (!standsBack) return false', replace: 'return false' }],
    caughtBy: { file: leader, title: 'a gateway without an executor leads only until' },
  },
  {
    name: 'a reader does not know its log again',
    room: storage,
    edits: [{ find: 'requireSameLog(log, n, head?.grp)', replace: 'undefined' }],
    caughtBy: { file: servers, title: 'R10: a standby that had not got everything' },
  },
  {
    name: 'append under any epoch',
    room: storage,
    edits: [
      {
        find: 'each.epoch !== undefined && each.epoch !== epoch',
        replace: 'false',
      },
    ],
    caughtBy: { file: leader, title: 'the clock of the database is put forward an hour' },
  },
  {
    name: 'send without a look at the lease',
    room: storage,
    edits: [{ find: 'if (!isTrusted(state)) throw $error', replace: '' }],
    caughtBy: { file: leader, title: 'stands still at "prepared" past its term' },
  },
  {
    name: 'refused, and written by the next try',
    room: storage,
    edits: [{ find: 'if (refused.has(each)) return []', replace: '' }],
    caughtBy: { file: connections, title: 'an append that was told no' },
  },
  {
    name: 'each gateway its own rate limit',
    room: storage,
    edits: [{ find: 'before(client) + sum.items', replace: 'sum.items' }],
    caughtBy: { file: connections, title: 'contract §9: they are exact over four gateways' },
  },
  {
    name: 'a window of the future counts on',
    room: storage,
    edits: [
      {
        find: 'const isOver = $text',
        replace: "const isOver = `b.window_start + $3 * interval '1 ms' <= EXCLUDED.window_start`",
      },
    ],
    caughtBy: { file: connections, title: 'a window begun before the clock' },
  },
  {
    name: 'a session that became read-only is kept',
    room: io,
    edits: [
      { find: "!failure.isAnswered || failure.code === '25006'", replace: '!failure.isAnswered' },
    ],
    caughtBy: { file: servers, title: '25006: a connection that outlives a failover' },
  },
]
