// node --import memory-probe.js …: at each thousandth line that this process writes to stdout it collects its garbage and notes its
// resident memory in bytes; when it ends it writes the list as JSON to the file that MEMORY_FILE names. Collected first, because how long
// garbage is left lying says more about the machine than about the program.
import { writeFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')

const noted = []
let lines = 0
const write = process.stdout.write
process.stdout.write = function (chunk, ...rest) {
  for (const character of String(chunk)) {
    if (character !== '\n' || ++lines % 1_000 !== 0) continue
    collect()
    noted.push(process.memoryUsage.rss())
  }
  return write.call(this, chunk, ...rest)
}
process.on('exit', () => writeFileSync(process.env.MEMORY_FILE, JSON.stringify(noted)))
