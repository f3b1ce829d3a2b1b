/**
 * Loads what the build put into dist/program: files of parts, functions of (require, module, importMeta), compiled from V8's code cache where
 * the build left one. V8 refuses a cache that another node has made, and then compiles as ever; nothing is written here.
 */
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { pathToFileURL } = require('node:url')
const { Script } = require('node:vm')

const folder = join(__dirname, '..', 'dist', 'program')

/** The script of every file read so far, of which the build makes the cache. */
const scripts = new Map()
/** The functions of the parts in them, and what those that have run export, by name. */
const functions = new Map()
const loaded = new Map()

/** The file that holds a part: its pack, or one of its own name. */
let packOf = {}

/** The code cache of a file, if the build has left one. */
function cacheOf(path) {
  try {
    return readFileSync(`${path}.cache`)
  } catch (error) {
    if (error.code === 'ENOENT') return undefined
    throw error
  }
}

function read(name) {
  const path = join(folder, name)
  const cachedData = cacheOf(path)
  const script = new Script(readFileSync(path, 'utf8'), { filename: path, ...(cachedData && { cachedData }) })
  scripts.set(name, script)
  const file = script.runInThisContext()
  for (const part in file.parts) functions.set(part, file.parts[part])
  if (file.packOf) packOf = file.packOf
}

/** What the part of this name exports. Parts may name each other in circles: like modules of node they then see what is there so far. */
function load(name) {
  const known = loaded.get(name)
  if (known !== undefined) return known.exports
  if (!functions.has(name)) read(packOf[name] ?? name)
  const part = { exports: {} }
  loaded.set(name, part)
  functions.get(name)(requireFrom, part, {
    get url() {
      return pathToFileURL(join(folder, name)).href
    },
  })
  return part.exports
}

const requireFrom = (name) => (name.startsWith('./') ? load(name.slice(2)) : require(name))

module.exports = { load, loaded, functions, scripts, folder }
