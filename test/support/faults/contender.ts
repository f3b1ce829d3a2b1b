import { spawn } from 'node:child_process'
import { once } from 'node:events'

export type Contender = ReturnType<typeof startContender>

export function startContender(program: string, folder: string) {
  const child = spawn(process.execPath, [program, folder, 'contend'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = once(child, 'close')
  let told = ''
  let wake: () => void = () => undefined
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    told += text
    wake()
  })
  void ended.then(() => wake())
  const held = () => told.split('\n').filter((line) => line === 'held').length
  const isGone = () => child.exitCode !== null || child.signalCode !== null
  return {
    child,
    async until(times: number) {
      while (held() < times) {
        if (isGone())
          throw new Error(`a contender ended by itself (${child.exitCode ?? child.signalCode})`)
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    },
    async kill() {
      if (isGone())
        throw new Error(`a contender ended by itself (${child.exitCode ?? child.signalCode})`)
      child.kill('SIGKILL')
      await ended
      return {
        held: held(),
        beside: told.split('\n').filter((line) => line.startsWith('beside')).length,
      }
    },
  }
}
