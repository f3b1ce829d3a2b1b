import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { figures, scaled } from '#support/campaign'

const soak = fileURLToPath(new URL('../bench/soak-blocks.js', import.meta.url))

/**
 * The whole of `npm run soak:blocks` is a day; this is as many blocks as it takes to see what is
 * kept, and what is let go.
 */
test('contract §8, R17: devchain and a gateway on it hold no more after a day of blocks; 1,000 states, all logs and receipts stay', async () => {
  const blocks = Math.min(43_200, Math.max(4_000, scaled(4_000)))
  const env = { ...process.env, SOAK_BLOCKS: String(blocks), SOAK_BLOCKS_PER_LOOK: '100' }
  const child = spawn(process.execPath, [soak, '--json'], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part
  })
  const code = await new Promise<number | null>((resolve, reject) =>
    child.once('error', reject).once('close', resolve),
  )
  const { faults, end } = JSON.parse(text) as { faults: string[]; end: Record<string, number> }
  expect([code, faults]).toEqual([0, []])
  figures('long-runs', end)
})
