import { systemHash } from '#io/clock'
import type { Files } from '#ports'
import { openLog } from '#storage/log'
import { folder, options } from '#support/sample-store'
import { SimClock, SimFiles } from '#support/sim-files'

function slowSync(files: Files): { readonly files: Files; hold(): void; release(): void } {
  let gate = Promise.resolve()
  let open: () => void = () => undefined
  return {
    files: {
      ...files,
      async open(path, mode) {
        const handle = await files.open(path, mode)
        return {
          write: (bytes, offset, length) => handle.write(bytes, offset, length),
          read: (position, length) => handle.read(position, length),
          truncate: (length) => handle.truncate(length),
          size: () => handle.size(),
          close: () => handle.close(),
          async datasync() {
            await handle.datasync()
            await gate
          },
        }
      },
    },
    hold() {
      gate = new Promise((resolve) => {
        open = resolve
      })
    },
    release: () => open(),
  }
}

test('R1: as long as the datasync of its bytes has not returned, an append has neither resolved nor reached memory', async () => {
  const { files, hold, release } = slowSync(new SimFiles().process())
  const log = await openLog(
    { files, clock: new SimClock(), hash: systemHash },
    folder,
    options,
    () => undefined,
  )
  hold()
  const seen: string[] = []
  const appended = log
    .append([{ kind: 'item', data: { id: 1 } }], () => seen.push('in memory'))
    .then(() => seen.push('resolved'))
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
  expect(seen).toEqual([])
  release()
  await appended
  expect(seen).toEqual(['in memory', 'resolved'])
})
