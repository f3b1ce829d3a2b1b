// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are source
/**
 * Bugs of a store that several gateways share, in the form of `bugs.ts`. The first six are where
 * others broke, the rest are of this program's own history.
 */
import { bugsOf } from './plant.js'

const storage = 'src/core/storage/postgres'
const io = 'src/core/io'
const connections = 'e2e/shared-failures'
const servers = 'e2e/shared-failures-servers'
const leader = 'e2e/shared-failures-leader'

export const plantedSharedBugs = bugsOf({
  'plain SELECT as fence': [
    storage,
    connections,
    'R2: one payload through four gateways',
    {
      'const [row] = await session.script($text)':
        "const [row] = await session.script(($text).replace('FOR UPDATE OF h', ''))",
    },
  ],
  "tail read before the lock's wait": [
    storage,
    connections,
    'R2: one payload through four gateways',
    {
      'const [head, rows] = await together([lockHead(log, session), rowsAfter(session, log.applied)])': `const rows = await rowsAfter(session, log.applied)
    const head = await lockHead(log, session)`,
      'head.n - log.applied === rows.length': 'true',
    },
  ],
  'epoch in an unlogged table': [
    storage,
    servers,
    'R1: killed under load',
    {
      'return await session.script($script)': `return await session.script(
      ($script).replace('CREATE TABLE proposer.head', 'CREATE UNLOGGED TABLE proposer.head'),
    )`,
    },
  ],
  'ack despite 01000': [
    storage,
    servers,
    'R10: a COMMIT whose wait was cancelled',
    { 'if (doubt) throw failLog($$told)': '' },
  ],
  'read from a replica': [
    io,
    servers,
    'a standby that is named first',
    { 'if (state?.read_only === true) throw $error': '' },
  ],
  'advisory lock': [
    storage,
    leader,
    'the clock of the database is put back an hour',
    {
      'const [seen] = await log.ask($$asked)':
        "const [seen] = await log.ask('SELECT pg_try_advisory_lock(7) AS is_free')",
      'epoch = head.isFree || head.holder === id ? head.epoch + 1 : undefined':
        'epoch = head.epoch + 1',
    },
  ],
  'a new session waits for no standby': [
    storage,
    servers,
    'R1: what a killed server shows again',
    { "await session.await(\"SELECT pg_logical_emit_message(true, 'proposer', ''::text)\")": '' },
  ],
  'a lost COMMIT is appended again': [
    storage,
    connections,
    'R1: each round trip of an admission is cut',
    { 'if (await settle($$told)) return': '' },
  ],
  'a gateway without an executor keeps the lease': [
    storage,
    leader,
    'a gateway without an executor leads only until',
    { 'if (!standsBack) return false': 'return false' },
  ],
  'a reader does not know its log again': [
    storage,
    servers,
    'R10: a standby that had not got everything',
    { 'requireSameLog(log, end, first?.grp)': 'undefined' },
  ],
  'append under any epoch': [
    storage,
    leader,
    'the clock of the database is put forward an hour',
    { 'each.epoch !== undefined && each.epoch !== epoch': 'false' },
  ],
  'send without a look at the lease': [
    storage,
    leader,
    'stands still at "prepared" past its term',
    { 'if (!isTrusted(state)) throw $error': '' },
  ],
  'refused, and written by the next try': [
    'src/core/storage',
    connections,
    'a later try writes none',
    { 'if (each.isRefused) return []': '' },
  ],
  'each gateway its own rate limit': [
    storage,
    connections,
    'contract §9: they are exact over four gateways',
    { 'before(client) + sum.items': 'sum.items' },
  ],
  'a window of the future counts on': [
    storage,
    connections,
    'a window begun before the clock',
    {
      'const isOver = $text':
        "const isOver = `b.window_start + $3 * interval '1 ms' <= EXCLUDED.window_start`",
    },
  ],
  'a session that became read-only is kept': [
    io,
    servers,
    '25006: a connection that outlives a failover',
    { "!failure.isAnswered || failure.code === '25006'": '!failure.isAnswered' },
  ],
})
