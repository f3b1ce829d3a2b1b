/**
 * What the kernel says when a disk is full, a file may not grow, or a disk fails (R1, R10, R17;
 * T3), to `serve` from dist under admissions: what was accepted stays, what was refused is not
 * there, and after a failed sync nothing is written any more.
 */
import { spawnSync } from 'node:child_process'
import { cp, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { figures, firstSeed, scaled } from '#support/campaign'
import { compact } from '#support/faults/compact'
import { type House, type HouseStore, openHouse } from '#support/faults/house'
import { openSmallDisk } from '#support/faults/small-disk'
import { newTruth, type Truth } from '#support/faults/truth'
import { workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'
import { seeded } from '#support/sim-files'

const shop = workshop()
let house: House
beforeAll(async () => {
  house = await openHouse(shop, { questions: 100, wallets: 60 + scaled(30) })
})
afterAll(async () => {
  await shop.clean()
  await house?.close()
})

const notice = (text: string) => process.stderr.write(`notice: ${text}\n`)
const countOf = (truth: Truth, status: string) => truth.statuses.get(status) ?? 0
const full = '503 store_unavailable'

async function verified({ config }: HouseStore): Promise<void> {
  const ended = await shop.run(argvOf`operator --config ${config} store verify --json`)
  expect(ended.code, ended.stderr).toBe(0)
  expect(JSON.parse(ended.stdout)).toMatchObject({ torn_bytes: 0 })
}

async function untilRefused(
  truth: Truth,
  store: HouseStore,
  url: string,
  items: number,
): Promise<void> {
  const before = countOf(truth, full)
  while (countOf(truth, full) === before)
    await truth.submit(
      url,
      Array.from({ length: items }, () => store.next()),
    )
}
async function untilAccepted(truth: Truth, store: HouseStore, url: string): Promise<void> {
  const before = truth.accepted
  while (truth.accepted === before) {
    await truth.submit(url, [store.next()])
    await new Promise((resolve) => setTimeout(resolve, 250))
  }
}

describe.concurrent('a disk that is full', () => {
  test('ENOSPC: 503 store_unavailable, nothing half, and it opens again once there is room; killed while full too', async () => {
    const disk = await openSmallDisk(8 * 1024 * 1024)
    if (typeof disk === 'string') {
      notice(`no small disk can be mounted here (${disk}); EFBIG stands for ENOSPC`)
      return
    }
    try {
      // What is made on /proc cannot be synced up to its root, so it is made elsewhere.
      const made = await house.open('made')
      const maker = made.serve()
      await maker.line()
      expect((await maker.stop()).code).toBe(0)
      await cp(made.store, join(disk.folder, 'store'), { recursive: true })
      const store = await house.open('full', { store: join(disk.folder, 'store') })
      const truth = newTruth(shop, store)
      const random = seeded(firstSeed)
      let server = store.serve()
      let { url } = await server.line<ServeReady>()
      let rounds = 0
      for (; rounds < scaled(2); rounds += 1) {
        await truth.submit(url, [store.next()])
        await disk.fill(Math.floor(random() * 20_000))
        await untilRefused(truth, store, url, 1 + Math.floor(random() * 8))
        await disk.free()
        await untilAccepted(truth, store, url)
      }
      await disk.fill(3_000)
      await untilRefused(truth, store, url, 5)
      await server.stop('SIGKILL')
      const starved = store.serve()
      const ended = await Promise.race([
        starved.line<ServeReady>().then(
          () => undefined,
          () => starved.ended,
        ),
        starved.ended,
      ])
      if (ended !== undefined)
        expect(ended).toMatchObject({
          code: 74,
          stderr: expect.stringContaining('"store_unavailable"'),
        })
      else await starved.stop('SIGKILL')
      await disk.free()
      server = store.serve()
      url = (await server.line<ServeReady>()).url
      await truth.settle(url, 1_000, random)
      expect((await server.stop()).code).toBe(0)
      await truth.prove()
      await verified(store)
      expect(truth.unknown).toBe(0)
      figures('a full disk', {
        fills: rounds + 1,
        refused: countOf(truth, full),
        'accepted and found': truth.accepted,
        'lost or half': 0,
      })
    } finally {
      await disk.close()
    }
  })

  test('EFBIG: a file-size limit refuses with 503 store_unavailable, and the next segment takes what comes then', async () => {
    const store = await house.open('limited')
    const truth = newTruth(shop, store)
    // bash counts in 1024 bytes. The room that is looked for is a whole group, 1 MiB.
    const server = store.serve({ under: argvOf`bash -c ${'ulimit -f 1100; exec "$@"'} bash` })
    const { url } = await server.line<ServeReady>()
    await untilRefused(truth, store, url, 100)
    await untilAccepted(truth, store, url)
    const segments = (await readdir(store.store)).filter((name) => name.startsWith('log-'))
    expect(segments.length).toBeGreaterThan(1)
    expect((await server.stop()).code).toBe(0)
    const last = store.serve()
    await truth.settle((await last.line<ServeReady>()).url, 20, seeded(firstSeed))
    expect((await last.stop()).code).toBe(0)
    await truth.prove()
    await verified(store)
    figures('a file-size limit', {
      refused: countOf(truth, full),
      'accepted and found': truth.accepted,
      'lost or half': 0,
    })
  })
})

function straceFault(): string | undefined {
  const { status, stderr } = spawnSync(
    'sh',
    ['-c', 'exec strace -f -qq -e inject=fdatasync:error=EIO:when=1 true'],
    { encoding: 'utf8' },
  )
  return status === 0 ? undefined : stderr.trim()
}

describe.concurrent('a disk that fails', () => {
  const callers = 4
  const mostAccepted = 400
  async function submitToTheEnd(
    store: HouseStore,
    truth: Truth,
    url: string,
    ended: Promise<unknown>,
  ): Promise<number> {
    let toldMs = 0
    const caller = async () => {
      while (truth.accepted < mostAccepted) {
        if (!(await truth.submit(url, [store.next(), store.next()]))) return
        if (toldMs === 0 && truth.unknown > 0) toldMs = performance.now()
      }
      throw new Error('R10: a gateway whose disk has failed goes on')
    }
    await Promise.all(Array.from({ length: callers }, caller))
    await ended
    return toldMs === 0 ? 0 : performance.now() - toldMs
  }
  const allowed = new Set([
    '202',
    '500 internal_error',
    '500 store_failed',
    full,
    '503 server_busy',
  ])

  async function recovered(store: HouseStore, truth: Truth): Promise<void> {
    expect([...truth.statuses.keys()].filter((status) => !allowed.has(status))).toEqual([])
    const server = store.serve()
    await truth.settle((await server.line<ServeReady>()).url, 50, seeded(firstSeed))
    expect((await server.stop()).code).toBe(0)
    await truth.prove()
    await verified(store)
  }

  test('EIO of fdatasync: 500 to calls in flight, 503 to new ones, exit 74, and not one more write or sync to that file', async () => {
    const fault = straceFault()
    if (fault !== undefined) {
      notice(
        `fdatasync cannot be made to fail by strace here (${fault}); by a failpoint it can, below`,
      )
      return
    }
    let [worstEndMs, unknown] = [0, 0]
    for (let seed = firstSeed; seed < firstSeed + scaled(3); seed += 1) {
      const store = await house.open(`failing-${seed}`)
      const truth = newTruth(shop, store)
      const first = store.serve()
      await truth.submit((await first.line<ServeReady>()).url, [store.next()])
      await first.stop()
      const segment =
        (await readdir(store.store))
          .filter((name) => name.startsWith('log-'))
          .sort()
          .at(-1) ?? ''
      const trace = join(await shop.folder(), 'trace')
      // The opening syncs twice: what was there, and its own line.
      const nth = 3 + Math.floor(seeded(seed)() * 12)
      const calls = argvOf`-e trace=fdatasync,write,pwrite64,ftruncate -e
        inject=fdatasync:error=EIO:when=${nth}`
      const server = store.serve({
        under: argvOf`strace -f -I2 -qq -o ${trace} -P ${join(store.store, segment)} ${calls}`,
        // strace counts the calls of each thread.
        env: { UV_THREADPOOL_SIZE: '1' },
      })
      const { url } = await server.line<ServeReady>()
      worstEndMs = Math.max(worstEndMs, await submitToTheEnd(store, truth, url, server.ended))
      expect(await server.ended).toMatchObject({
        code: 74,
        stderr: expect.stringContaining('"store_failed"'),
      })
      const told = (await readFile(trace, 'utf8')).split('\n')
      const at = told.findIndex((line) => line.includes('(INJECTED)'))
      expect(at).toBeGreaterThan(0)
      expect(
        told.slice(at + 1).filter((line) => /\b(fdatasync|write|pwrite64|ftruncate)\(/.test(line)),
        'R10: never again',
      ).toEqual([])
      unknown += truth.unknown
      expect([...truth.statuses.keys()].filter((status) => status.startsWith('500'))).toHaveLength(
        1,
      )
      await recovered(store, truth)
    }
    figures('a failing sync', {
      syncs: scaled(3),
      'left unknown, then settled': unknown,
      'lost or tried again': 0,
      'slowest exit (ms)': Math.round(worstEndMs),
    })
  })

  test.each([
    ['datasync', '/log-'],
    ['write', '/log-'],
    ['sync', ''],
    ['close', '/log-'],
    ['rename', ''],
  ])(
    'R10: EIO of %s on …%s ends the process with 74; the next one has everything that was accepted',
    async (call, part) => {
      const store = await house.open(`failpoint-${call}`)
      const truth = newTruth(shop, store)
      const first = store.serve()
      await truth.submit((await first.line<ServeReady>()).url, [store.next()])
      await first.stop()
      const nth = { datasync: 4, write: 3, sync: 3, close: 3, rename: 2 }[call] ?? 1
      const server = store.serve({ env: { FAILPOINT: `${call}:${nth}:eio:${store.store}${part}` } })
      const ready = await server.line<ServeReady>().catch(() => undefined)
      if (ready !== undefined) {
        const work = submitToTheEnd(store, truth, ready.url, server.ended)
        await Promise.all([compact(store.store, ready.admin_url), work])
      }
      expect((await server.ended).code, server.stderr()).toBe(74)
      await recovered(store, truth)
    },
  )

  test('EMFILE: where the store cannot be looked at for the report of a compaction, the gateway says so and goes on', async () => {
    const store = await house.open('measured')
    const truth = newTruth(shop, store)
    // Making and opening the store opens the segment three times; the fourth measures it.
    const server = store.serve({ env: { FAILPOINT: `open:4:emfile:${store.store}/log-` } })
    const { url, admin_url } = await server.line<ServeReady>()
    expect(await compact(store.store, admin_url)).toBe('503 store_unavailable')
    expect(await compact(store.store, admin_url)).toBe('200')
    await untilAccepted(truth, store, url)
    expect((await server.stop()).code).toBe(0)
  })
})
