/** docs/operating.md: the restore drill, typed command by command. */
import { freePort, workshop } from '#support/processes'
import { blocksIn, section, shell } from '#support/readme'

const shop = workshop()

test('R23: its drill: a lost store is put back from a backup, and every proposal is accounted for', async () => {
  const port = await freePort()
  const [prepare = '', backup = '', restore = '', look = '', end = '', ...more] = blocksIn(
    section('Restore drill', 'docs/operating.md'),
    'sh',
  )
  expect(more).toEqual([])
  const parts = [prepare, backup, restore, 'echo LOOK', look, 'echo END', end]
  const script = parts.join('\n').replaceAll(/\b8545\b/g, String(port))
  const { code, stdout, stderr } = await shell(await shop.folder(), script)
  expect({ code, stdout, stderr }).toMatchObject({ code: 0 })
  const [before = '', looked = ''] = stdout.replaceAll(/\s+/g, ' ').split('LOOK')
  expect(before).toMatch(/copied \d+ records in \d+ bytes to \S+backup; the copy is sound/)
  expect(before.split('the copy is sound')[1]).toMatch(/sound: .*candidates: 1 executed/)
  expect(before).toMatch(/gateway ready/)
  expect(looked.match(/executed/g)?.length, stdout).toBeGreaterThanOrEqual(3)
})
