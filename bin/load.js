/**
 * Loads what the build put into dist/program: functions of (require, module, importMeta), compiled from V8's code cache where the build
 * left one. V8 refuses a cache that another node has made, and then compiles as ever; nothing is written here.
 */
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { pathToFileURL } = require('node:url')
const { Script } = require('node:vm')

const folder = join(__dirname, '..', 'dist', 'program')

/** Every part loaded so far, by its file name: what it exports, and its script, of which the build makes the cache. */
const loaded = new Map()

/** The code cache of a part, if the build has left one. */
function cacheOf(path) {
  try {
    return readFileSync(`${path}.cache`)
  } catch (error) {
    if (error.code === 'ENOENT') return undefined
    throw error
  }
}

/** What the part of this file name exports. Parts may name each other in circles: like modules of node they then see what is there so far. */
function load(name) {
  const known = loaded.get(name)
  if (known !== undefined) return known.exports
  const path = join(folder, name)
  const cachedData = cacheOf(path)
  const script = new Script(readFileSync(path, 'utf8'), { filename: path, ...(cachedData && { cachedData }) })
  const part = { script, exports: {} }
  loaded.set(name, part)
  script.runInThisContext()(requireFrom, part, {
    get url() {
      return pathToFileURL(path).href
    },
  })
  return part.exports
}

const requireFrom = (name) => (name.startsWith('./') ? load(name.slice(2)) : require(name))

module.exports = { load, loaded, folder }
