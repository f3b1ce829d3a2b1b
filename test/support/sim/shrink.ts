/** Makes a failing script shorter: steps go for as long as it still fails. */
import { runScript } from './run.js'
import type { Script } from './script.js'

export interface Shrunk {
  readonly script: Script
  readonly faults: readonly string[]
}

export async function shrink(script: Script): Promise<Shrunk> {
  let best: Shrunk = { script, faults: (await runScript(script)).faults }
  for (
    let size = Math.ceil(script.steps.length / 2);
    size >= 1 && best.faults.length > 0;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let from = 0; from < best.script.steps.length; ) {
      const steps = best.script.steps.filter((_, index) => index < from || index >= from + size)
      const shorter = { ...best.script, steps }
      const { faults } = await runScript(shorter)
      if (faults.length > 0) best = { script: shorter, faults }
      else from += size
    }
  }
  return best
}
