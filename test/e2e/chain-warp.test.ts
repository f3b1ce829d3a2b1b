/**
 * A chain whose clock jumps ahead of everybody's (`devchain warp`): what the gateway does with what
 * it holds, and what the client says (contract §2 "now", §5, §8).
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { DevDescription } from '#devchain/dev-chain'
import { warp } from '#devchain/dev-verbs'
import { createHttp } from '#io/http'
import { createChain } from '#io/rpc/rpc'
import { argvOf } from '#support/argv'
import { type Argv, lastErrorOf, run } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import { workshop } from '#support/processes'

const shop = workshop()
const http = createHttp()
let home: string
let dev: DevDescription
let url: string
let env: Record<string, string>
let chain: ReturnType<typeof createChain>

beforeAll(async () => {
  const ready = await shop
    .start([
      ...argvOf`serve --dev --port 0 --json --no-log --questions 4`,
      ...['--set', 'executor.enabled=false'],
    ])
    .line<{ url: string; dev: DevDescription }>()
  dev = ready.dev
  url = ready.url
  home = temporaryFolder()
  chain = createChain([dev.rpc_url])
  const key = join(home, 'key')
  const account = dev.accounts.find(({ role }) => role === 'proposer')
  await writeFile(key, `${account?.private_key}\n`, { mode: 0o600 })
  env = { PROPOSER_GATEWAY: url, PROPOSER_RPC_URL: dev.rpc_url, PROPOSER_KEY_FILE: key }
  const pinned = await cli('trust init --from - --yes', JSON.stringify(dev))
  expect(pinned.code, pinned.stderr).toBe(0)
})
afterAll(async () => {
  await chain?.close()
  await http.close()
})

const cli = (argv: Argv, stdin?: string) =>
  run(home, argv, { env, chain, fetch: http.fetch, ...(stdin !== undefined && { stdin }) })
const slug = (n: number) => dev.questions[n]?.slug ?? ''
const headSeconds = async () => Number((await chain.block('latest'))?.timestamp)

test('deadlines are judged by the chain: what waits fails, what is saved is not sent again, and what is signed next counts from there', async () => {
  const waiting = await cli(argvOf`submit ${slug(0)} --outcome p2 --json`)
  expect(waiting.code, waiting.stderr).toBe(0)
  const { candidate_id, journal_id } = JSON.parse(waiting.stdout)
  const selected = await cli(argvOf`poll ${candidate_id} --until selected --timeout 60`)
  expect(selected.code, selected.stderr).toBe(0)
  const kept = await cli(argvOf`sign ${slug(1)} --outcome p2 --json`)
  expect(kept.code, kept.stderr).toBe(0)

  await warp(dev.rpc_url, 7_200)
  expect(await headSeconds()).toBeGreaterThan(Date.now() / 1_000 + 7_000)

  const ended = await cli(argvOf`poll ${candidate_id} --timeout 60 --json`)
  expect(ended.code).toBe(7)
  expect(JSON.parse(ended.stdout).candidates[0]).toMatchObject({
    status: 'failed',
    failure: { code: 'permit_expired', retryable: false, next_action: 'sign_new_authorization' },
  })
  expect((await http.fetch(`${url}/readyz`)).status).toBe(200)
  const listed = JSON.parse((await cli('journal list --json')).stdout).authorizations
  expect(listed.find((one: { journal_id: string }) => one.journal_id === journal_id)).toMatchObject(
    { state: 'closed' },
  )

  const late = await cli(argvOf`submit ${slug(1)} --outcome p2 --json`)
  const told = lastErrorOf(late)
  expect([late.code, told.code]).toEqual([3, 'permit_deadline_too_soon'])
  expect(told.hint).toContain('sign')

  const fresh = await cli(argvOf`submit ${slug(1)} --outcome p2 --json`)
  expect(fresh.code, fresh.stderr).toBe(0)
  const again = JSON.parse(fresh.stdout)
  const shown = JSON.parse((await cli(argvOf`journal show ${again.journal_id} --json`)).stdout)
  const deadline = Number(JSON.stringify(shown).match(/"deadline":"(\d+)"/)?.[1])
  expect(deadline).toBeGreaterThan(await headSeconds())
  expect(deadline).toBeLessThan((await headSeconds()) + 4_000)
  const through = await cli(argvOf`poll ${again.candidate_id} --until selected --timeout 60`)
  expect(through.code, through.stderr).toBe(0)

  await warp(dev.rpc_url, 1_800)
  const still = await cli(`status ${again.candidate_id} --json`)
  expect([still.code, JSON.parse(still.stdout).candidates[0].status]).toEqual([0, 'selected'])
})
