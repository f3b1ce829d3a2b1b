/** One executor among several gateways (contract §9): leases, fences, and what a late one may do. */
import { setTimeout as sleep } from 'node:timers/promises'
import { describeWith } from '#support/components'
import {
  executedOn,
  type LeaderWorld,
  type Member,
  openLeaderWorld,
  otherKey,
} from '#support/postgres/leaders'
import { until } from '#support/postgres/load'
import { openPostgresProxy, type PostgresProxy } from '#support/postgres/proxy'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { commitAnswer, nth, statementLike } from '#support/postgres/wire'

let server: PostgresServer
let world: LeaderWorld
let proxy: PostgresProxy | undefined

const isLeading = ({ epoch }: Member) => epoch !== undefined
const statusIn = ({ store: { ledger } }: Member, id: string) => ledger.byId(id)?.status

const endLease = () =>
  world.sql("UPDATE proposer.head SET lease_until = clock_timestamp() - interval '1 s'")

async function settled(member: Member, id: string): Promise<void> {
  await until(() => statusIn(member, id) === 'executed' && member.store.ledger.slots().length === 0)
}

/** A leader that stands still at `name`. */
async function openStopping(name: string) {
  world = await openLeaderWorld(server)
  const stop = { isThere: false, release: () => {} }
  const first = await world.open({
    failpoint: async (reached) => {
      if (reached !== name || stop.isThere) return
      stop.isThere = true
      first.freeze()
      await new Promise<void>((resolve) => {
        stop.release = resolve
      })
    },
  })
  await until(() => isLeading(first))
  return { first, stop }
}

describeWith([18], 'one executor among several gateways', () => {
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.close())
  afterEach(async () => {
    await world.close()
    await proxy?.close()
    proxy = undefined
  })

  for (const name of ['selected', 'reserved', 'prepared', 'sent', 'confirmed'])
    test(`R3, R15: a leader that stands still at "${name}" past its term does no harm`, async () => {
      const { first, stop } = await openStopping(name)
      const second = await world.open()
      const { id } = await second.submit(await world.question())
      await until(() => stop.isThere)
      await endLease()
      await settled(second, id)
      expect(isLeading(second)).toBe(true)
      const [before] = await world.sql('SELECT n, epoch FROM proposer.head')
      const sentBefore = world.sends.length
      first.thaw(20_000)
      stop.release()
      await until(() => !isLeading(first) && statusIn(first, id) === 'executed')
      await sleep(300)
      const written = await world.sql(
        `SELECT k FROM proposer.record WHERE n > ${before?.n} AND k NOT IN ('chain.finalized')`,
      )
      expect(written).toEqual([])
      expect(world.sends.slice(sentBefore)).toEqual([])
      expect(world.unknownSends).toEqual([])
      expect(executedOn(world.chain)).toBe(1)
      expect(await world.sql('SELECT epoch FROM proposer.head')).toEqual([{ epoch: before?.epoch }])
    })

  test('R1, R3: each COMMIT of the leader loses its answer, and it executes once', async () => {
    world = await openLeaderWorld(server)
    proxy = await openPostgresProxy(world.url)
    const leader = await world.open({ url: proxy.url })
    await until(() => isLeading(leader))
    for (let n = 1; n <= 6; n++) {
      proxy.cut(nth(n, commitAnswer))
      const { id } = await leader.submit(await world.question())
      await settled(leader, id)
      expect(executedOn(world.chain)).toBe(n)
      proxy.clear()
    }
    expect(world.unknownSends).toEqual([])
  })

  test('the answer to its election is lost: it leads all the same, under the epoch in force', async () => {
    world = await openLeaderWorld(server)
    proxy = await openPostgresProxy(world.url)
    const elections = /UPDATE proposer.head SET epoch/
    const seen = proxy.hold(statementLike(elections))
    const leader = await world.open({ url: proxy.url })
    await seen.met
    const lost = proxy.cut(commitAnswer)
    seen.release()
    await lost.met
    await until(() => isLeading(leader))
    const [head] = await world.sql('SELECT epoch, holder FROM proposer.head')
    expect(leader.epoch).toBe(Number(head?.epoch))
    expect(head?.holder).toBe(leader.store.cluster?.id)
    const { id } = await leader.submit(await world.question())
    await settled(leader, id)
    expect(executedOn(world.chain)).toBe(1)
  })

  test('a gateway without an executor leads only until one with an executor is there', async () => {
    world = await openLeaderWorld(server)
    const without = await world.open({ signer: null })
    await until(() => isLeading(without))
    const { id } = await without.submit(await world.question())
    const second = await world.open()
    await expect.poll(() => isLeading(second), { timeout: 15_000 }).toBe(true)
    expect(isLeading(without)).toBe(false)
    await settled(second, id)
    expect(executedOn(world.chain)).toBe(1)
  }, 30_000)

  test('it is stopped: another leads', async () => {
    world = await openLeaderWorld(server)
    const first = await world.open()
    await until(() => isLeading(first))
    const second = await world.open()
    await first.stop()
    await until(() => isLeading(second))
    const { id } = await second.submit(await world.question())
    await settled(second, id)
    expect(executedOn(world.chain)).toBe(1)
  })

  test('R3: a gateway with another executor key does not lead while slots are open, and says so', async () => {
    const { first, stop } = await openStopping('reserved')
    const { id } = await first.submit(await world.question())
    await until(() => stop.isThere)
    const other = await world.open({ signer: otherKey })
    await endLease()
    await until(() => other.faults().length > 0)
    expect(other.faults()).toEqual([
      expect.stringMatching(/^transactions of the executor 0x.* are open, but this gateway has/),
    ])
    await sleep(1_500)
    expect(isLeading(other)).toBe(false)
    const third = await world.open()
    await settled(third, id)
    expect(isLeading(third)).toBe(true)
    expect(executedOn(world.chain)).toBe(1)
    await until(() => other.faults().length === 0)
    stop.release()
  }, 30_000)

  test('R10: a failover lost its last record: the next charge tells, before a look at the log does', async () => {
    world = await openLeaderWorld(server)
    const gateway = await world.open({ signer: null })
    const { id } = await gateway.submit(await world.question())
    gateway.freeze()
    await sleep(500)
    expect(statusIn(gateway, id)).toBeDefined()
    await world.sql('DELETE FROM proposer.record WHERE n = (SELECT n FROM proposer.head)')
    await world.sql('UPDATE proposer.head SET n = n - 1')
    await expect(gateway.store.budget?.charge('192.0.2.1', 1, 0)).rejects.toMatchObject({
      code: 'store_rolled_back',
    })
  })

  test('the clock of the database is put back an hour: a dead leader is followed within its term', async () => {
    world = await openLeaderWorld(server)
    const first = await world.open()
    await until(() => isLeading(first))
    first.freeze()
    await world.sql("UPDATE proposer.head SET lease_until = lease_until + interval '1 hour'")
    const second = await world.open()
    await until(() => isLeading(second))
    const { id } = await second.submit(await world.question())
    await settled(second, id)
    expect(executedOn(world.chain)).toBe(1)
  })

  test('the clock of the database is put forward an hour: the one that led is fenced off', async () => {
    world = await openLeaderWorld(server)
    const [first, second] = [await world.open(), await world.open()]
    await until(() => isLeading(first) || isLeading(second))
    const [leader, follower] = isLeading(first) ? [first, second] : [second, first]
    const old = leader.epoch
    leader.freeze()
    await world.sql("UPDATE proposer.head SET lease_until = lease_until - interval '1 hour'")
    await until(() => isLeading(follower))
    expect(follower.epoch).toBe((old ?? 0) + 1)
    const change = { kind: 'admission.set', enabled: true, reason: 'late' } as const
    await expect(leader.store.ledger.commit([change], [], old)).rejects.toMatchObject({
      code: 'store_fenced',
    })
    leader.thaw(0)
    const { id } = await follower.submit(await world.question())
    await settled(follower, id)
    expect(executedOn(world.chain)).toBe(1)
    await until(() => !isLeading(leader))
  })
})
