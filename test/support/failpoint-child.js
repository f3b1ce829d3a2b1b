// The command line, but for what FAILPOINT names (robustness §8, T2). Either a step of the executor
// (`selected`, `reserved`, …), at which the process is gone, as by `kill -9` (R23). Or
// `<call>:<nth>:<does>:<part of a path>`: the nth call of the disk (`open`, `write`, `datasync`,
// `truncate`, `close`, `sync`, `rename`, `link`, `rm`, `mkdir`, or `any` of them) on such a path,
// in a thread or at once:
//   kill-before, kill-after  SIGKILL before the call begins, or once it has ended
//   torn                     half of what is to be written is written, then SIGKILL
//   short                    half of it is written, and the call says so
//   eio, emfile, …           the call fails with that and does nothing, this once
// A process that has not met it says on stderr how many such calls there were.
import fs from 'node:fs'
import disk from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { promisify } from 'node:util'

const failpoint = async (name) => {
  if (name === process.env.FAILPOINT) process.kill(process.pid, 'SIGKILL')
}

const [call, nth, does, part] = (process.env.FAILPOINT ?? '').split(':')
if (part !== undefined) {
  let seen = 0
  const die = () => process.kill(process.pid, 'SIGKILL')
  const refuse = (code) =>
    Object.assign(new Error(`${code}: injected`), { code: code.toUpperCase() })
  const isMet = (name, path) =>
    (call === 'any' || call === name) && String(path).includes(part) && ++seen === Number(nth)

  function meet(name, path, whole, half) {
    if (!isMet(name, path)) return whole()
    if (does === 'short') return half()
    if (does === 'kill-before') return die()
    if (does !== 'kill-after' && does !== 'torn') throw refuse(does)
    const done = does === 'torn' ? half() : whole()
    return done instanceof Promise ? done.then(die) : die()
  }

  process.once('exit', () => {
    if (seen < Number(nth)) process.stderr.write(`failpoint not met: ${seen} calls\n`)
  })

  function wrap(on, real, name, pathOf) {
    const whole = on[real].bind(on)
    const at = on === fs ? 3 : 2
    const met = (...args) =>
      meet(
        name,
        pathOf(args),
        () => whole(...args),
        () => whole(...args.with(at, Math.ceil(args[at] / 2))),
      )
    on[real] = on === fs ? met : async (...args) => met(...args)
  }

  const { open } = disk
  disk.open = async (path, ...rest) => {
    const file = await open(path, ...rest)
    for (const name of ['datasync', 'sync', 'truncate', 'close', 'write'])
      wrap(file, name, name, () => path)
    return file
  }
  const paths = new Map()
  const { openSync } = fs
  fs.openSync = (path, ...rest) => {
    const file = openSync(path, ...rest)
    paths.set(file, path)
    return file
  }
  for (const name of ['fsync', 'ftruncate', 'close', 'write'])
    wrap(fs, `${name}Sync`, name.replace(/^f/, ''), ([file]) => paths.get(file))
  const datasync = promisify(fs.fdatasync)
  const synced = async (file) => meet('datasync', paths.get(file), () => datasync(file))
  fs.fdatasync = (file, done) => synced(file).then(() => done(null), done)
  for (const on of [disk, fs]) {
    const real = (name) => (on === fs ? `${name}Sync` : name)
    wrap(on, real('open'), 'open', ([path]) => path)
    wrap(on, real('mkdir'), 'mkdir', ([path]) => path)
    wrap(on, real('unlink'), 'rm', ([path]) => path)
    wrap(on, real('rename'), 'rename', ([, path]) => path)
    wrap(on, real('link'), 'link', ([, path]) => path)
  }
  syncBuiltinESMExports()
}

const { start } = await import('../../dist/main.js')
process.exitCode = await start(process, { failpoint })
