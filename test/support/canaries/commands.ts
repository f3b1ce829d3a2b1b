import type { Command } from 'commander'
import { verbs } from '#commands/verbs'
import { fakeContext } from '../cli.js'

export async function allCommands(): Promise<readonly string[]> {
  const { context } = fakeContext('/nowhere')
  const found: string[] = []
  const walk = (command: Command, path: readonly string[]) => {
    if (command.commands.length === 0 || Reflect.get(command, '_actionHandler') !== null)
      found.push(path.join(' '))
    for (const child of command.commands) walk(child, [...path, child.name()])
  }
  for (const [name, verb] of Object.entries(verbs)) walk((await verb.load())(context), [name])
  return found.sort()
}
