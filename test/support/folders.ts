import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const made: string[] = []

/** A folder of its own, which goes with the test file. */
export function temporaryFolder(): string {
  const path = mkdtempSync(join(tmpdir(), 'proposer-'))
  made.push(path)
  return path
}

export function removeFolders(): void {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true })
}
