// The command line, but for what FAILPOINT names (robustness §8, T2). Either a step of the executor (`selected`, `reserved`, …), at
// which the process is gone, as by `kill -9` (R23). Or `<call>:<nth>:<does>:<part of a path>`: the nth call of node:fs/promises (`open`,
// `write`, `datasync`, `truncate`, `close`, `sync`, `rename`, `link`, `rm`, `mkdir`, or `any` of them) on such a path:
//   kill-before, kill-after  SIGKILL before the call begins, or once it has ended
//   torn                     half of what is to be written is written, then SIGKILL
//   short                    half of it is written, and the call says so
//   eio, emfile, …           the call fails with that and does nothing, this once
// A process that ends without having met it says on stderr how many such calls there were.
import promises from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'

const failpoint = async (name) => {
  if (name === process.env.FAILPOINT) process.kill(process.pid, 'SIGKILL')
}

const [call, nth, does, part] = (process.env.FAILPOINT ?? '').split(':')
if (part !== undefined) {
  let seen = 0
  const paths = new WeakMap()
  const die = () => process.kill(process.pid, 'SIGKILL')
  const refuse = (code) => Object.assign(new Error(`${code}: injected`), { code: code.toUpperCase() })
  const isMet = (name, path) => (call === 'any' || call === name) && String(path).includes(part) && ++seen === Number(nth)

  /** `half` does half of the work, where work can be halved. */
  async function meet(name, path, whole, half) {
    if (!isMet(name, path)) return whole()
    switch (does) {
      case 'kill-before':
        return die()
      case 'kill-after': {
        await whole()
        return die()
      }
      case 'torn':
        await half()
        return die()
      case 'short':
        return half()
      default:
        throw refuse(does)
    }
  }

  process.once('exit', () => {
    if (seen < Number(nth)) process.stderr.write(`failpoint not met: ${seen} calls\n`)
  })

  const { open } = promises
  const probe = await open(process.execPath, 'r')
  const handles = Object.getPrototypeOf(probe)
  await probe.close()
  for (const name of ['write', 'datasync', 'truncate', 'sync']) {
    const real = handles[name]
    handles[name] = function (...args) {
      const half = () => {
        if (name !== 'write') return real.apply(this, args)
        const [buffer, offset, length, position] = args
        return real.call(this, buffer, offset, Math.ceil(length / 2), position)
      }
      return meet(name, paths.get(this) ?? '', () => real.apply(this, args), half)
    }
  }
  promises.open = (path, ...rest) =>
    meet('open', path, async () => {
      const handle = await open(path, ...rest)
      paths.set(handle, path)
      const { close } = handle
      handle.close = () => meet('close', path, () => close.call(handle))
      return handle
    })
  for (const name of ['rename', 'link', 'rm', 'mkdir']) {
    const real = promises[name]
    promises[name] = (...args) => meet(name, args.at(name === 'rename' || name === 'link' ? 1 : 0), () => real(...args))
  }
  syncBuiltinESMExports()
}

// Loaded only now, so that it gets the calls from above.
const { start } = await import('../../dist/main.js')
process.exitCode = await start(process, { failpoint })
