/** R16: when a node is asked for its chain id, and what is believed of a connection that did not tell it. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { createChain } from '../../src/core/io/rpc/rpc.js'
import { ChainError, type Hex } from '../../src/core/ports.js'
import { createTestClock } from '../support/front.js'
import { account, chainOf, makeNode, type Node, timesAsked } from '../support/rpc-model.js'

/** A model whose connection tests open again; what it answers belongs to that connection. */
function connected(node: Node) {
  const link = { opened: 1, answered: 0 }
  const whole = node.exchange
  let before: (() => void) | undefined
  node.link = () => link
  node.exchange = (...asked) => {
    before?.()
    before = undefined
    link.answered = link.opened
    return whole(...asked)
  }
  return {
    link,
    /** Before the next request leaves. */
    onNext: (act: () => void) => {
      before = act
    },
  }
}

describe('the chain id is asked once a connection', () => {
  test('a connection that has told it is not asked for 30 s; then once', async () => {
    const clock = createTestClock()
    const node = makeNode()
    connected(node)
    const chain = chainOf([node], clock)
    for (let read = 0; read < 10; read += 1) await chain.balance(account)
    expect(timesAsked(node, 'eth_chainId')).toBe(1)
    clock.monotonic += 29_999
    await chain.balance(account)
    expect(timesAsked(node, 'eth_chainId')).toBe(1)
    clock.monotonic += 1
    await chain.balance(account)
    await chain.balance(account)
    expect(timesAsked(node, 'eth_chainId')).toBe(2)
  })

  test('R16: after 30 s another chain behind the same connection is found out', async () => {
    const clock = createTestClock()
    const node = makeNode()
    connected(node)
    const chain = chainOf([node], clock)
    await chain.balance(account)
    node.chainId = 1
    clock.monotonic += 30_000
    await expect(chain.balance(account)).rejects.toThrow('it is on chain 1, not on 137')
    await expect(chain.balance(account)).rejects.toThrow('it is on chain 1, not on 137')
    node.chainId = 137
    expect(await chain.balance(account)).toBe(1n)
  })

  test('R16: a new connection is asked in the same request', async () => {
    const node = makeNode()
    const { link } = connected(node)
    const chain = chainOf([node])
    await chain.balance(account)
    link.opened += 1
    node.chainId = 1
    await expect(chain.balance(account)).rejects.toThrow('it is on chain 1, not on 137')
  })

  test('R16: what comes over a connection that was opened on the way does not count before it was asked', async () => {
    const node = makeNode()
    const { link, onNext } = connected(node)
    const chain = chainOf([node])
    expect(await chain.balance(account)).toBe(1n)
    const reopen = () => {
      link.opened += 1
      node.chainId = 1
      node.answers.eth_getBalance = '0xbad'
    }
    onNext(reopen)
    await expect(chain.balance(account)).rejects.toThrow('it is on chain 1, not on 137')
    node.chainId = 137
    node.answers.eth_getBalance = '0x2'
    expect(await chain.balance(account)).toBe(2n)
    onNext(() => {
      link.opened += 1
    })
    const before = timesAsked(node, 'eth_chainId')
    expect(await chain.balance(account)).toBe(2n)
    expect(timesAsked(node, 'eth_chainId')).toBe(before + 1)
  })

  test('R16: after an exchange that failed it is asked again, of the same connection too', async () => {
    const node = makeNode()
    connected(node)
    const chain = chainOf([node])
    await chain.balance(account)
    node.silent = 'no response'
    await expect(chain.balance(account)).rejects.toBeInstanceOf(ChainError)
    node.silent = undefined
    node.chainId = 1
    await expect(chain.balance(account)).rejects.toThrow('it is on chain 1, not on 137')
  })

  test('R16: of several nodes each comparison asks for it: one that comes to be elsewhere is out within 2 s', async () => {
    const clock = createTestClock()
    const [first, second] = [makeNode(), makeNode()]
    for (const node of [first, second]) connected(node)
    const chain = chainOf([first, second], clock)
    await chain.block('latest')
    first.chainId = 1
    clock.monotonic += 2_000
    await chain.block('latest')
    expect(chain.nodes()[0]).toMatchObject({ why: 'it is on chain 1, not on 137' })
  })

  test('a node of which no connection is known is asked with every request', async () => {
    const node = makeNode()
    const chain = chainOf([node])
    await chain.balance(account)
    await chain.balance(account)
    expect(timesAsked(node, 'eth_chainId')).toBe(2)
  })
})

describe('over HTTP', () => {
  const ends: (() => Promise<unknown>)[] = []
  afterEach(async () => {
    for (const end of ends.splice(0)) await end()
  })

  interface Machine {
    chainId: string
    balance: Hex
  }

  /** Machines behind one address: the newest connection gets the machine of that moment. */
  async function address(machine: { now: Machine }, isSlow = false) {
    const asked: { socket: Socket; methods: string[] }[] = []
    const machines = new WeakMap<Socket, Machine>()
    const server: Server = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk) => chunks.push(chunk))
      request.on('end', async () => {
        const body = JSON.parse(Buffer.concat(chunks).toString())
        const calls: { id: number; method: string }[] = Array.isArray(body) ? body : [body]
        const { socket } = request
        asked.push({ socket, methods: calls.map(({ method }) => method) })
        const { chainId, balance } = machines.get(socket) ?? machine.now
        // So that requests of one moment need a connection each.
        if (isSlow) await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
        const answers = calls.map(({ id, method }) => ({
          jsonrpc: '2.0',
          id,
          result: method === 'eth_chainId' ? chainId : balance,
        }))
        response.end(JSON.stringify(Array.isArray(body) ? answers : answers[0]))
      })
    })
    server.on('connection', (socket) => machines.set(socket, machine.now))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const chain = createChain([`http://127.0.0.1:${(server.address() as AddressInfo).port}/key`], {
      expectedChainId: 137,
      batchCalls: 2,
    })
    ends.push(async () => {
      await chain.close()
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    })
    const guards = () => asked.filter(({ methods }) => methods.includes('eth_chainId')).length
    return { chain, asked, guards, server }
  }
  const ours = { chainId: '0x89', balance: '0x1' } as const
  const foreign = { chainId: '0x1', balance: '0xbad' } as const

  test('a hundred reads one after another ask for it once; a hundred at once, once a connection', async () => {
    const { chain, asked, guards } = await address({ now: ours }, true)
    for (let read = 0; read < 100; read += 1) await chain.balance(account)
    expect(guards()).toBe(1)
    await Promise.all(Array.from({ length: 100 }, () => chain.balance(account)))
    const sockets = new Set(asked.map(({ socket }) => socket))
    expect(sockets.size).toBeGreaterThan(1)
    for (const socket of sockets) {
      const [first] = asked.filter((one) => one.socket === socket)
      expect(first?.methods).toContain('eth_chainId')
    }
    const before = guards()
    for (let read = 0; read < 20; read += 1) await chain.balance(account)
    expect(guards()).toBe(before)
  })

  test('R16: another machine answers at the address once connections are lost: nothing of it is believed', async () => {
    const machine: { now: Machine } = { now: ours }
    const { chain, server } = await address(machine)
    expect(await chain.balance(account)).toBe(1n)
    machine.now = foreign
    server.closeAllConnections()
    for (let read = 0; read < 5; read += 1)
      await expect(chain.balance(account)).rejects.toMatchObject({ kind: 'unavailable' })
    await expect(chain.balance(account)).rejects.toThrow('it is on chain 1, not on 137')
    machine.now = ours
    server.closeAllConnections()
    await expect.poll(() => chain.balance(account).catch(() => undefined)).toBe(1n)
  })
})
