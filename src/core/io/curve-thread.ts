/**
 * Signatures and recoveries of a batch on a thread of their own, while the process plans, journals and writes: they are half of its work.
 */
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { type Curve, knownNative } from './native-curve.js'

/** What libsecp256k1 does, a little later. Asked for many at once, it answers many at once. */
export interface CurveThread {
  /** There for the first key; for any other, this thread signs. */
  sign(...asked: Parameters<Curve['sign']>): Promise<ReturnType<Curve['sign']>>
  recover(...asked: Parameters<Curve['recover']>): Promise<ReturnType<Curve['recover']>>
  /** Ends the thread and overwrites its key. */
  close(): Promise<void>
}

/** Bytes of what is asked and answered: digest; digest, r‖s, parity; r‖s, parity; whether there is a key, and the key. */
const sizes = { sign: { asked: 32, answer: 65 }, recover: { asked: 97, answer: 66 } } as const
type Verb = keyof typeof sizes

/** So many go over in one message, which costs far less than they do; and the thread begins before all of a group are there. */
const messageItems = 64

/**
 * A thread that works by libsecp256k1, as this one would; where it fails, this one does. `undefined` where there is no libsecp256k1 no
 * processor to spare, or no thread to be had. It keeps no process alive that does not wait for it.
 */
export function startCurveThread(): CurveThread | undefined {
  const native = knownNative()
  if (native === undefined || availableParallelism() < 2) return undefined
  const binding = createRequire(import.meta.url).resolve('secp256k1/bindings.js')
  try {
    return curveThread(native, new Worker(`(${work})(require)`, { eval: true, workerData: { binding, sizes } }))
  } catch {
    // The system gives no further thread: this one does it all.
    return undefined
  }
}

/** The part of a worker that is used. */
export type Thread = Pick<Worker, 'on' | 'ref' | 'unref' | 'postMessage' | 'terminate'>

interface Waiting {
  readonly bytes: readonly (Uint8Array | number)[]
  /** `undefined`: the thread is gone. */
  readonly answer: (bytes: Uint8Array | undefined) => void
}

/** `startCurveThread` over a thread that has been started; `here` stands in for it. */
export function curveThread(here: Pick<Curve, 'sign' | 'recover'>, worker: Thread): CurveThread {
  /** Not yet sent. */
  const gathered: Record<Verb, Waiting[]> = { sign: [], recover: [] }
  /** Messages without an answer, oldest first: they are answered in order. */
  const sent: { readonly verb: Verb; readonly items: readonly Waiting[] }[] = []
  let isOver = false
  /** The first key that came, in memory that both threads see: the thread's own copy of it lasts for one message. */
  let shared: { readonly from: Uint8Array; readonly key: Uint8Array } | undefined

  const end = () => {
    isOver = true
    const left = [...sent.splice(0).flatMap(({ items }) => items), ...gathered.sign.splice(0), ...gathered.recover.splice(0)]
    for (const { answer } of left) answer(undefined)
  }
  worker.on('error', end)
  worker.on('exit', end)
  worker.on('message', (answers: Uint8Array) => {
    const { verb, items } = sent.shift() ?? { verb: 'sign', items: [] }
    const size = sizes[verb].answer
    for (const [index, { answer }] of items.entries()) answer(answers.subarray(index * size, (index + 1) * size))
    if (sent.length === 0) worker.unref()
  })
  worker.unref()

  const send = (verb: Verb) => {
    const items = gathered[verb]
    if (items.length === 0) return
    gathered[verb] = []
    const bytes = new Uint8Array(items.length * sizes[verb].asked)
    let at = 0
    for (const part of items.flatMap((item) => item.bytes)) {
      if (typeof part === 'number') bytes[at++] = part
      else {
        bytes.set(part, at)
        at += part.length
      }
    }
    sent.push({ verb, items })
    worker.ref()
    worker.postMessage({ verb, bytes, key: verb === 'sign' ? shared?.key : undefined })
  }

  const ask = (verb: Verb, bytes: Waiting['bytes']) =>
    new Promise<Uint8Array | undefined>((answer) => {
      if (isOver) return answer(undefined)
      const items = gathered[verb]
      items.push({ bytes, answer })
      if (items.length === messageItems) send(verb)
      // The rest of a group, once all of it has been asked for.
      else if (items.length === 1) setImmediate(send, verb)
    })

  return {
    async sign(digest, key) {
      if (shared === undefined) {
        shared = { from: key, key: new Uint8Array(new SharedArrayBuffer(key.length)) }
        shared.key.set(key)
      }
      const bytes = shared.from === key ? await ask('sign', [digest]) : undefined
      return bytes === undefined ? here.sign(digest, key) : { compact: bytes.subarray(0, 64), parity: bytes[64] === 1 ? 1 : 0 }
    },
    async recover(digest, compact, parity) {
      const bytes = await ask('recover', [digest, compact, parity])
      if (bytes === undefined) return here.recover(digest, compact, parity)
      return bytes[0] === 1 ? bytes.subarray(1) : undefined
    },
    async close() {
      await worker.terminate()
      shared?.key.fill(0)
    },
  }
}

/** Runs on the thread, from its own text: nothing of this module is there. */
function work(load: NodeJS.Require): void {
  const { parentPort, workerData } = load('node:worker_threads') as typeof import('node:worker_threads')
  const { ecdsaSign, ecdsaRecover } = load(workerData.binding)
  const verbs = {
    sign(digest: Uint8Array, key: Uint8Array): readonly number[] {
      const { signature, recid } = ecdsaSign(digest, key)
      return [...signature, recid]
    },
    recover(asked: Uint8Array): readonly number[] {
      try {
        return [1, ...ecdsaRecover(asked.subarray(32, 96), asked[96], asked.subarray(0, 32), false)]
      } catch {
        // No such point: nobody signed this.
        return []
      }
    },
  }
  parentPort?.on(
    'message',
    ({ verb, bytes, key: shared }: { verb: 'sign' | 'recover'; bytes: Uint8Array; key: Uint8Array | undefined }) => {
      const size = workerData.sizes[verb]
      // The binding takes no shared memory.
      const key = Uint8Array.from(shared ?? [])
      const answers = new Uint8Array((bytes.length / size.asked) * size.answer)
      try {
        for (let at = 0, to = 0; at < bytes.length; at += size.asked, to += size.answer)
          answers.set(verbs[verb](bytes.subarray(at, at + size.asked), key), to)
      } finally {
        key.fill(0)
      }
      parentPort.postMessage(answers)
    },
  )
}
