/**
 * Compiled code of an earlier run, in the user's cache folder: most of what a short command takes.
 * Node's own cache (22 and later) lacks all that is compiled while a command runs.
 */
import {
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Script } from 'node:vm'
import { crc32 } from 'node:zlib'

/** Never throws. */
export function keepCompiled(process: NodeJS.Process) {
  const folder = ownFolder(process)
  if (folder === undefined) return
  const { extensions } = createRequire(import.meta.url)
  const load = extensions['.js']
  const parts = dirname(fileURLToPath(import.meta.url))
  const fresh: (() => void)[] = []
  process.once('exit', () => {
    for (const keep of fresh) keep()
  })
  extensions['.js'] = (module, path) => {
    if (dirname(path) !== parts) return load?.(module, path)
    const name = `${basename(path)}.${process.version}-${process.arch}`
    const script = scriptOf(path, join(folder, name), fresh)
    const run = script.runInThisContext()
    run.call(module.exports, module.exports, module.require.bind(module), module, path, parts)
  }
}

const opening = Buffer.from('(function (exports, require, module, __filename, __dirname) { ')
const closing = Buffer.from('\n})')

function scriptOf(path: string, file: string, fresh: (() => void)[]) {
  // Joined before it is a string: of two strings V8 makes a third, and cleans up after that.
  const source = Buffer.concat([opening, readFileSync(path), closing])
  const kept = bytesOf(file)
  const cachedData = kept?.subarray(0, -4)
  const isWhole =
    cachedData?.length && sumOf(source, cachedData) === kept?.readUInt32LE(cachedData.length)
  const script = new Script(source.toString('latin1'), {
    filename: path,
    ...(isWhole && { cachedData }),
  })
  // V8 rejects what another build of it made.
  if (script.cachedDataRejected !== false) {
    const isStale = (kept?.length ?? 0) > 0
    fresh.push(() => keep(file, script, source, isStale))
  }
  return script
}

/** V8 compares no more of a source than its length. */
const sumOf = (source: Buffer, data: Buffer) => crc32(data, crc32(source))

function bytesOf(file: string) {
  try {
    return readFileSync(file)
  } catch {
    return
  }
}

/** It is code that is run: the folder is ours alone. */
function ownFolder({ env, getuid }: NodeJS.Process) {
  if (getuid === undefined || env.SUDO_UID || env.NODE_DISABLE_COMPILE_CACHE) return
  try {
    const folder = join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'proposer')
    if (!isAbsolute(folder)) return
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    const { uid, mode } = lstatSync(folder)
    return uid === getuid() && (mode & 0o170_077) === 0o040_000 ? folder : undefined
  } catch {
    return
  }
}

function keep(file: string, script: Script, source: Buffer, isStale: boolean) {
  try {
    if (isStale) rmSync(file)
    const to = openSync(file, 'wx', 0o600)
    try {
      const data = script.createCachedData()
      const sum = Buffer.alloc(4)
      sum.writeUInt32LE(sumOf(source, data))
      writeFileSync(to, Buffer.concat([data, sum]))
    } catch {
      // A full disk: the empty file stays, so that not every command tries again.
      ftruncateSync(to)
    }
  } catch {
    // Another process keeps it meanwhile, or the folder is read-only.
  }
}
