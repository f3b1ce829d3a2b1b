import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { topics } from '#chain/contracts'
import type { DevDescription } from '#devchain/dev-chain'
import type { CandidateStatus } from '#protocol/schema'
import type { Ran } from './cli.js'
import type { Workshop } from './processes.js'

export interface ServeReady {
  readonly event: string
  readonly url: string
  readonly admin_url: string
  readonly pid: number
  readonly dev: DevDescription
}

export interface Client {
  readonly env: Readonly<Record<string, string>>
  readonly proposer: string
  ask(...args: string[]): Promise<{ code: number; answer: Record<string, unknown>; ended: Ran }>
}

export async function makeClient(
  shop: Workshop,
  dev: DevDescription,
  more: Readonly<Record<string, string>>,
  n = 0,
): Promise<Client> {
  const home = join(await shop.folder(), 'home')
  await mkdir(home, { mode: 0o700 })
  const account = dev.accounts.filter(({ role }) => role === 'proposer')[n]
  if (!account) throw new Error(`the dev chain has no proposer ${n}`)
  await writeFile(join(home, 'proposer.key'), `${account.private_key}\n`, { mode: 0o600 })
  await writeFile(join(home, 'trust.json'), JSON.stringify(dev.trust))
  const env = {
    PROPOSER_HOME: home,
    PROPOSER_KEY_FILE: join(home, 'proposer.key'),
    PROPOSER_TRUST: join(home, 'trust.json'),
    ...more,
  }
  return {
    env,
    proposer: account.address,
    async ask(...args) {
      const ended = await shop.runHere([...args, '--json', '--yes'], env)
      return { code: ended.code, answer: documentOf(ended), ended }
    },
  }
}

function documentOf(ended: Ran): Record<string, unknown> {
  if (ended.stdout.trim() !== '' && ended.code === 0) return JSON.parse(ended.stdout)
  const last = ended.stderr.trim().split('\n').at(-1) ?? ''
  if (!last.startsWith('{'))
    throw new Error(`no document: exit ${ended.code}, ${ended.stdout}${ended.stderr}`)
  return JSON.parse(last).error
}

export function questionOf(dev: DevDescription, n: number): DevDescription['questions'][number] {
  const question = dev.questions[n]
  if (!question) throw new Error(`the dev chain has no question ${n}`)
  return question
}

async function rpc<T>(url: string, method: string, params: readonly unknown[]): Promise<T> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  })
  const { result, error } = (await answer.json()) as { result?: T; error?: { message: string } }
  if (result === undefined) throw new Error(`${method}: ${error?.message}`)
  return result
}

export interface ProposedLog {
  readonly logIndex: string
  readonly transactionHash: string
  readonly topics: readonly string[]
}

export async function proposals(dev: DevDescription, proposer: string): Promise<ProposedLog[]> {
  const filter = {
    address: dev.trust.oracles,
    topics: [topics.proposePrice],
    fromBlock: '0x0',
    toBlock: 'latest',
  }
  const logs = await rpc<ProposedLog[]>(dev.rpc_url, 'eth_getLogs', [filter])
  return logs.filter((log) => log.topics.some((topic) => topic.endsWith(proposer.slice(2))))
}

export async function untilExecuted(client: Client, candidateId: string): Promise<CandidateStatus> {
  const { code, answer, ended } = await client.ask('poll', candidateId, '--timeout', '60')
  if (code !== 0) throw new Error(`poll ended with ${code}: ${ended.stdout}${ended.stderr}`)
  const [status] = answer.candidates as CandidateStatus[]
  if (!status) throw new Error('poll told of no candidate')
  return status
}

export async function untilUnready(
  { admin_url }: Pick<ServeReady, 'admin_url'>,
  pattern: RegExp,
): Promise<string> {
  for (;;) {
    const { reasons = [] } = (await (await fetch(`${admin_url}/readyz`)).json()) as {
      reasons?: readonly string[]
    }
    const found = reasons.find((reason) => pattern.test(reason))
    if (found !== undefined) return found
    await new Promise((later) => setTimeout(later, 100))
  }
}

export async function post(
  url: string,
  path: string,
  body: unknown,
): Promise<{ status: number; body: Record<string, unknown> }> {
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
}
