/**
 * A PKCS#11 module that hangs in its native code (contract §9): it does not outlive the program that
 * loaded it, however that one ends, for a token may be open in it.
 */
import { execFileSync } from 'node:child_process'
import { open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { describeWith } from '#support/components'
import { workshop } from '#support/processes'
import { isRunning, modulePid } from '#support/softhsm'

const limit = { timeout: 30_000, interval: 100 }

describeWith(['pkcs11js'], 'contract §9: a PKCS#11 module that hangs', () => {
  const shop = workshop()

  async function loading() {
    const folder = await shop.folder()
    await writeFile(join(folder, 'pin'), '1234\n', { mode: 0o600 })
    const module = join(folder, 'module.so')
    execFileSync('mkfifo', [module])
    const flags = argvOf`--uri pkcs11:object=main --module module.so --pin-file pin`
    const cli = shop.start(['account', 'add-pkcs11', 'hsm', ...flags], {
      cwd: folder,
      env: { PROPOSER_HOME: join(folder, 'home') },
    })
    const writer = await open(module, 'w')
    return { cli, pid: modulePid(cli.child.pid), unblock: () => writer.close() }
  }

  test('ends after the program that loaded it was killed', async () => {
    const { cli, pid, unblock } = await loading()
    try {
      await cli.stop('SIGKILL')
      await vi.waitFor(() => expect(isRunning(pid)).toBe(false), limit)
    } finally {
      await unblock()
    }
  })

  test('the first Ctrl-C ends the command and it, not its time limit', async () => {
    const { cli, pid, unblock } = await loading()
    try {
      cli.child.kill('SIGINT')
      const { code, stderr } = await cli.ended
      expect(code, stderr).toBe(130)
      expect(stderr).toContain('stopped by SIGINT')
      await vi.waitFor(() => expect(isRunning(pid)).toBe(false), limit)
    } finally {
      await unblock()
    }
  })
})
