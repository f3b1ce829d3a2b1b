import type { EventEmitter } from 'node:events'
import { readFileSync } from 'node:fs'
import { isIPv4 } from 'node:net'
import pg from 'pg'
import { type SqlDatabase, SqlError, type SqlRow, type SqlSession } from '#ports'
import { UsageError } from '#protocol/errors'

const answerMs = 5_000
const connectMs = 5_000
const keepAliveMs = 5_000

type PostgresUrl = ReturnType<typeof parsePostgresUrl>

const urlForm =
  /^postgres(?:ql)?:\/\/(?:(?<user>[^:@/?]*)(?::(?<password>[^@/?]*))?@)?(?<hosts>[^@/?]+)\/(?<database>[^/?]+)(?:\?(?<query>.*))?$/
const hostForm = /^(?<host>\[[0-9a-fA-F:.]+\]|[^:,[\]]+)(?::(?<port>\d{1,5}))?$/
const known = ['sslmode', 'sslrootcert']
const sslModes = ['disable', 'require', 'verify-full']

/** `postgres://user@host[:port][,host…]/database?sslmode=…`. Errors never repeat the URL (R5). */
function parsePostgresUrl(url: string) {
  const parts = urlForm.exec(url)?.groups
  const hosts = parts?.hosts?.split(',').map((text) => hostForm.exec(text)?.groups)
  if (!parts || !hosts?.every((one) => one !== undefined))
    throw badUrl('it does not have the form postgres://user@host:5432,host:5432/database')
  const parameters = new Map(new URLSearchParams(parts.query ?? ''))
  for (const name of parameters.keys())
    if (!known.includes(name))
      throw badUrl(`"${name}" is not a supported parameter; known are ${known.join(' and ')}`)
  const mode = parameters.get('sslmode')
  if (mode !== undefined && !sslModes.includes(mode))
    throw badUrl(`sslmode is one of ${sslModes.join(', ')}`)
  const decoded = (text: string | undefined) => {
    try {
      return text === undefined || text === '' ? undefined : decodeURIComponent(text)
    } catch {
      throw badUrl('a % of it is not followed by two hexadecimal digits')
    }
  }
  return {
    user: decoded(parts.user),
    password: decoded(parts.password),
    hosts: hosts.map(({ host = '', port = '5432' }) => ({
      host: host.replace(/^\[|\]$/g, ''),
      port: Number(port),
    })),
    database: decoded(parts.database) ?? '',
    parameters,
  }
}

const badUrl = (what: string) =>
  new UsageError(
    'invalid_store_url',
    `the URL of the store cannot be read: ${what}`,
    'correct "store" of gateway.json, or the file that holds the URL',
  )

export function postgresDatabase(url: string): SqlDatabase & { close(): Promise<void> } {
  const parsed = parsePostgresUrl(url)
  const sessions = new Set<SqlSession>()
  const { hosts, database } = parsed
  return {
    name: `${hosts.map(({ host, port }) => `${host}:${port}`).join(',')}/${database}`,
    async connect() {
      let failure = new SqlError('08006', 'no host accepts writes', false)
      for (const { host, port } of hosts) {
        try {
          const session = await connectTo(parsed, host, port)
          for (const one of sessions) if (one.isLost) sessions.delete(one)
          sessions.add(session)
          return session
        } catch (error) {
          if (!(error instanceof SqlError)) throw error
          failure = error
        }
      }
      throw failure
    },
    async close() {
      for (const session of sessions) session.destroy()
    },
  }
}

/** Without a word about TLS a database elsewhere has to prove who it is. */
function tlsOf({ parameters }: PostgresUrl, host: string) {
  const isHere = host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'))
  const mode = parameters.get('sslmode') ?? (isHere ? 'disable' : 'verify-full')
  if (mode === 'disable') return false
  const root = parameters.get('sslrootcert')
  return {
    rejectUnauthorized: mode === 'verify-full',
    ...(root === undefined ? {} : { ca: certificateIn(root) }),
  }
}

/** It may be replaced. */
function certificateIn(path: string) {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw sqlErrorOf(error)
  }
}

async function connectTo(parsed: PostgresUrl, host: string, port: number) {
  const ssl = tlsOf(parsed, host)
  const isProven = ssl !== false && ssl.rejectUnauthorized
  let isScram = false
  const client = new pg.Client({
    host,
    port,
    user: parsed.user,
    password: () => {
      if (parsed.password === undefined)
        throw new SqlError(
          '28000',
          'it asks for a password, and the URL of the store has none',
          false,
        )
      if (isProven || isScram) return parsed.password
      throw new SqlError('28000', unprovenServer, false)
    },
    database: parsed.database,
    ssl,
    application_name: 'proposer',
    pipeline: true,
    connectionTimeoutMillis: connectMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  })
  connectionOf(client).once('authenticationSASL', () => {
    isScram = true
  })
  const session = sessionOf(client)
  try {
    await client.connect()
    const [state] = await session.query(
      "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only",
    )
    if (state?.read_only === true) throw new SqlError('25006', `${host}:${port} is read-only`, true)
    return session
  } catch (error) {
    session.destroy()
    throw sqlErrorOf(error)
  }
}

function sessionOf(client: pg.Client): SqlSession {
  let isLost = false
  let notices: { code: string; message: string }[] = []
  const destroy = () => {
    isLost = true
    connectionOf(client).stream.destroy()
  }
  client.on('error', destroy)
  client.on('end', () => {
    isLost = true
  })
  client.on('notice', ({ code = '', message = '' }) => {
    notices.push({ code, message })
  })
  const run = async (config: pg.QueryConfig, isPatient = false) => {
    const timer = isPatient ? undefined : setTimeout(destroy, answerMs)
    notices = []
    try {
      return await client.query(config)
    } catch (error) {
      const failure = sqlErrorOf(error)
      // A server that has become a standby keeps its connections.
      if (!failure.isAnswered || failure.code === '25006') destroy()
      throw failure
    } finally {
      clearTimeout(timer)
    }
  }
  return {
    query: async (text, values) => {
      const result = await run({ text, values: values ? [...values] : [] })
      return result.rows as SqlRow[]
    },
    await: async (text) => {
      const result = await run({ text, values: [] }, true)
      return result.rows as SqlRow[]
    },
    script: async (text) => {
      const results: unknown = await run({ text })
      const last = Array.isArray(results) ? results.at(-1) : results
      return (last as pg.QueryResult).rows as SqlRow[]
    },
    notices() {
      const seen = notices
      notices = []
      return seen
    },
    get isLost() {
      return isLost
    },
    destroy,
  }
}

/** Whoever has taken its port would be told the password. */
const unprovenServer =
  'it asks for the password in a form that tells it, and does not prove who it is: use scram-sha-256, or sslmode=verify-full'

/** pg's own `end` waits for answers that may never come. */
const connectionOf = (client: pg.Client) =>
  (client as unknown as { connection: EventEmitter & { stream: { destroy(): void } } }).connection

function sqlErrorOf(error: unknown) {
  if (error instanceof SqlError) return error
  const { code, severity } = error as { code?: unknown; severity?: unknown }
  const message = error instanceof Error && error.message !== '' ? error.message : String(code)
  const isSql = typeof code === 'string' && typeof severity === 'string'
  const isAnswered =
    isSql && severity !== 'FATAL' && severity !== 'PANIC' && !endsSession.test(code)
  return new SqlError(typeof code === 'string' ? code : '08006', message, isAnswered)
}

/** Severity comes in the server's own language, the code does not. */
const endsSession = /^(?:08|28|3D000|53300|57P0|25P0[34]|XX)/
