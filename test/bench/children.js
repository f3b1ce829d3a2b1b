import { fork, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

/**
 * Starts a server that prints `{"event":"ready",…}` on stdout. Resolves with that object, its
 * process id, and a `stop` that ends the process (SIGTERM) and waits for it. Rejects with the end of its stderr where
 * it ends before it is ready. `options.onLog` is told each line of stderr.
 */
export function startServer(command, args, options) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
    let errors = ''
    child.stderr.setEncoding('utf8').on('data', (text) => {
      errors = (errors + text).slice(-2000)
    })
    if (options.onLog) createInterface({ input: child.stderr }).on('line', options.onLog)
    const ended = new Promise((done) => child.once('exit', done))
    const stop = async () => {
      child.kill('SIGTERM')
      await ended
    }
    child.once('error', reject)
    void ended.then((code) =>
      reject(
        new Error(
          `${command} ${args.slice(0, 3).join(' ')} ended with ${code} before it was ready: ${errors}`,
        ),
      ),
    )
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line.startsWith('{') && JSON.parse(line).event === 'ready')
        resolve({ ready: JSON.parse(line), pid: child.pid, stop })
    })
  })
}

export function profiling() {
  const to = process.env.BENCH_PROFILE
  return to === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${to}`]
}

export function startLoad(path) {
  const stdio = ['ignore', 'inherit', 'inherit', 'ipc']
  const child = fork(path, { stdio, serialization: 'advanced' })
  const send = (job) =>
    new Promise((resolve, reject) => {
      const died = (code) => reject(new Error(`the load generator ended with ${code}`))
      child.once('exit', died)
      child.once('message', ({ answer, error }) => {
        child.off('exit', died)
        if (error === undefined) resolve(answer)
        else reject(new Error(error))
      })
      child.send(job)
    })
  return { send, stop: () => child.disconnect() }
}
