// The command line, but for what FAILPOINT names (robustness §8, T2). Either a step of the executor
// (`selected`, `reserved`, …), at which the process is gone, as by `kill -9` (R23). Or
// `<call>:<nth>:<does>:<part of a path>`: the nth call of the disk (`open`, `write`, `datasync`,
// `truncate`, `close`, `sync`, `rename`, `link`, `rm`, `mkdir`, or `any` of them) on such a path,
// as node:fs/promises has them:
//   kill-before, kill-after  SIGKILL before the call begins, or once it has ended
//   torn                     half of what is to be written is written, then SIGKILL
//   short                    half of it is written, and the call says so
//   eio, emfile, …           the call fails with that and does nothing, this once
// A process that ends without having met it says on stderr how many such calls there were.
import disk from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'

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

  async function meet(name, path, whole, half = whole) {
    if (!isMet(name, path)) return whole()
    switch (does) {
      case 'kill-before':
        return die()
      case 'kill-after':
        await whole()
        return die()
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

  const { open } = disk
  disk.open = (path, ...rest) =>
    meet('open', path, async () => watched(await open(path, ...rest), path))

  function watched(file, path) {
    for (const name of ['datasync', 'sync', 'truncate', 'close']) {
      const whole = file[name].bind(file)
      file[name] = (...args) => meet(name, path, () => whole(...args))
    }
    const write = file.write.bind(file)
    file.write = (buffer, offset, length, position) =>
      meet(
        'write',
        path,
        () => write(buffer, offset, length, position),
        () => write(buffer, offset, Math.ceil(length / 2), position),
      )
    return file
  }

  for (const [name, real, at] of [
    ['rename', 'rename', 1],
    ['link', 'link', 1],
    ['mkdir', 'mkdir', 0],
    ['rm', 'unlink', 0],
  ]) {
    const whole = disk[real]
    disk[real] = (...args) => meet(name, args[at], () => whole(...args))
  }
  syncBuiltinESMExports()
}

const { start } = await import('../../dist/main.js')
process.exitCode = await start(process, { failpoint })
