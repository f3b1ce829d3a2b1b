import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'

export const root = join(import.meta.dirname, '../..')

export const pages: readonly string[] = [
  'README.md',
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name.replaceAll('\\', '/')}`)
    .sort(),
]

export const pageText = (page: string): string => readFileSync(join(root, page), 'utf8')

export function headingsOf(text: string) {
  let isCode = false
  return text.split('\n').flatMap((line, at) => {
    if (line.startsWith('```')) isCode = !isCode
    const [, marks = '', title = ''] = isCode ? [] : (/^(#+) (.*)$/.exec(line) ?? [])
    return title === '' ? [] : [{ at, level: marks.length, title }]
  })
}

export function section(title: string, page = 'README.md'): string {
  const text = pageText(page)
  const all = headingsOf(text)
  const index = all.findIndex((one) => one.title === title)
  const found = all[index]
  if (found === undefined) throw new Error(`${page} has no heading "${title}"`)
  const next = all.slice(index + 1).find(({ level }) => level <= found.level)
  return text
    .split('\n')
    .slice(found.at + 1, next?.at)
    .join('\n')
}

export const blocksIn = (text: string, language: string): readonly string[] =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(
    ([, code = '']) => code,
  )

export interface Block {
  readonly page: string
  readonly heading: string
  readonly language: string
  readonly notRun: string | undefined
  readonly code: string
}

export function everyBlock(): readonly Block[] {
  return pages.flatMap((page) => {
    const text = pageText(page)
    const lines = text.split('\n')
    const above = headingsOf(text)
    const found: Block[] = []
    for (let at = 0; at < lines.length; at++) {
      const info = /^```(.*)$/.exec(lines[at] ?? '')?.[1]
      if (info === undefined) continue
      const end = lines.indexOf('```', at + 1)
      const [, language = '', notRun] = /^(\S*?)(?: not-run: (.+))?$/.exec(info) ?? [info, info]
      const heading = above.findLast((one) => one.at < at)?.title ?? ''
      found.push({ page, heading, language, notRun, code: lines.slice(at + 1, end).join('\n') })
      at = end
    }
    return found
  })
}

interface Runner {
  readonly page: string
  readonly heading?: string
  readonly languages: readonly string[]
  readonly file: string
}

const proposer = { languages: ['sh'], file: 'test/e2e/readme-proposer.test.ts' }
const drill = { file: 'test/e2e/failover-drill.test.ts' }
const smoke = { page: 'docs/ci.md', file: 'test/e2e/smoke-recipe.test.ts' }

/**
 * The tests that run blocks of their own page or section. All other `sh` blocks are run by
 * test/e2e/docs.test.ts, each in a shell that has a gateway to talk to.
 */
export const runners: readonly Runner[] = [
  { page: 'README.md', heading: 'A first session', ...proposer },
  { page: 'docs/proposing.md', heading: "A day's work", ...proposer },
  { page: 'docs/proposing.md', heading: 'Set up once', ...proposer },
  { page: 'docs/proposing.md', heading: 'Tab key and manual', ...proposer },
  { page: 'docs/proposing.md', heading: 'Asking for support', ...proposer },
  { page: 'docs/operating.md', heading: 'Failover drill', ...drill, languages: ['sh'] },
  { page: 'docs/operating.md', heading: 'Roles and rights', ...drill, languages: ['sql'] },
  {
    page: 'docs/operating.md',
    heading: 'Restore drill',
    languages: ['sh'],
    file: 'test/e2e/restore-drill.test.ts',
  },
  {
    page: 'docs/operating.md',
    languages: ['sh', 'json'],
    file: 'test/e2e/readme-operator.test.ts',
  },
  {
    page: 'docs/reference/configuration.md',
    heading: 'gateway.json',
    languages: ['jsonc'],
    file: 'test/e2e/readme-operator.test.ts',
  },
  {
    page: 'docs/reference/configuration.md',
    heading: 'trust.json',
    languages: ['json'],
    file: 'test/unit/docs.test.ts',
  },
  { ...smoke, heading: 'A smoke test', languages: ['sh'] },
  { ...smoke, heading: 'Any gateway', languages: ['sh'] },
  { ...smoke, heading: 'A gateway that goes wrong on purpose', languages: ['json'] },
  { page: 'docs/library.md', languages: ['ts'], file: 'test/e2e/library.test.ts' },
]

export const isShown = ({ language }: Block): boolean => language === 'text'

export const runnerOf = (block: Block): Runner | undefined =>
  runners.find(
    ({ page, heading, languages }) =>
      page === block.page &&
      (heading ?? block.heading) === block.heading &&
      languages.includes(block.language),
  )

export const anchorOf = (title: string): string =>
  title
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')

export interface ShellEnded {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

interface Shell {
  readonly exited: Promise<number | null>
  end(): Promise<ShellEnded>
}

const itself = `exec '${process.execPath}' '${join(root, 'bin', 'proposer.js')}' "$@"`

async function startShell(
  folder: string,
  script: string,
  {
    proposer = itself,
    env = {},
  }: { readonly proposer?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Shell> {
  await writeFile(join(folder, 'proposer'), `#!/bin/sh\n${proposer}\n`)
  await chmod(join(folder, 'proposer'), 0o755)
  const child = spawn('sh', ['-eu', '-c', script], {
    cwd: folder,
    env: {
      PATH: [folder, dirname(process.execPath), process.env.PATH].join(delimiter),
      TMPDIR: folder,
      NO_COLOR: '1',
      ...env,
    },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const exited = new Promise<number | null>((resolve, reject) =>
    child.once('error', reject).once('exit', resolve),
  )
  const closed = printed(child)
  return {
    exited,
    async end() {
      endGroup(child.pid)
      return closed
    },
  }
}

export async function shell(...given: Parameters<typeof startShell>): Promise<ShellEnded> {
  const started = await startShell(...given)
  try {
    await started.exited
  } finally {
    await started.end()
  }
  return started.end()
}

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

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGTERM')
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}
