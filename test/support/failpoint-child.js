// The command line, but for what FAILPOINT names (robustness §8, T2). Either a step of the executor
// (`selected`, `reserved`, …), at which the process is gone, as by `kill -9` (R23). Or
// `<call>:<nth>:<does>:<part of a path>`: the nth call of the disk (`open`, `write`, `datasync`,
// `truncate`, `close`, `sync`, `rename`, `link`, `rm`, `mkdir`, or `any` of them) on such a path,
// as node:fs has them:
//   kill-before, kill-after  SIGKILL before the call begins, or once it has ended
//   torn                     half of what is to be written is written, then SIGKILL
//   short                    half of it is written, and the call says so
//   eio, emfile, …           the call fails with that and does nothing, this once
// A process that ends without having met it says on stderr how many such calls there were.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const failpoint = async (name) => {
  if (name === process.env.FAILPOINT) process.kill(process.pid, 'SIGKILL')
}

const [call, nth, does, part] = (process.env.FAILPOINT ?? '').split(':')
if (part !== undefined) {
  let seen = 0
  /** What is open under which number. */
  const paths = new Map()
  const die = () => process.kill(process.pid, 'SIGKILL')
  const refuse = (code) =>
    Object.assign(new Error(`${code}: injected`), { code: code.toUpperCase() })
  const isMet = (name, path) =>
    (call === 'any' || call === name) && String(path).includes(part) && ++seen === Number(nth)

  /** `half` does half of the work, where work can be halved. */
  function meet(name, path, whole, half = whole) {
    if (!isMet(name, path)) return whole()
    switch (does) {
      case 'kill-before':
        return die()
      case 'kill-after':
        whole()
        return die()
      case 'torn':
        half()
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

  const { openSync, closeSync, writeSync, ftruncateSync } = fs
  const pathOf = (descriptor) => paths.get(descriptor) ?? ''
  fs.openSync = (path, ...rest) =>
    meet('open', path, () => {
      const descriptor = openSync(path, ...rest)
      paths.set(descriptor, path)
      return descriptor
    })
  fs.closeSync = (descriptor) =>
    meet('close', pathOf(descriptor), () => {
      paths.delete(descriptor)
      closeSync(descriptor)
    })
  fs.writeSync = (descriptor, buffer, offset, length, position) => {
    const write = (count) => writeSync(descriptor, buffer, offset, count, position)
    return meet(
      'write',
      pathOf(descriptor),
      () => write(length),
      () => write(Math.ceil(length / 2)),
    )
  }
  fs.ftruncateSync = (descriptor, length) =>
    meet('truncate', pathOf(descriptor), () => ftruncateSync(descriptor, length))
  for (const [name, real] of [
    ['rename', 'renameSync'],
    ['link', 'linkSync'],
    ['mkdir', 'mkdirSync'],
  ]) {
    const whole = fs[real]
    fs[real] = (...args) => meet(name, args.at(name === 'mkdir' ? 0 : 1), () => whole(...args))
  }
  // These answer later, in a thread of their own.
  for (const [name, real] of [
    ['datasync', 'fdatasync'],
    ['sync', 'fsync'],
    ['rm', 'unlink'],
  ]) {
    const whole = fs[real]
    fs[real] = (target, answer) => {
      if (!isMet(name, typeof target === 'number' ? pathOf(target) : target)) whole(target, answer)
      else if (does === 'kill-before') die()
      else if (does === 'kill-after') whole(target, die)
      else process.nextTick(answer, refuse(does))
    }
  }
  syncBuiltinESMExports()
}

// Loaded only now, so that it gets the calls from above.
const { start } = await import('../../dist/main.js')
process.exitCode = await start(process, { failpoint })
