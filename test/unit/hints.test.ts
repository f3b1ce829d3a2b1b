/** A hint that names a command is of use only where that command is there (style: errors say what to do next). */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { describe, expect, test } from 'vitest'
import { verbs } from '../../src/commands/program.js'
import { damaged, outOfSpace } from '../../src/core/storage/failures.js'
import { fakeContext } from '../support/cli.js'

const source = join(import.meta.dirname, '../../src')

/** A command as a hint or a help names it: in backticks, on a line of an example, behind a word that leads to it. Words up to a flag or value. */
const command = /(?:`|\\n {2}|next: |\| |first: {3}|hint: '|give it as )proposer ((?:[a-z][a-z-]*(?![\w.…]) ?)+)/g

interface Named {
  readonly place: string
  readonly words: readonly string[]
}

/** Every command named in the text of a source file. */
function commandsIn(place: string, text: string): Named[] {
  // An inner backtick of a template stands escaped.
  return [...text.replaceAll('\\`', '`').matchAll(command)].map(([, words = '']) => ({ place, words: words.trim().split(' ') }))
}

const named = readdirSync(source, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .flatMap((name) => commandsIn(name, readFileSync(join(source, name), 'utf8')))
  // Seeds of the dev chain's keys and addresses.
  .filter(({ words }) => words[0] !== 'dev' || words[1] !== 'chain')

async function commandOf(verb: string): Promise<Command | undefined> {
  return Object.hasOwn(verbs, verb) ? (await verbs[verb]?.load())?.(fakeContext('/nowhere').context) : undefined
}

/** What of a named command is not there; `undefined` where all is. */
async function missing([verb = '', sub]: readonly string[]): Promise<string | undefined> {
  const found = await commandOf(verb)
  if (found === undefined) return verb
  // A command without arguments of its own takes nothing but one of its subcommands.
  const takesArguments = found.registeredArguments.length > 0
  if (sub === undefined || found.commands.length === 0 || takesArguments) return undefined
  return found.commands.some((one) => one.name() === sub) ? undefined : `${verb} ${sub}`
}

describe('style: commands named in hints and helps', () => {
  test('are found by this scan, whichever way they are written', () => {
    const text =
      "'run `proposer a b`' `\\`proposer c <id>\\`` '\\n  proposer d --x' `next: proposer e` 'the proposer is' `proposer trust init --from`"
    expect(commandsIn('x', text).map(({ words }) => words.join(' '))).toEqual(['a b', 'c', 'd', 'e', 'trust init'])
    expect(named.length).toBeGreaterThan(100)
    expect(new Set(named.map(({ words }) => words[0]))).toContain('replay')
  })

  test('exist as verbs, and their subcommands as such', async () => {
    const wrong: string[] = []
    for (const { place, words } of named) {
      const lack = await missing(words)
      if (lack !== undefined) wrong.push(`${place}: proposer ${lack}`)
    }
    expect(wrong).toEqual([])
    expect(await missing(['store', 'repair'])).toBe('store')
    expect(await missing(['trust', 'repair'])).toBe('trust repair')
  })

  test('are not named without the program, as commands of it that are not there', () => {
    const bare = /`(?:operator|store|candidates|questions|conformance|support-bundle|completion) [a-z]/
    const wrong = readdirSync(source, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .filter((name) => bare.test(readFileSync(join(source, name), 'utf8')))
    expect(wrong).toEqual([])
  })

  test('robustness §2: damage and a full disk are told alike by client and gateway: neither names what only the other does', () => {
    const damage = damaged('journal/x/log-0.jsonl', 24, 'its checksum differs')
    expect(damage.meta.hint).toMatch(/backup.*sound/)
    expect(damage.detail).toContain('byte 24')
    expect(outOfSpace('journal').meta.hint).not.toMatch(/seconds|store/)
  })
})
