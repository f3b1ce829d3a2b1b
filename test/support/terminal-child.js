import { writeFileSync } from 'node:fs'

const { TERMINAL_RECORD: folder } = process.env
delete process.env.TERMINAL_RECORD
if (folder !== undefined) {
  writeFileSync(`${folder}/pid`, `${process.pid}\n`)
  process.on('exit', () => writeFileSync(`${folder}/memory`, `${process.resourceUsage().maxRSS}\n`))
}
