import type { Ended } from '../processes.js'

/**
 * Runs a command again while it is deferred (exit 75): a gateway on a machine that is busy with
 * other things sheds calls.
 */
export async function patiently(run: () => Promise<Ended>): Promise<Ended> {
  for (;;) {
    const ended = await run()
    if (ended.code !== 75) return ended
  }
}
