// node --import memory-probe.js …: at each thousandth line that this process writes to stdout it
// collects its garbage and notes its resident memory in bytes; when it ends it writes the list as
// JSON to the file that MEMORY_FILE names. Collected first, because how long garbage is left lying
// says more about the machine than about the program.
import fs, { writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')

const noted = []
let lines = 0
const count = (text) => {
  for (const character of text) {
    if (character !== '\n' || ++lines % 1_000 !== 0) continue
    collect()
    noted.push(process.memoryUsage.rss())
  }
}

const writeInPlace = fs.writeSync
fs.writeSync = (descriptor, bytes, offset, ...rest) => {
  const written = writeInPlace(descriptor, bytes, offset, ...rest)
  if (descriptor === 1) count(Buffer.from(bytes).toString('latin1', offset, offset + written))
  return written
}
syncBuiltinESMExports()
const write = process.stdout.write
process.stdout.write = function (chunk, ...rest) {
  count(typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('latin1'))
  return write.call(this, chunk, ...rest)
}
process.on('exit', () => writeFileSync(process.env.MEMORY_FILE, JSON.stringify(noted)))
