import type { Ended } from '../processes.js'

export async function patiently(run: () => Promise<Ended>): Promise<Ended> {
  for (;;) {
    const ended = await run()
    if (ended.code !== 75) return ended
  }
}
