import { spawn } from 'node:child_process'

interface HookOptions {
  readonly cwd: string
  readonly env: Readonly<Record<string, string | undefined>>
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** Without a shell. Resolves with what went wrong, if anything. */
export function runHook(
  program: string,
  line: string,
  { cwd, env, timeoutMs, signal }: HookOptions,
) {
  return new Promise((resolve) => {
    const child = spawn(program, [], { cwd, env: { ...env }, stdio: ['pipe', 2, 2] })
    let ended: string | undefined
    const kill = (why: string) => {
      ended = why
      child.kill('SIGKILL')
    }
    const timer = setTimeout(() => kill(`did not end within ${timeoutMs / 1000} s`), timeoutMs)
    const stop = () => kill('was stopped')
    signal.addEventListener('abort', stop)
    if (signal.aborted) stop()
    const end = (fault: string | undefined) => {
      clearTimeout(timer)
      signal.removeEventListener('abort', stop)
      resolve(ended ?? fault)
    }
    child.on('error', ({ message }) => end(`cannot be run: ${message}`))
    child.on('exit', (code, by) =>
      end(code === 0 ? undefined : by === null ? `ended with ${code}` : `was ended by ${by}`),
    )
    child.stdin?.on('error', () => undefined).end(`${line}\n`)
  })
}
