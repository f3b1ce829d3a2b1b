import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Sources lie three folders below it, the built program one or two. */
export function packageRoot(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)), up = 0; up < 5; up += 1) {
    if (existsSync(join(folder, 'bin', 'proposer.js'))) return folder
    folder = dirname(folder)
  }
  throw new RangeError('the package lacks bin/proposer.js')
}
