import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { openCheck } from '#checks/doctor'
import { gatewayContexts } from '#client/trust/context'
import { planRevocations, reconcileText } from '#client/wallet/transactions'
import { verbs } from '#commands/verbs'
import { fakeContext } from '#support/cli'
import { makeWorld, submitIntent } from '#support/client-world'

const source = join(import.meta.dirname, '../../src')
const alerts = join(import.meta.dirname, '../../deploy/prometheus/alerts.yml')

const command =
  /(?:`|\\n {2}|next: |\| |first: {3}|hint: '|give it as )proposer ((?:[a-z][a-z\d-]*(?![\w.…]) ?)+)/g

interface Named {
  readonly place: string
  readonly words: readonly string[]
}

function commandsIn(place: string, text: string): Named[] {
  // An inner backtick of a template stands escaped.
  return [...text.replaceAll('\\`', '`').matchAll(command)].map(([, words = '']) => ({
    place,
    words: words.trim().split(' '),
  }))
}

const named = readdirSync(source, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .flatMap((name) => commandsIn(name, readFileSync(join(source, name), 'utf8')))
  .concat(commandsIn('deploy/prometheus/alerts.yml', readFileSync(alerts, 'utf8')))
  .filter(({ words }) => words[0] !== 'dev' || words[1] !== 'chain')

async function commandOf(verb: string): Promise<Command | undefined> {
  return Object.hasOwn(verbs, verb)
    ? (await verbs[verb]?.load())?.(fakeContext('/nowhere').context)
    : undefined
}

async function missing([verb = '', sub]: readonly string[]): Promise<string | undefined> {
  if (verb === 'help') return undefined
  const found = await commandOf(verb)
  if (found === undefined) return verb
  const takesArguments = found.registeredArguments.length > 0
  if (sub === undefined || found.commands.length === 0 || takesArguments) return undefined
  return found.commands.some((one) => one.name() === sub) ? undefined : `${verb} ${sub}`
}

describe('style: commands named in hints and helps', () => {
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
})

describe('contract §6: a question that is known is named', () => {
  const conflicted = async () => {
    const world = makeWorld()
    const { parts, intent } = world.run()
    world.gateway.faults.push({ status: 409, code: 'candidate_conflict' })
    const { journalId } = await world.drive(submitIntent(parts, intent))
    const view = await world.journal()
    return {
      world,
      parts,
      view,
      id: journalId,
      command: `\`proposer reconcile ${world.gateway.question.question_id}\``,
    }
  }

  test('by the doctor where a 409 is left to reconcile', async () => {
    const { world, view, command } = await conflicted()
    expect(openCheck(view, world.clock.nowMs())).toMatchObject({ result: 'warn', fix: command })
  })

  test('by revoke, for what is journaled later', async () => {
    const { world, parts, id, command } = await conflicted()
    const { questionIds } = await world.drive(planRevocations(parts, [id], undefined))
    expect(reconcileText(questionIds)).toBe(command)
    expect(reconcileText(['a', 'b'])).toBe('`proposer reconcile a` and `proposer reconcile b`')
  })

  test('by a context that the gateway refuses with 409', async () => {
    const { world, command } = await conflicted()
    const identifier = world.gateway.question.question_id
    const refused = {
      identifier,
      status_code: 409,
      error: { code: 'request_not_open', detail: 'It is proposed.' },
    }
    const fetch = async () => Response.json({ results: [refused] })
    const [result] = await gatewayContexts(
      world.run({ fetch }).client,
      world.trust,
      world.clock,
    ).contexts([identifier])
    expect(result?.error?.meta.hint).toContain(command)
  })

  test('and nowhere stands a placeholder in its place', () => {
    const wrong = readdirSync(source, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .filter((name) =>
        readFileSync(join(source, name), 'utf8').includes('proposer reconcile <identifier>'),
      )
    expect(wrong).toEqual([])
  })
})
