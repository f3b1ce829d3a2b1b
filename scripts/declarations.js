// Writes the declaration files. Out of their comments goes what only our repository explains: sections of our
// documents and the names of our rules. Out of their imports go the names that only our package.json resolves.
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = join(import.meta.dirname, '..')
const compiler = join(
  dirname(createRequire(import.meta.url).resolve('typescript/package.json')),
  'bin/tsc',
)

const number = '\\d+(?:\\.\\d+)*'
const rules = `(?: rules? \\d+(?:(?:,| to| and|, and) \\d+)*)?`
const section = `(?:(?:spec|contract|domain|robustness) )?§${number}(?:[–-]§?${number})?${rules}`
const cite = `(?:(?:the )?${section}|(?:robustness )?[RT]\\d+(?:(?:-| to )[RT]\\d+)?|docs/[\\w/-]+\\.md)`
const list = `${cite}(?:(?:,|;| and|, and| or) ${cite})*`
// A blank of a pattern is a line break of a comment too.
const like = (pattern, flags = 'g') =>
  new RegExp(pattern.replaceAll(' ', '(?:[ \\t]*\\n[ \\t]*\\* ?|[ \\t]+)'), flags)

/** `(§2, R7)` whole; `(§2, exit 75)` and `(exit 75; §2)` but for the citation. */
const cuts = [
  [like(` \\((?:see |as )?${list}(?:, [A-Z]\\w+(?: \\w+)*)?\\)`), ''],
  [like(`\\((?:see )?${list}[,;:] `), '('],
  [like(`[,;] (?:by |see )?${list}\\)`), ')'],
  [like(` (?:Source|Sources|Design): [^.]*?${cite}[^*]*?(?:\\.(?=\\s)|(?=\\s*\\*/))`), ''],
  [
    like(`^(\\s*/?\\*\\*? )${cite}: (\\w)`, 'gm'),
    (_, before, first) => before + first.toUpperCase(),
  ],
]

/** A text of declarations without citations. */
export const withoutCitations = (text) =>
  text.replace(/\/\*\*?[\s\S]*?\*\//g, (comment) =>
    cuts.reduce((left, [pattern, by]) => left.replace(pattern, by), comment),
  )

/** Declarations of the library below `folder`. */
export function declarations(folder) {
  execFileSync(process.execPath, [
    compiler,
    '-p',
    join(root, 'tsconfig.build.json'),
    '--outDir',
    folder,
  ])
  for (const name of readdirSync(folder, { recursive: true })) {
    if (!name.endsWith('.d.ts')) continue
    const path = join(folder, name)
    const toCore = relative(dirname(path), join(folder, 'core')).replace(/^(?!\.)/, './')
    const plain = readFileSync(path, 'utf8').replace(/(['"])#([^'"]+)\1/g, `'${toCore}/$2.js'`)
    writeFileSync(path, withoutCitations(plain))
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) declarations(join(root, 'dist/types'))
