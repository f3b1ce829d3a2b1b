// What the bundles leave out of other packages, as plugins of esbuild: each was measured to matter at the start of a command
// (`npm run bench -- --rows 6,7`). A package whose text is not the one that is expected stops the build.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname } from 'node:path'

/** `text` with `from` replaced, which has to be there. */
function replaced(path, text, from, to) {
  if (!text.includes(from)) throw new Error(`${path} does not say ${from}`)
  return text.replace(from, () => to)
}

/** zod carries its messages in fifty languages, most of its weight; ours are in English. */
const englishOnly = {
  name: 'english-only',
  setup(build) {
    build.onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, ({ path }) => ({
      contents: "export { default as en } from './en.js'",
      resolveDir: dirname(path),
    }))
  },
}

/** `z` as a namespace import, which sheds what is not used of zod; named, it is one object that holds all of it. */
const shedZod = {
  name: 'shed-zod',
  setup(build) {
    build.onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8')
      return { contents: text.replace("import { z } from 'zod'", "import * as z from 'zod'"), loader: 'ts' }
    })
  },
}

/** How many colours a terminal has is asked of node's streams; only the spinner asks, and it is shown on terminals alone. */
const fewColours = {
  name: 'few-colours',
  setup(build) {
    build.onLoad({ filter: /[\\/]supports-color[\\/]index\.js$/ }, () => ({
      contents: 'export default { stdout: { level: 1 }, stderr: { level: 1 } }',
    }))
  },
}

/** commander can start other programs as its commands; ours has none, and node:child_process brings half of node with it. */
const noChildren = {
  name: 'no-children',
  setup(build) {
    build.onLoad({ filter: /[\\/]commander[\\/]lib[\\/]command\.js$/ }, ({ path }) => ({
      contents: replaced(path, readFileSync(path, 'utf8'), "require('node:child_process')", 'undefined'),
    }))
  },
}

/** The JavaScript around libsecp256k1's binding, which node would look for and compile at each start; the binding itself stays where it is. */
const aroundBinding = {
  name: 'around-binding',
  setup(build) {
    const plain = "createRequire(import.meta.url)('secp256k1/bindings.js')"
    const around = ['secp256k1/lib/index.js', 'node-gyp-build/node-gyp-build.js'].map(pathOf)
    // An optional package: without it the program looks for it at run time, as it stands in the source.
    if (around.includes(undefined)) return
    const [library, load] = around.map((path) => JSON.stringify(path))
    const folder = "createRequire(import.meta.url).resolve('secp256k1/package.json').replace(/package\\.json$/, '')"
    const loaded = `require(${library})(new (require(${load})(${folder}).Secp256k1)())`
    build.onLoad({ filter: /[\\/]src[\\/]core[\\/]io[\\/]native-curve\.ts$/ }, ({ path }) => ({
      contents: replaced(path, readFileSync(path, 'utf8'), plain, loaded),
      loader: 'ts',
    }))
  },
}

/** Where node finds a module, or `undefined` where it is not installed. */
function pathOf(name) {
  try {
    return createRequire(import.meta.url).resolve(name)
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return undefined
    throw error
  }
}

/**
 * undici's own index loads all of it and, for the globals that node has of the same names, node's copy too: a quarter of a call's time. Ours
 * use three of its exports, always with a dispatcher of their own.
 */
const leanUndici = {
  name: 'lean-undici',
  setup(build) {
    build.onLoad({ filter: /[\\/]undici[\\/]index\.js$/ }, () => ({
      contents: `
        const Dispatcher = require('./lib/dispatcher/dispatcher')
        const { parseURL } = require('./lib/core/util')
        Object.assign(Dispatcher.prototype, require('./lib/api'))
        exports.Agent = require('./lib/dispatcher/agent')
        exports.fetch = (input, init) => require('./lib/web/fetch').fetch(input, init)
        exports.request = (input, { dispatcher, ...options }) => {
          const { origin, pathname, search } = parseURL(input)
          return dispatcher.request({ ...options, origin, path: pathname + search })
        }`,
    }))
  },
}

/** For the command line and the library alike. */
export const slimPackages = [englishOnly, fewColours, noChildren, leanUndici, shedZod]
/** For the command line, which is installed with its binding beside it. */
export const slimBinding = aroundBinding
