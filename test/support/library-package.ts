import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { declarations } from '../../scripts/declarations.js'

const root = join(import.meta.dirname, '../..')
const compiler = join(
  dirname(createRequire(import.meta.url).resolve('typescript/package.json')),
  'bin',
  'tsc',
)
const inFolder = promisify(execFile)

export async function installLibrary(folder: string): Promise<void> {
  const modules = join(folder, 'node_modules')
  const dist = join(modules, 'proposer', 'dist')
  await mkdir(dist, { recursive: true })
  for (const name of ['library.js', 'package.json', 'parts'])
    await cp(join(root, 'dist', name), join(dist, name), { recursive: true })
  await cp(join(root, 'package.json'), join(modules, 'proposer', 'package.json'))
  declarations(join(dist, 'types'))
  const { dependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>
  }
  for (const name of Object.keys(dependencies))
    await symlink(join(root, 'node_modules', name), join(modules, name))
  await writeFile(join(folder, 'package.json'), JSON.stringify({ type: 'module' }))
}

export async function compile(folder: string, files: readonly string[]): Promise<string> {
  const types = join(folder, 'node_modules', '@types')
  await mkdir(types, { recursive: true })
  await symlink(join(root, 'node_modules', '@types', 'node'), join(types, 'node'))
  const compilerOptions = {
    target: 'es2023',
    lib: ['es2023'],
    module: 'nodenext',
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    types: ['node'],
  }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
  try {
    await inFolder(process.execPath, [compiler, '-p', folder])
    return ''
  } catch (error) {
    if (error instanceof Error && 'stdout' in error && typeof error.stdout === 'string')
      return error.stdout
    throw error
  }
}
