/** `devchain`: a dev chain in the foreground, and verbs that act on one (contract §6, §8, §9). */
import { builtInProfile } from '#chain/profiles'
import type { DevRole } from '#devchain/dev-contracts'
import { writeDevFolder } from '#devchain/dev-folder'
import type {
  AdapterVerb,
  DevRound,
  DevSettlement,
  DevWhitelist,
  VotedOutcome,
} from '#devchain/dev-verbs'
import { fromCwd } from '#io/home'
import { aborted, endsAsServer } from '#io/interruption'
import { givenAddress } from '#protocol/address'
import { parseAmount, toRaw } from '#protocol/amount'
import { durationMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { identifierHint, plainIdentifier } from '#protocol/market-url'
import { priceOf } from '#protocol/proposal'
import type { OutcomeKey } from '#protocol/schema'
import { isIdentifier } from '#protocol/words'
import { chainEnded, noteQuestions, startingChain, tellReady } from './hosting/foreground.js'
import { resolveSettings, wholeNumber } from './session/settings.js'
import { amountText, dateText, publicUrl, visible } from './terminal/render.js'
import {
  type ArgsOf,
  type ArgTable,
  dryRunFlag,
  type FlagsOf,
  type FlagTable,
  flagWords,
  parserOf,
  showDryRun,
  type VerbHead,
  verb,
} from './terminal/verb.js'

const startVerb = verb({
  name: 'start',
  about: 'run a chain until SIGINT, SIGTERM or SIGHUP',
  flags: {
    '--port <number>': { about: 'port to listen on; 0 picks a free port', default: '8545' },
    '--questions <number>': { about: 'number of example questions', default: '12' },
    '--chain-id <number>': { about: 'chain id', default: '31337' },
    '--oracle <version>': {
      about: 'version of the managed oracle; default: v2',
      choices: ['v2', 'v3'],
    },
    '--write <folder>':
      'write gateway.json, trust.json, questions.json and key files to this folder',
    ...dryRunFlag,
  },
  examples: ['devchain start --port 0 --write ./dev --json'],
  async run(context, flags) {
    const { oracle, write } = flags
    const options = {
      port: wholeNumber('--port', flags.port, 0, 65_535),
      questions: wholeNumber('--questions', flags.questions, 0, 10_000),
      chainId: wholeNumber('--chain-id', flags.chainId, 1, Number.MAX_SAFE_INTEGER),
      ...(oracle !== undefined && { oracle }),
    }
    const folder = write === undefined ? undefined : fromCwd(context.cwd, write)
    if (flags.dryRun) {
      const files = folder === undefined ? '' : ` and write its files to ${folder}`
      const would = `start a chain on port ${flags.port}${files}`
      return showDryRun(context, would, { ...options, folder: folder ?? null })
    }
    if (folder !== undefined) await context.files.makeDir(folder)
    context.endAs?.(endsAsServer)
    const { output, signal, liveness } = context
    const chain = await startingChain(context, options)
    if (chain === undefined) return
    const { description: dev } = chain
    try {
      if (folder !== undefined) {
        const names = await writeDevFolder(folder, dev)
        output.note(`wrote ${names.join(', ')} to ${visible(folder)}`)
      }
      const { pid } = liveness
      if (!output.isForPeople) output.line({ schema: 'proposer.ready/1', event: 'ready', pid, dev })
      else {
        tellReady(
          output,
          `ready ${dev.rpc_url} (chain ${dev.chain_id}, questions: ${dev.questions.length}, pid ${pid})`,
        )
        noteQuestions(output, dev.questions, ', all with --json')
        if (folder !== undefined)
          output.note(`next: proposer serve --config ${visible(folder)}/gateway.json`)
      }
      const ended = chain.ended.then(() => 'chain' as const)
      if ((await Promise.race([aborted(signal), ended])) === 'chain')
        throw chainEnded('start it again with `proposer devchain`')
    } finally {
      await chain.stop()
    }
  },
})

interface ChainVerb<Args, Flags> extends VerbHead<Args, Flags> {
  readonly example: string
  act(
    acts: typeof import('#devchain/dev-verbs'),
    rpcUrl: string,
    args: ArgsOf<Args>,
    flags: FlagsOf<Flags>,
  ): Promise<DevRound | readonly [document: object, text: string]>
}

const chainVerb = <
  const Args extends ArgTable = Record<never, string>,
  const Flags extends FlagTable = Record<never, string>,
>({
  example,
  act,
  ...made
}: ChainVerb<Args, Flags>) =>
  verb<Args, FlagTable>({
    ...made,
    flags: { ...made.flags, ...dryRunFlag },
    examples: [`devchain ${made.name} ${example} --rpc-url http://127.0.0.1:8545`],
    async run(context, every, operands) {
      const { name } = made
      const given = every as typeof every & FlagsOf<Flags> & FlagsOf<typeof dryRunFlag>
      const { rpcUrl } = await resolveSettings(context, given)
      if (rpcUrl === undefined)
        throw new UsageError(
          'no_rpc_url',
          'no dev chain configured',
          'give the --rpc-url of the ready line of `proposer devchain`',
        )
      if (given.dryRun) {
        const node = publicUrl(rpcUrl.value)
        const named = Object.values<unknown>(operands).flatMap((one) => one ?? []) as string[]
        const words = [name, ...named].join(' ') + flagWords(made.flags ?? {}, given)
        return showDryRun(context, `${words} at ${node}`, { act: name, operands: named, node })
      }
      const acts = await import('#devchain/dev-verbs')
      const done = await act(acts, rpcUrl.value, operands, given)
      const [document, text] = 'state' in done ? roundShown(done) : done
      context.output.show('devchain', document, [() => text])
    },
  })

/** The text stays as it was written, for --dry-run. */
const judged = (judge: (text: string) => unknown) => (text: string) => {
  judge(text)
  return text
}

const among =
  <T extends string>(form: RegExp) =>
  (text: string) =>
    form.test(text) ? (text as T) : undefined

function devIdentifier(text: string) {
  const plain = plainIdentifier(text)
  if (isIdentifier(plain)) return plain
  throw new UsageError(
    'bad_identifier',
    'the identifier is neither a question id nor a slug',
    identifierHint(plain),
  )
}

const questionArg = {
  '<identifier>': { about: 'question id or slug', parse: devIdentifier },
} as const
const exampleQuestion = 'will-it-rain-in-porto-on-friday'

const walletArg = {
  '<address>': {
    about: 'wallet address',
    parse: (text: string) => givenAddress(text, 'the address', 'bad_address'),
  },
} as const

const tokenUnits = builtInProfile('dev')?.tokenUnits

const outcomeFlag = <T extends string>(keys: string, form: RegExp, about = keys) =>
  ({
    '--outcome <key>': {
      about,
      required: true,
      parse: parserOf('--outcome', among<T>(form), 'bad_outcome', keys, `give ${about}`),
    },
  }) as const

/** In the dev chain's own token; a bare number is raw units but in a flag. */
const amountNamed = (name: string) => (text: string) => {
  const isOperand = !name.startsWith('--')
  try {
    const units = tokenUnits === undefined ? [] : [tokenUnits]
    return toRaw(parseAmount(text, name, isOperand), units).raw
  } catch (error) {
    if (!isOperand || !(error instanceof UsageError) || error.code !== 'bad_number') throw error
    // An operand has a code of its own, from before there were units.
    throw new UsageError('bad_amount', error.message, {
      hint: error.meta.hint ?? 'give raw units',
    })
  }
}
const bondOf = amountNamed('the bond')
const fundedOf = amountNamed('the amount')

const states = ['invalid', 'requested', 'proposed', 'expired', 'disputed', 'resolved', 'settled']
const stateText = ({ state }: Pick<DevRound, 'state'>) => states[state] ?? String(state)

function roundShown(round: DevRound): readonly [object, string] {
  const state = stateText(round)
  const { question_id, timestamp } = round
  return [{ ...round, state }, `${question_id}  round ${dateText(timestamp)}  ${state}`]
}

type ActOn = (
  acts: typeof import('#devchain/dev-verbs'),
  url: string,
  identifier: string,
) => ReturnType<ChainVerb<unknown, unknown>['act']>

const questionVerb = (name: string, about: string, act: ActOn) =>
  chainVerb({
    name,
    about,
    args: questionArg,
    example: exampleQuestion,
    act: (acts, url, { identifier }) => act(acts, url, identifier),
  })
const adapterVerb = (name: AdapterVerb, about: string) =>
  questionVerb(name, about, ({ changeQuestion }, url, one) => changeQuestion(url, one, name))

const whitelistOf = parserOf(
  '<whitelist>',
  (text): DevWhitelist | undefined =>
    text.startsWith('0x')
      ? givenAddress(text, 'the whitelist', 'bad_whitelist')
      : among<DevWhitelist>(/^(default|nobody|everybody)$/)(text),
  'bad_whitelist',
  'a whitelist',
  'give default, nobody, everybody or an address',
)

/** Deadlines and liveness are counted in hours; ten years leave all of them behind. */
const longestWarpSeconds = 3_650 * 86_400

const secondsOf = parserOf(
  '<duration>',
  (text) => {
    const seconds = Math.round((durationMs(text) ?? 0) / 1_000)
    return seconds >= 1 && seconds <= longestWarpSeconds ? seconds : undefined
  },
  'bad_duration',
  'a duration from 1 s to 3650d',
  'give seconds or units, such as 7200, 90m or 2h30m',
)

function settlementText(settled: DevSettlement) {
  const { question_id, timestamp, outcome, payout, paid_to, deferred, resolved } = settled
  const answer = outcome ?? 'a price of no outcome'
  const paid = `${amountText(payout, tokenUnits)} ${deferred ? 'deferred for' : 'paid to'} ${paid_to}`
  const end = resolved ? ', question resolved' : ''
  const then = settled.new_round === null ? end : `, new round ${dateText(settled.new_round)}`
  return `${question_id}  round ${dateText(timestamp)}  settled as ${answer}, ${paid}${then}`
}

const roleOf = parserOf(
  '--as',
  among<DevRole>(/^(admin|executor|proposer|disputer|rival|outsider)$/),
  'bad_role',
  'a role of the dev chain',
  'give proposer, disputer, rival, outsider, executor or admin, or leave it out',
)

const chainVerbs = [
  chainVerb({
    name: 'ask',
    about: 'open a new question; without a slug the next example',
    args: { '[slug]': { about: '', parse: devIdentifier } },
    flags: {
      '--text <text>': "the question's text, with its res_data",
      '--bond <amount>': {
        about: 'its bond, such as 500usdc, without the final fee',
        parse: amountNamed('--bond'),
      },
    },
    example: 'will-it-snow-in-porto',
    async act({ askDevQuestion }, url, { slug }, { text, bond: bondRaw }) {
      const asked = await askDevQuestion(url, {
        ...(slug !== undefined && { slug }),
        ...(text !== undefined && { text }),
        ...(bondRaw !== undefined && { bondRaw }),
      })
      return [asked, `${asked.question_id}  ${visible(asked.slug)}  ${asked.outcomes.join(' ')}`]
    },
  }),
  questionVerb(
    'dispute',
    'dispute the proposal of the current round; the first dispute opens a new round',
    ({ disputeProposal }, url, identifier) => disputeProposal(url, identifier),
  ),
  adapterVerb('pause', 'pause a question at its adapter'),
  adapterVerb('unpause', 'unpause a question'),
  adapterVerb('flag', 'flag a question for its administrators'),
  adapterVerb('unflag', 'remove the flag of a question'),
  adapterVerb('reset', 'open a new round, as an administrator of the adapter'),
  chainVerb({
    name: 'propose',
    about: 'propose to the oracle directly, as a rival of the gateway',
    args: questionArg,
    flags: outcomeFlag<OutcomeKey>('p1, p2 or p3', /^p[123]$/),
    example: `${exampleQuestion} --outcome p2`,
    act: ({ proposeDirectly }, url, { identifier }, { outcome }) =>
      proposeDirectly(url, identifier, BigInt(priceOf[outcome])),
  }),
  chainVerb({
    name: 'set-bond',
    about: 'set the bond of a question, without the final fee',
    args: {
      ...questionArg,
      '<amount>': {
        about: 'from 100usdc to 100000usdc; a bare number is raw units',
        parse: judged(bondOf),
      },
    },
    example: `${exampleQuestion} 600usdc`,
    act: ({ setBond }, url, { identifier, amount }) => setBond(url, identifier, bondOf(amount)),
  }),
  chainVerb({
    name: 'set-whitelist',
    about: 'set who may propose on a question: nobody pauses it on chain, default resets it',
    args: {
      ...questionArg,
      '<whitelist>': {
        about: 'default, nobody, everybody, or the address of a whitelist contract',
        parse: judged(whitelistOf),
      },
    },
    example: `${exampleQuestion} nobody`,
    act: ({ setWhitelist }, url, { identifier, whitelist }) =>
      setWhitelist(url, identifier, whitelistOf(whitelist)),
  }),
  chainVerb({
    name: 'fund',
    about: 'send tokens and gas money to an address',
    args: {
      ...walletArg,
      '[amount]': {
        about: 'such as 5000usdc; a bare number is raw units',
        parse: judged(fundedOf),
        default: '1000000usdc',
      },
    },
    example: '0x8ba1f109551bd432803012645ac136ddd64dba72 5000usdc',
    async act({ fund }, url, { address, amount = '' }) {
      const balance = String(await fund(url, address, fundedOf(amount)))
      return [
        { address, balance, token: tokenUnits ?? null },
        `${address} holds ${amountText(balance, tokenUnits)}`,
      ]
    },
  }),
  chainVerb({
    name: 'grant',
    about: 'grant an address the executor role, and send it gas money',
    args: walletArg,
    example: '0x8ba1f109551bd432803012645ac136ddd64dba72',
    async act({ grantExecutor }, url, { address }) {
      await grantExecutor(url, address)
      return [{ address, role: 'executor' }, `${address} may propose for others`]
    },
  }),
  chainVerb({
    name: 'warp',
    about: 'move the clock of the chain forward',
    args: { '<duration>': { about: 'such as 7200, 90m or 2h30m', parse: judged(secondsOf) } },
    example: '2h30m',
    async act({ warp }, url, { duration }) {
      const now = await warp(url, secondsOf(duration))
      return [now, `${dateText(now.timestamp)}, block ${now.block}`]
    },
  }),
  questionVerb(
    'settle',
    'settle the newest round that can be settled, and resolve its question',
    async ({ settleRound }, url, identifier) => {
      const settled = await settleRound(url, identifier)
      return [{ ...settled, state: stateText(settled) }, settlementText(settled)]
    },
  ),
  chainVerb({
    name: 'vote',
    about: 'give the answer of the voters to the newest disputed round',
    args: questionArg,
    flags: outcomeFlag<VotedOutcome>(
      'p1, p2, p3 or p4',
      /^p[1-4]$/,
      'p1, p2, p3, or p4 for too early',
    ),
    example: `${exampleQuestion} --outcome p4`,
    act: ({ vote }, url, { identifier }, { outcome }) => vote(url, identifier, outcome),
  }),
  chainVerb({
    name: 'clarify',
    about: 'post a clarification of a question, as its creator',
    args: { ...questionArg, '<text>': 'the clarification' },
    flags: {
      '--as <role>': {
        about: 'post as another account, such as outsider, whose posts do not count',
        parse: roleOf,
      },
      '--rules': "post an update of the request's rules; requires version 3 of the oracle",
    },
    example: `${exampleQuestion} 'Drizzle counts as rain.'`,
    async act({ clarify }, url, { identifier, text }, { as, rules = false }) {
      const how = { rules, ...(as !== undefined && { as }) }
      const done = await clarify(url, identifier, new TextEncoder().encode(text), how)
      const { question_id, owner, timestamp } = done
      return [done, `${question_id}  clarified ${dateText(timestamp)} by ${owner}`]
    },
  }),
]

export const devchainCommand = verb({
  name: 'devchain',
  about:
    'run a development chain with contracts, funded accounts and open questions, or control a running one',
  examples: [
    'devchain --write ./dev',
    'serve --config ./dev/gateway.json',
    `devchain dispute ${exampleQuestion} --rpc-url http://127.0.0.1:8545`,
  ],
  standIn: startVerb,
  verbs: chainVerbs,
})
