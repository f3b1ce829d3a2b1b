/** A proposer's desk: a home with pins and key, and the gateway that its commands ask. */
import { join } from 'node:path'
import { privateKeyToAccount } from 'viem/accounts'
import type { Clock } from '#ports'
import { type Argv, proposerHome, type Ran, type RunOptions, run } from './cli.js'
import { pins, type ScriptedGateway, scriptedGateway } from './scripted-gateway.js'

export const key = `0x${'11'.repeat(32)}` as const
export const proposer = privateKeyToAccount(key).address.toLowerCase() as `0x${string}`
export const sign = ['sign', 'will-it-hold', '--outcome', 'p2', '--json']
export const submit = ['submit', 'will-it-hold', '--outcome', 'p2', '--json']

export interface Desk {
  readonly home: string
  gateway: ScriptedGateway
  env: Record<string, string>
  readonly question: `0x${string}`
  ask(argv: Argv, more?: RunOptions): Promise<Ran>
}

/** Its question is pinned as `will-it-hold`. */
export async function openDesk(gateway = scriptedGateway(), trust: object = pins): Promise<Desk> {
  const question = gateway.question.question_id as `0x${string}`
  const home = proposerHome({ ...trust, slugs: { 'will-it-hold': question } }, key)
  const desk: Desk = {
    home,
    gateway,
    question,
    env: { PROPOSER_GATEWAY: gateway.url, PROPOSER_KEY_FILE: join(home, 'key') },
    ask: (argv, more) => run(home, argv, { env: desk.env, fetch: desk.gateway.fetch, ...more }),
  }
  return desk
}

/** Waits take no time, but count. */
export function instantClock(startMs: () => number = Date.now): Clock {
  let sleptMs = 0
  return {
    nowMs: () => startMs() + sleptMs,
    monotonicMs: () => performance.now() + sleptMs,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted()
      sleptMs += ms
    },
  }
}

const address = (digit: string) => `0x${digit.repeat(40)}` as const

/** A gateway.json of contracts that no chain has. */
export const gatewayFile = (more: object = {}, chain: object = {}) => ({
  chain: {
    id: 31337,
    rpc_urls: ['http://127.0.0.1:1'],
    signed_proposer: address('5'),
    oracles: [address('a')],
    requesters: [{ address: address('b'), kind: 'uma-ctf-adapter' }],
    tokens: [address('c')],
    ...chain,
  },
  ...more,
})
