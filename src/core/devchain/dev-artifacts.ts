import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Abi } from 'viem'
import type { Hex } from '#ports'
import { UsageError } from '#protocol/errors'
import type { OutcomeKey } from '#protocol/schema'

export interface Artifact {
  readonly abi: Abi
  readonly code: Hex
}

let contracts: Readonly<Record<string, Artifact>> | undefined

export function artifact(name: string): Artifact {
  contracts ??= packaged<{ contracts: Record<string, Artifact> }>('artifacts.json').contracts
  const found = contracts[name]
  if (found === undefined)
    throw new UsageError('dev_chain_failed', `The package has no compiled contract ${name}.`)
  return found
}

/** Sources lie three folders below the root, the built program one. */
export function packaged<Content>(name: string): Content {
  let folder = dirname(fileURLToPath(import.meta.url))
  for (let up = 0; up < 5; up += 1) {
    try {
      return JSON.parse(readFileSync(join(folder, 'fixtures', 'contracts', name), 'utf8'))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      folder = dirname(folder)
    }
  }
  throw new UsageError(
    'dev_chain_failed',
    `The package lacks fixtures/contracts/${name}.`,
    'reinstall the package',
  )
}

/** Without a third label 50-50 is not an answer. */
interface Examples {
  readonly common_rules: string
  readonly questions: readonly {
    readonly slug: string
    readonly title: string
    readonly rules: string
    readonly labels: readonly string[]
  }[]
}

let examples: Examples | undefined

/**
 * As long and as shaped as real ones (domain §5.3), the same on every chain. The adapter adds a
 * suffix.
 */
export function exampleQuestion(n: number) {
  examples ??= packaged<Examples>('questions.json')
  const { common_rules, questions } = examples
  const example = questions[n % questions.length]
  if (example === undefined) throw new RangeError('no example question')
  const { slug, title, rules, labels } = example
  const edition = Math.floor(n / questions.length) + 1
  const named = edition === 1 ? title : `${title} (edition ${edition})`
  const prices = ['p1: 0', 'p2: 1', 'p3: 0.5'].slice(0, labels.length).join(', ')
  const answers = labels.map((label, at) => `p${at + 1} to ${label}`).join(', ')
  const text =
    `q: title: ${named}, description: ${rules} ${common_rules} res_data: ${prices}. ` +
    `Where ${answers.replace('to', 'corresponds to')}. ` +
    'Updates made by the question creator via the bulletin board should be considered.'
  return {
    slug: edition === 1 ? slug : `${slug}-${edition}`,
    text,
    outcomes: listedOutcomes(text),
  }
}

/** By the last `res_data:` (domain §5.3). */
export function listedOutcomes(text: string): readonly OutcomeKey[] {
  const answers = text.slice(Math.max(text.lastIndexOf('res_data:'), 0))
  return /p3: 0\.5\b/.test(answers) ? ['p1', 'p2', 'p3'] : ['p1', 'p2']
}
