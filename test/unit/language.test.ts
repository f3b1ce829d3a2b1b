/** The words of the program: standard ones, and none of the sentences that had to be read twice. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { wholeProgram } from '../../src/commands/program.js'
import { openApiDocument } from '../../src/core/protocol/openapi.js'
import { fakeContext } from '../support/cli.js'
import { pages, root } from '../support/readme.js'

/** Sentences and turns of phrase that a reader stumbled over, with what stands in their place. */
const banned: readonly (readonly [RegExp, string])[] = [
  [/teach bash, zsh or fish/, 'generate shell completion scripts'],
  [/set journal, gateway and chain side by side/, 'compare journal, gateway and chain'],
  [/look after a gateway/, 'manage a gateway'],
  [/answer yes where a terminal/, 'skip confirmation prompts'],
  [/'its configuration'/, 'path of gateway.json'],
  [/of the input; default: by its extension/, 'input format'],
  [/a chain of its own, funded accounts/, 'run against a throwaway dev chain'],
  [/'where it listens/, 'port to listen on'],
  [/so many at most/, 'maximum number of rows'],
  [/where its key is not here/, 'if its key is held elsewhere'],
  [/bring back what that wallet/, 'attach the signature the wallet returned'],
  [/\} is forgotten`/, 'unset <key>'],
  [/mend what fails/, 'fix the failures above in order'],
  [/the chain's node did not answer/, 'the RPC node did not answer'],
  [/'look at --\w/, 'check --<flag>'],
  [/must ask a gateway, and none is named/, 'no gateway configured'],
  [/no key of a proposer is named/, 'no proposer account selected'],
  [/the allowance of .{0,40} is that already/, 'already has this value; nothing to do'],
  [
    /could propose already|may not propose any more/,
    'is already allowed, removed from the allowlist',
  ],
  [/['`]the (?:gateway's )?budget is spent/, 'rate limit reached'],
  [/waiting for the end:/, 'waiting for execution:'],
  [/rests on one public monitoring record/, 'could not be verified on chain'],
  [/The same again:/, 'Repeat password:'],
  [/what is as wished already/, 'commands are idempotent'],
  [/reader (?:that|who) takes no lines/, 'logging never blocks'],
  [/answers on loopback to loopback names only/, 'listens on loopback only'],
  [/look at it and run the same command again/, 'check it and retry'],
  [/run the same command again/, 'retry'],
  [/give it longer with --timeout/, 'raise --timeout'],
  [/, and no node is named/, 'needs a node, and none is configured'],
  [/the time (?:given )?ran out[,:`]/, 'the time limit was reached'],
  [/nothing came back within/, 'no response within'],
  [/must be Lowercase/, 'invalid address'],
  [/takes no writes any more|takes no writes now/, 'no longer accepts writes'],
  [/the budget of \S+ items per window is spent/, 'rate limit reached: … items per window'],
  [/[;`] ?came \$\{/, 'got …, expected …'],
  [/another candidate came|other candidates came/, 'got another candidate'],
  [/ is another one'|missing or another one/, 'differs; missing or different'],
  [/switched admission off/, 'has disabled admission'],
  [/did not arrive whole/, 'is incomplete; did not arrive completely'],
  [/gateway holds no such candidate/, 'candidate not found'],
  [/'there is no such route; paths/, 'route not found'],
  [/headers were sent, at most/, '…; at most … are accepted'],
  [/ is spoken here/, 'is supported'],
  [/this gateway speaks \$/, 'version is not supported; send …'],
  [/[^e] goes on with it'/, 'continues'],
  [/'(?:nothing was changed; )?look at chain\.rpc_urls/, 'check chain.rpc_urls'],
  [/the chain does not tell \$/, '… cannot be read from the chain now'],
  [/held up by the gateway/, 'blocked by the gateway'],
  [/Put this right:/, 'Fix this:'],
  [/if it shall go on/, 'to continue, …'],
  [/ stands there twice/, 'occurs twice'],
  [/is not served any more/, 'is no longer served'],
  [/holds nothing to pay gas/, 'has no balance to pay for gas'],
  [/, says the fault script/, '(fault script)'],
  [/\ba right gateway/, 'a correct gateway'],
  [/on loopback for good/, 'always on loopback'],
  [/stays the watch; a webhook is the bell/, 'a webhook is only the alarm'],
  [/['`]leave out (?:--|one\b|\$\{)/, 'omit'],
  [/make one with `proposer/, 'create one with'],
  [/\(EIP-55 or lowercase\), none twice/, 'distinct'],
  [/behind the number/, 'add the unit to the number'],
  [/a key that no gateway configuration has/, 'is not a configuration key'],
  [/was got too late/, 'was acquired too late'],
  [/The gateway says nothing\./, 'does not respond'],
  [/default: SUDO_USER, else/, 'or the system user'],
  [/otherwise than the logs tell/, 'differently from the logs'],
  [/fits \$\{fitting\.length\} answers/, 'matches … answers'],
  [/put a TLS proxy before it/, 'in front of it'],
  [/that no batch takes|which no batch takes/, 'which a batch does not accept'],
]

/** What a summary must not begin with: a clause, a noun with its article, the third person. */
const isNoVerb = (summary: string) =>
  /^(?:an?|the|its|all|every|one|what|where|whether|which|who|how|this|with(?:out)?|many|items|only)\b/i.test(
    summary,
  ) || /^(?!process\b|pass\b)\w+(?:s|ing)\b/i.test(summary)

const files = [
  ...readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => `src/${name}`),
  ...pages,
  'man/proposer.1',
  'SECURITY.md',
]

describe('what the program says', () => {
  test('the sentences that had to be read twice are gone', () => {
    const left = files.flatMap((file) => {
      const text = readFileSync(join(root, file), 'utf8').replaceAll('\\(aq', "'")
      return banned
        .filter(([pattern]) => pattern.test(text))
        .map(([pattern, better]) => `${file}: ${pattern.source}, better: ${better}`)
    })
    expect(left).toEqual([])
  })

  test('the list finds what it looks for', () => {
    const found = (text: string) => banned.some(([pattern]) => pattern.test(text))
    expect(found("hint: 'run the same command again later'")).toBe(true)
    expect(found("hint: 'retry later'")).toBe(false)
    expect(found("expectThat(isSame, seen, 'another candidate came')")).toBe(true)
    expect(found("expectThat(isSame, seen, 'got another candidate')")).toBe(false)
  })

  test('every summary begins with a verb', async () => {
    const program = await wholeProgram(fakeContext(root).context)
    const nouns: string[] = []
    const visit = (command: typeof program, path: string) => {
      for (const child of command.commands) {
        const name = `${path} ${child.name()}`.trim()
        if (isNoVerb(child.description())) nouns.push(`${name}: ${child.description()}`)
        visit(child, name)
      }
    }
    visit(program, '')
    expect(nouns).toEqual([])
  })

  test('so does every summary of the OpenAPI document', () => {
    const operations = Object.values(openApiDocument().paths).flatMap(
      (path) => Object.values(path) as readonly { readonly summary: string }[],
    )
    expect(operations.length).toBeGreaterThan(9)
    expect(operations.map(({ summary }) => summary).filter(isNoVerb)).toEqual([])
  })

  test.each([
    'Whether a wallet may propose now',
    'Submits a signed proposal',
    'Signing context of 1 to 100 questions',
    'Where a candidate stands',
    'This document',
  ])('%s is no summary', (summary) => expect(isNoVerb(summary)).toBe(true))
})
