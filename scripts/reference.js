// Makes docs/reference/library.md of the library's declarations.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'oxc-parser'

const groups = [
  ['A proposer', /^core\/bot\//],
  ['Errors', /protocol\/errors|core\/ports\.d\.ts: \w+Error$/],
  ['Schemas of the wire', /protocol\/(schema|fields|responses)/],
  ['Digests and payloads', /protocol\/(witness|proposal|signature|words)/],
  ['The client in parts', /^core\/client\//],
  ['The gateway', /^core\/(gateway|host|chain)\/|protocol\/(openapi|call)/],
  ['The machine', /./],
]

/** The words of the comment that ends right before a declaration. */
function docOf(text, start) {
  const before = text.slice(0, start).trimEnd()
  if (!before.endsWith('*/')) return ''
  const lines = before.slice(before.lastIndexOf('/**') + 3, -2).split('\n')
  return lines
    .map((line) => line.replace(/^\s*\* ?/, '').trim())
    .join('\n')
    .trim()
}

/** What a module declares by name: its declaration, and its type where one name is both. */
function declaredIn(path) {
  const text = readFileSync(path, 'utf8')
  const { body } = parseSync(path, text).program
  const found = new Map()
  const returned = (name) => {
    const own = body.map((node) => node.declaration ?? node).find(({ id }) => id?.name === name)
    const { start, end } = own?.returnType?.typeAnnotation ?? {}
    return start && text.slice(start, end).replace(/^Promise<(.*)>$/s, '$1')
  }
  for (const node of body) {
    const { type, declaration } = node
    if (type !== 'ExportNamedDeclaration' || !declaration) continue
    const name = (declaration.id ?? declaration.declarations?.[0]?.id)?.name
    const code = text
      .slice(declaration.start, declaration.end)
      .replace(/^declare /, '')
      .replace(/(?:Awaited<)?ReturnType<typeof (\w+)>+(?=;$)/, (all, of) => returned(of) ?? all)
    const one = { code, doc: docOf(text, node.start) }
    found.set(name, [...(found.get(name) ?? []), one])
  }
  return found
}

/** Everything that library.d.ts hands on: its name, where from, and its declarations. */
function exportsOf(folder) {
  const text = readFileSync(join(folder, 'library.d.ts'), 'utf8')
  return [...text.matchAll(/^export (?:type )?(\*|\{[^}]*\}) from '(.*)\.js';$/gm)].flatMap(
    ([, names, module]) => {
      const path = `${module.replace(/^\.\//, '')}.d.ts`
      const declared = declaredIn(join(folder, path))
      const pairs =
        names === '*'
          ? [...declared.keys()].map((name) => [name, name])
          : names
              .slice(1, -1)
              .split(',')
              .map((one) => one.trim().replace(/^type /, ''))
              .filter(Boolean)
              .map((one) => [one.split(' as ')[0], one.split(' as ').at(-1)])
      return pairs.map(([own, name]) => ({ name, path, parts: declared.get(own) ?? [] }))
    },
  )
}

const isSchema = ({ parts }) => parts.some(({ code }) => /^const \w+: z\./.test(code))
const codeOf = ({ code }) =>
  code.replace(/^(class \w+ extends )\w+_base \{\s*\}$/, '$1ProposerError').replace(/^ {4}/gm, '  ')

function sectionOf(one) {
  const docs = [...new Set(one.parts.map(({ doc }) => doc))].filter(Boolean)
  const code = one.parts.map(codeOf).join('\n')
  return [`### ${one.name}`, ...docs, `\`\`\`text\n${code}\n\`\`\``].join('\n\n')
}

/** The page, of the declarations in a folder. */
export function referencePage(folder) {
  const all = exportsOf(folder).filter(
    ({ name }, at, some) => some.findIndex((one) => one.name === name) === at,
  )
  const groupOf = ({ path, name }) =>
    groups.find(([, pattern]) => pattern.test(`${path}: ${name}`))[0]
  const pages = groups.map(([title]) => {
    const own = all
      .filter((one) => groupOf(one) === title)
      .sort((a, b) => (a.name < b.name ? -1 : 1))
    const schemas = own.filter(isSchema).map(({ name, parts }) => {
      const doc = parts
        .map((one) => one.doc)
        .filter(Boolean)
        .join(' ')
        .replaceAll('\n', ' ')
      return `- \`${name}\`${doc && `: ${doc}`}`
    })
    const others = own.filter((one) => !isSchema(one)).map(sectionOf)
    return [
      `## ${title}`,
      ...(schemas.length ? [`${schemaIntro}\n\n${schemas.join('\n')}`] : []),
      ...others,
    ].join('\n\n')
  })
  return `${head}\n\n${pages.join('\n\n')}\n`
}

const schemaIntro =
  'A `zod/mini` schema and the type of what it reads, by one name. `/openapi.json` of a gateway shows their fields.'
const head = `# Reference of the library

Made by \`npm run manual\` from the declarations. [Library](../library.md) has programs to begin with.`
