import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { runHook } from '#io/hook'
import { temporaryFolder } from '#support/folders'

let folder: string
beforeEach(async () => {
  folder = temporaryFolder()
})

const program = async (script: string) => {
  const path = join(folder, 'hook')
  await writeFile(path, `#!/bin/sh\n${script}\n`, { mode: 0o700 })
  return path
}
const ran = (
  path: string,
  line = '{}',
  timeoutMs = 20_000,
  signal = new AbortController().signal,
) => runHook(path, line, { cwd: folder, env: { PATH: process.env.PATH }, timeoutMs, signal })

test('reads one line, without a shell and without arguments', async () => {
  const line = JSON.stringify({ title: '$(touch evil); `touch evil`' })
  expect(await ran(await program('cat >told; echo "$#" >>told'), line)).toBeUndefined()
  expect(await readFile(join(folder, 'told'), 'utf8')).toBe(`${line}\n0\n`)
  await expect(readFile(join(folder, 'evil'))).rejects.toThrow('ENOENT')
})

test('that does not end in its time is killed, and that is said', async () => {
  // It would wait for ever: what ends it is the limit.
  const path = await program('trap "" TERM\nexec tail -f /dev/null')
  expect(await ran(path, '{}', 300)).toBe('did not end within 0.3 s')
})

test('is stopped with the watch', async () => {
  const stop = new AbortController()
  const path = await program('touch begun\nexec tail -f /dev/null')
  const end = ran(path, '{}', 20_000, stop.signal)
  for (;;) {
    const isThere = await readFile(join(folder, 'begun')).then(
      () => true,
      () => false,
    )
    if (isThere) break
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  stop.abort()
  expect(await end).toBe('was stopped')
})

test('that is not there, fails, is killed or reads nothing', async () => {
  expect(await ran(join(folder, 'none'))).toMatch(/^cannot be run: .*ENOENT/)
  expect(await ran(await program('exit 3'))).toBe('ended with 3')
  expect(await ran(await program('kill -9 $$'))).toBe('was ended by SIGKILL')
  expect(await ran(await program('exit 0'), 'x'.repeat(1_000_000))).toBeUndefined()
})
