/** Verbs of `devchain` that make trouble, or funds, before a proposal is executed (contract §6). */
import type { AdapterVerb, DevWhitelist } from '../../core/devchain/dev-verbs.js'
import { givenAddress } from '../../core/protocol/address.js'
import { UsageError } from '../../core/protocol/errors.js'
import { priceOf } from '../../core/protocol/proposal.js'
import type { OutcomeKey } from '../../core/protocol/schema.js'
import { amountText, visible } from '../terminal/render.js'
import {
  formParser,
  identifier,
  printRound,
  requireAmount,
  requireDevIdentifier,
  tokenUnits,
  type Verb,
} from './verb.js'

const requireOutcome = formParser(
  /^p[123]$/,
  new UsageError('bad_outcome', '--outcome must be p1, p2 or p3', { hint: 'give p1, p2 or p3' }),
)
const requireWhitelist = formParser<DevWhitelist>(
  /^(default|nobody|everybody|0x[0-9a-f]{40})$/,
  new UsageError('bad_whitelist', 'no such whitelist', {
    hint: 'give default, nobody, everybody or an address',
  }),
)

const adapterVerb = (name: AdapterVerb, description: string): Verb => ({
  name,
  description,
  arguments: [identifier],
  example: 'will-it-rain-in-porto-on-friday',
  run([question = ''], _flags, context) {
    requireDevIdentifier(question)
    return async ({ changeQuestion }, url) =>
      printRound(context, await changeQuestion(url, question, name))
  },
})

/** What may happen to questions and accounts until a proposal is executed. */
export const questionVerbs: readonly Verb[] = [
  {
    name: 'ask',
    description: 'open a new question; without a slug the next example',
    arguments: [['[slug]']],
    options: [
      ['--text <text>', "the question's text, with its res_data"],
      ['--bond <amount>', 'its bond, such as 500usdc, without the final fee'],
    ],
    example: 'will-it-snow-in-porto',
    run([slug], { text, bond }, { output }) {
      const asked = {
        ...(slug !== undefined && { slug: requireDevIdentifier(slug) }),
        ...(text !== undefined && { text }),
        ...(bond !== undefined && { bondRaw: requireAmount('--bond', bond) }),
      }
      return async ({ askDevQuestion }, url) =>
        output.result(
          'devchain',
          await askDevQuestion(url, asked),
          ({ question_id, slug, outcomes }) =>
            `${question_id}  ${visible(slug)}  ${outcomes.join(' ')}`,
        )
    },
  },
  {
    name: 'dispute',
    description: 'dispute the proposal of the current round; the first dispute opens a new round',
    arguments: [identifier],
    example: 'will-it-rain-in-porto-on-friday',
    run([question = ''], _flags, context) {
      requireDevIdentifier(question)
      return async ({ disputeProposal }, url) =>
        printRound(context, await disputeProposal(url, question))
    },
  },
  adapterVerb('pause', 'pause a question at its adapter'),
  adapterVerb('unpause', 'unpause a question'),
  adapterVerb('flag', 'flag a question for its administrators'),
  adapterVerb('unflag', 'remove the flag of a question'),
  adapterVerb('reset', 'open a new round, as an administrator of the adapter'),
  {
    name: 'propose',
    description: 'propose to the oracle directly, as a rival of the gateway',
    arguments: [identifier],
    required: ['--outcome <key>', 'p1, p2 or p3'],
    example: 'will-it-rain-in-porto-on-friday --outcome p2',
    more: ({ outcome }) => [outcome],
    run([question = ''], { outcome }, context) {
      const price = BigInt(priceOf[requireOutcome(outcome) as OutcomeKey])
      requireDevIdentifier(question)
      return async ({ proposeDirectly }, url) =>
        printRound(context, await proposeDirectly(url, question, price))
    },
  },
  {
    name: 'set-bond',
    description: 'set the bond of a question, without the final fee',
    arguments: [identifier, ['<amount>', 'from 100usdc to 100000usdc; a bare number is raw units']],
    example: 'will-it-rain-in-porto-on-friday 600usdc',
    run([question = '', raw = ''], _flags, context) {
      const bondRaw = requireAmount('the bond', raw)
      requireDevIdentifier(question)
      return async ({ setBond }, url) => printRound(context, await setBond(url, question, bondRaw))
    },
  },
  {
    name: 'set-whitelist',
    description: 'set who may propose on a question: nobody pauses it on chain, default resets it',
    arguments: [
      identifier,
      ['<whitelist>', 'default, nobody, everybody, or the address of a whitelist contract'],
    ],
    example: 'will-it-rain-in-porto-on-friday nobody',
    run([question = '', whitelist = ''], _flags, context) {
      const setting = requireWhitelist(
        whitelist.startsWith('0x')
          ? givenAddress(whitelist, 'the whitelist', 'bad_whitelist')
          : whitelist,
      )
      requireDevIdentifier(question)
      return async ({ setWhitelist }, url) =>
        printRound(context, await setWhitelist(url, question, setting))
    },
  },
  {
    name: 'fund',
    description: 'send tokens and gas money to an address',
    arguments: [
      ['<address>', 'wallet address'],
      ['[amount]', 'such as 5000usdc; a bare number is raw units', '1000000usdc'],
    ],
    example: '0x8ba1f109551bd432803012645ac136ddd64dba72 5000usdc',
    run([to = '', raw = ''], _flags, { output }) {
      const address = givenAddress(to, 'the address', 'bad_address')
      const amountRaw = requireAmount('the amount', raw)
      return async ({ fund }, url) => {
        const balance = String(await fund(url, address, amountRaw))
        const text = () => `${address} holds ${amountText(balance, tokenUnits)}`
        output.result('devchain', { address, balance, token: tokenUnits ?? null }, text)
      }
    },
  },
  {
    name: 'grant',
    description: 'grant an address the executor role, and send it gas money',
    arguments: [['<address>', 'wallet address']],
    example: '0x8ba1f109551bd432803012645ac136ddd64dba72',
    run([to = ''], _flags, { output }) {
      const address = givenAddress(to, 'the address', 'bad_address')
      return async ({ grantExecutor }, url) => {
        await grantExecutor(url, address)
        const text = () => `${address} may propose for others`
        output.result('devchain', { address, role: 'executor' }, text)
      }
    },
  },
]
