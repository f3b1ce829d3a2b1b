/** README.md as tests use it: its sections, its code, and a shell in which `proposer` is this program. */
import { type ChildProcess, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const readme = readFileSync(join(root, 'README.md'), 'utf8')

/** Lines that are no code, with where they stand. */
const headings = () => {
  let isCode = false
  return readme.split('\n').flatMap((line, at) => {
    if (line.startsWith('```')) isCode = !isCode
    const [, marks = '', title = ''] = isCode ? [] : (/^(#+) (.*)$/.exec(line) ?? [])
    return title === '' ? [] : [{ at, level: marks.length, title }]
  })
}

/** What stands below a heading, deeper headings included. Throws where there is no such heading. */
export function section(title: string): string {
  const all = headings()
  const index = all.findIndex((one) => one.title === title)
  const found = all[index]
  if (found === undefined) throw new Error(`README.md has no heading "${title}"`)
  const next = all.slice(index + 1).find(({ level }) => level <= found.level)
  return readme
    .split('\n')
    .slice(found.at + 1, next?.at)
    .join('\n')
}

/** The code blocks of one language in a text, in their order. */
export const blocksIn = (text: string, language: string): readonly string[] =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, code = '']) => code)

/** Every code block with its language and the heading right above it. */
export function everyBlock(): readonly { readonly heading: string; readonly language: string; readonly code: string }[] {
  const lines = readme.split('\n')
  const above = headings()
  const found: { heading: string; language: string; code: string }[] = []
  for (let at = 0; at < lines.length; at++) {
    const language = /^```(.*)$/.exec(lines[at] ?? '')?.[1]
    if (language === undefined) continue
    const end = lines.indexOf('```', at + 1)
    found.push({ heading: above.findLast((one) => one.at < at)?.title ?? '', language, code: lines.slice(at + 1, end).join('\n') })
    at = end
  }
  return found
}

/** Ports that were free a moment ago. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer())
  for (const server of servers) {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(0, '127.0.0.1', resolve)
    })
  }
  const ports = servers.map((server) => (server.address() as AddressInfo).port)
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
  return ports
}

export interface ShellEnded {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface Shell {
  /** Resolves with the script's exit code, though what it started may go on. */
  readonly exited: Promise<number | null>
  /** Ends the script and all it started; all that was printed. */
  end(): Promise<ShellEnded>
}

const itself = `exec '${process.execPath}' '${join(root, 'bin', 'proposer.js')}' "$@"`

/** Starts a script in `folder`, in a shell whose `proposer` is this program, or another script; failing lines end it. */
export async function startShell(
  folder: string,
  script: string,
  { proposer = itself, env = {} }: { readonly proposer?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Shell> {
  await writeFile(join(folder, 'proposer'), `#!/bin/sh\n${proposer}\n`)
  await chmod(join(folder, 'proposer'), 0o755)
  const child = spawn('sh', ['-eu', '-c', script], {
    cwd: folder,
    env: { PATH: [folder, dirname(process.execPath), process.env.PATH].join(delimiter), TMPDIR: folder, NO_COLOR: '1', ...env },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const exited = new Promise<number | null>((resolve, reject) => child.once('error', reject).once('exit', resolve))
  const closed = printed(child)
  return {
    exited,
    async end() {
      endGroup(child.pid)
      return closed
    },
  }
}

/** Runs a script to its end; what it left running is ended with it. */
export async function shell(...given: Parameters<typeof startShell>): Promise<ShellEnded> {
  const started = await startShell(...given)
  try {
    await started.exited
  } finally {
    await started.end()
  }
  return started.end()
}

/** All that a child and its children print, once the last of them has ended. */
function printed(child: ChildProcess): Promise<ShellEnded> {
  let stdout = ''
  let stderr = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })))
}

/** What a script has left running goes with its process group. */
function endGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGTERM')
  } catch (error) {
    // Nothing of it is left, which is how it should be.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}
