/**
 * A PKCS#11 module that hangs in its native code (contract §9): it does not outlive the program that
 * loaded it, however that one ends, for a token may be open in it.
 */
import { execFileSync } from 'node:child_process'
import { open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { describeWith } from '../support/components.js'
import { workshop } from '../support/processes.js'
import { modulePid } from '../support/softhsm.js'

const limit = { timeout: 30_000, interval: 100 }
const lives = (pid: number) => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

describeWith(['pkcs11js'], 'contract §9: a PKCS#11 module that hangs', () => {
  const shop = workshop()
  afterAll(() => shop.clean())

  test('ends after the program that loaded it was killed', async () => {
    const folder = await shop.folder()
    await writeFile(join(folder, 'pin'), '1234\n', { mode: 0o600 })
    const module = join(folder, 'module.so')
    execFileSync('mkfifo', [module])
    const flags = ['--uri', 'pkcs11:object=main', '--module', 'module.so', '--pin-file', 'pin']
    const cli = shop.start(['account', 'add-pkcs11', 'hsm', ...flags], {
      cwd: folder,
      env: { PROPOSER_HOME: join(folder, 'home') },
    })
    // Opens when the module is being loaded, which then waits for what is written: nothing is.
    const writer = await open(module, 'w')
    try {
      const pid = modulePid(cli.child.pid)
      await cli.stop('SIGKILL')
      await vi.waitFor(() => expect(lives(pid)).toBe(false), limit)
    } finally {
      await writer.close()
    }
  })
})
