/** Signatures and recoveries on another thread: what they are, and what becomes of them where the thread fails. */
import { Worker } from 'node:worker_threads'
import { afterEach, describe, expect, test } from 'vitest'
import { type CurveThread, curveThread, startCurveThread } from '../../src/core/io/curve-thread.js'
import { signerFromKey } from '../../src/core/io/keys.js'
import { systemCurve } from '../../src/core/io/secp256k1.js'
import { recoverSigner } from '../../src/core/protocol/signature.js'
import { fromHex, toHex } from '../../src/core/protocol/witness.js'

const here = systemCurve()
const key = (n: number) => new Uint8Array(32).fill(n)
/** More than go in one message, and not a whole number of messages. */
const digests = Array.from({ length: 150 }, (_, n) => new Uint8Array(32).fill(n + 1))

const opened: CurveThread[] = []
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close()
})

const keep = (thread: CurveThread): CurveThread => {
  opened.push(thread)
  return thread
}

/** Needs libsecp256k1 and two processors, as CI's machines have them. */
function realThread(): CurveThread {
  const thread = startCurveThread()
  if (thread === undefined) throw new Error('no thread can be started here')
  return keep(thread)
}

const thatRuns = (code: string) => keep(curveThread(here, new Worker(code, { eval: true, stderr: true })))

describe('a thread of the curve', () => {
  test('domain §3.3: it signs and recovers what this thread does, each answer for its own question', async () => {
    const thread = realThread()
    const signed = await Promise.all(digests.map((digest) => thread.sign(digest, key(7))))
    const expected = digests.map((digest) => here.sign(digest, key(7)))
    expect(signed.map(({ compact, parity }) => [toHex(compact), parity])).toEqual(
      expected.map(({ compact, parity }) => [toHex(compact), parity]),
    )
    const recovered = await Promise.all(
      expected.map(({ compact, parity }, n) => thread.recover(digests[n] ?? key(0), compact, n % 2 === 0 ? parity : parity === 0 ? 1 : 0)),
    )
    for (const [n, found] of recovered.entries()) {
      const one = expected[n]
      const asHere = one && here.recover(digests[n] ?? key(0), one.compact, n % 2 === 0 ? one.parity : one.parity === 0 ? 1 : 0)
      expect(found && toHex(found)).toBe(asHere && toHex(asHere))
    }
  })

  test('domain §3.3: nobody signed what is out of range, and the next question is answered all the same', async () => {
    const thread = realThread()
    const { compact, parity } = here.sign(key(1), key(7))
    const asked = [new Uint8Array(64), new Uint8Array(64).fill(255), compact]
    const found = await Promise.all(asked.map((each) => thread.recover(key(1), each, parity)))
    expect(found.map((each) => each && toHex(each))).toEqual([undefined, undefined, toHex(here.publicKey(key(7)) ?? key(0))])
  })

  test('a signer that signs there makes the same signatures, and so does one with another key beside it', async () => {
    const thread = realThread()
    const signers = [signerFromKey(key(7)), signerFromKey(key(8))]
    for (const signer of signers) signer.signBy(thread.sign)
    const made = await Promise.all(digests.flatMap((digest) => signers.map((signer) => signer.signDigest(toHex(digest)))))
    expect(made.map((signature, n) => recoverSigner(digests[n >> 1] ?? key(0), signature))).toEqual(
      made.map((_, n) => signers[n % 2]?.address),
    )
  })

  test.each([
    ['cannot be started', 'throw new Error("no")'],
    ['dies over the first question', 'require("node:worker_threads").parentPort.once("message", () => process.exit(1))'],
    ['fails over the first question', 'require("node:worker_threads").parentPort.once("message", () => { throw new Error("no") })'],
  ])('where it %s, this thread answers, what was asked before and what is asked later', async (_, code) => {
    const thread = thatRuns(code)
    for (let round = 0; round < 2; round++) {
      const signed = await Promise.all(digests.map((digest) => thread.sign(digest, key(7))))
      expect(signed.map(({ compact }) => toHex(compact))).toEqual(digests.map((digest) => toHex(here.sign(digest, key(7)).compact)))
      const found = await thread.recover(key(1), here.sign(key(1), key(7)).compact, here.sign(key(1), key(7)).parity)
      expect(found && toHex(found)).toBe(toHex(here.publicKey(key(7)) ?? key(0)))
    }
  })

  test('a key that nobody can sign with is refused there as here', async () => {
    await expect(realThread().sign(key(1), key(255))).rejects.toThrow()
  })

  test('R5: the key is in one place that both threads see, which is overwritten when the thread ends', async () => {
    const posted: { key?: Uint8Array }[] = []
    const worker = new Worker('require("node:worker_threads").parentPort.on("message", () => undefined)', { eval: true })
    const watched = new Proxy(worker, {
      get(target, name) {
        if (name === 'postMessage') return (message: { key?: Uint8Array }) => posted.push(message) > 0 && target.postMessage(message)
        const value: unknown = Reflect.get(target, name, target)
        return typeof value === 'function' ? value.bind(target) : value
      },
    })
    const thread = keep(curveThread(here, watched))
    const pending = thread.sign(fromHex(`0x${'11'.repeat(32)}`), key(7))
    while (posted.length === 0) await new Promise((resolve) => setImmediate(resolve))
    const [{ key: shared } = {}] = posted
    expect(shared?.buffer).toBeInstanceOf(SharedArrayBuffer)
    expect(shared && [...shared]).toEqual([...key(7)])
    await thread.close()
    expect(shared && [...shared]).toEqual([...new Uint8Array(32)])
    expect(toHex((await pending).compact), 'what was under way is answered here').toBe(
      toHex(here.sign(new Uint8Array(32).fill(0x11), key(7)).compact),
    )
  })
})
