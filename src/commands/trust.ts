/** `trust`: the pinned contracts that every signature is checked against (contract §7; R9). */

import { dirname } from 'node:path'
import { titleOf } from '#chain/ancillary'
import { unconfirmedAmong } from '#chain/profiles'
import { createRoundReader } from '#chain/questions'
import { keccakHex, requesterKinds } from '#chain/round'
import { onChain } from '#chain/unavailable'
import { type TrustFinding, verifyTrust } from '#checks/chain'
import { acceptedValue } from '#client/gateway/answer'
import { listedReceiptKeys } from '#client/gateway/gateway-client'
import { chainNow, confirmByChain } from '#client/trust/context'
import {
  contractsOf,
  FactError,
  howToRepin,
  implementationsNow,
  mergePins,
  nothingPinned,
  type ProfilePins,
  parseTrust,
  pinnedQuestionId,
  pinWords,
  profilePins,
  signingDataOf,
  type Trust,
  unpinnedSlug,
  wholePins,
} from '#client/trust/trust'
import type { Chain, Hex } from '#ports'
import { givenAddress } from '#protocol/address'
import { ProposerError, UsageError } from '#protocol/errors'
import { namedQuestion } from '#protocol/market-url'
import { answersText } from '#protocol/outcome-words'
import type { BatchSigningData } from '#protocol/schema'
import { isQuestionId } from '#protocol/words'
import { makeDurableDir } from '#storage/durable'
import { confirm, jsonIn, readText, writeText } from './session/inputs.js'
import { confirmedMarket, marketOf, onlyMarket, requireIdentifier } from './session/question.js'
import {
  builtInPins,
  openTarget,
  requireChain,
  type Session,
  sessionVerb,
} from './session/session.js'
import type { SessionFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { type Rows, together } from './terminal/output.js'
import { amountText, dateText, findingsText, visible } from './terminal/render.js'
import { dryRunFlag, showDryRun, verb } from './terminal/verb.js'

const showVerb = sessionVerb({
  name: 'show',
  about: 'show the pins, and their file',
  examples: ['trust show'],
  async run(session) {
    const { output } = session
    const { trust, profile } = session.settings
    const [path, name] = [trust.value, profile.value]
    const builtIn = await builtInPins(session)
    const pins = builtIn ?? (await session.trust())
    if (pins.signed_proposer === null)
      output.warning(
        'signed_proposer_needed',
        `signed_proposer is missing: no public source lists it; \`proposer trust init --profile ${name} --signed-proposer 0x…\` pins it and everything else`,
      )
    if (builtIn !== undefined) warnUnconfirmed(session, name, builtIn)
    const place = builtIn ? { path: null, built_in: name } : { path }
    const from = builtIn ? `profile ${name}; ${path} does not exist` : path
    output.show('trust', { ...place, ...pins }, [
      [[builtIn ? 'built in' : 'file', from]],
      pinRows(pins),
    ])
  },
})

function warnUnconfirmed(context: Context, profile: string, pins: ProfilePins) {
  const { oracles, requesters, tokens } = pins
  const addresses = [...oracles, ...requesters.map(({ address }) => address), ...tokens]
  const doubts = unconfirmedAmong(profile, addresses)
  for (const doubt of doubts) context.output.warning('unconfirmed_pin', doubt)
  return doubts.length > 0
}

const kindFlag = (about: string) =>
  ({ '--kind <kind>': { about, choices: requesterKinds, parse: (text: string) => text } }) as const

const initVerb = sessionVerb({
  name: 'init',
  about: 'write the pins of the selected profile; existing pins stay',
  args: { '[identifier]': 'pin what the gateway reports for this question, after confirmation' },
  flags: {
    '--from <file>':
      'a trust.json, the ready line of a development chain, or its dev object; - for stdin',
    ...dryRunFlag,
    '--signed-proposer <address>': 'with a built-in profile: the SignedProposer of your operator',
    ...kindFlag('kind of the requester, if the gateway is asked'),
  },
  help: 'Pins from a gateway are only as good as the gateway: compare them with an independent source.',
  examples: [
    'trust init --from ready.json',
    'trust init some-slug --gateway https://gateway.example',
    'trust init --profile polygon --signed-proposer 0x8ba1f109551bd432803012645ac136ddd64dba72',
  ],
  fixed: { makesProfile: true },
  async run(session, { from, kind, signedProposer, dryRun: isDryRun }, { identifier }) {
    if (identifier !== undefined && from !== undefined)
      throw trustSource('either --from <file> or a question, not both')
    if ((identifier ?? from) !== undefined && signedProposer !== undefined)
      throw trustSource(
        '--signed-proposer without --from and without a question: it completes a built-in profile',
      )
    const writeAs = async (pins: Trust, fromOutside: boolean) =>
      write(session, await withCode(session, pins), isDryRun, { fromOutside })
    if (from !== undefined) return writeAs(pinsFrom(await readText(session, from), from), false)
    if (identifier !== undefined)
      return writeAs((await pinsOfQuestion(session, identifier, kind)).pins, true)
    const name = session.settings.profile.value
    const pins = profilePins(name)
    if (pins === undefined)
      throw trustSource(
        'either --from <file>, a question to ask the gateway about, or a built-in profile',
      )
    const address =
      signedProposer === undefined
        ? undefined
        : givenAddress(signedProposer, '--signed-proposer', 'bad_address')
    const trust = wholePins(name, pins, address)
    await writeAs(trust, warnUnconfirmed(session, name, trust))
  },
})

async function withCode(session: Session, pins: Trust) {
  const chain = await session.chain()
  if (chain === undefined || pins.implementations !== undefined) return pins
  try {
    await chainNow(chain, pins, session.clock)
    return { ...pins, implementations: await implementationsNow(chain, pins) }
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    session.output.warning('implementations_unpinned', `${nothingPinned} (${error.detail})`)
    return pins
  }
}

const pinVerb = sessionVerb({
  name: 'pin',
  about: 'add pins: what a question needs, or a requester, an oracle or a token',
  args: { '[identifier]': 'question id, slug or Polymarket URL to pin, with all it needs' },
  flags: {
    '--requester <address>': 'contract that asks questions; requires --kind',
    ...kindFlag('of the requester'),
    '--oracle <address>': 'oracle that it asks',
    '--token <address>': 'token that bonds are paid in',
    '--receipts': 'keys that the gateway signs its answers with',
    '--gamma-url <url>': "Polymarket's market API, which knows slugs",
    ...dryRunFlag,
  },
  help: 'Shows what is added and asks for confirmation; a node (--rpc-url) checks it on the chain first.\nExisting pins stay as they are: only trust init changes a pin.',
  examples: [
    'trust pin some-slug --gateway https://gateway.example',
    'trust pin --requester 0x8ba1f109551bd432803012645ac136ddd64dba72 --kind uma-ctf-adapter --yes',
    'trust pin --receipts --gateway https://gateway.example',
  ],
  // Here it is a pin, not whose question is meant.
  fixed: { requester: undefined },
  async run(session, flags, { identifier }) {
    const { requester, kind, oracle, token, receipts, dryRun: isDryRun } = flags
    if ([identifier, requester, oracle, token, receipts].every((one) => one === undefined))
      throw new UsageError(
        'trust_source',
        'trust pin needs a question, or --requester, --oracle, --token or --receipts',
        'run `proposer trust pin <question id or slug>`, or name a contract: --token 0x…',
      )
    // A question tells its requester itself; only its kind may have to be named.
    const lacksPartner = requester === undefined ? identifier === undefined : kind === undefined
    if (lacksPartner && (requester ?? kind) !== undefined)
      throw new UsageError(
        'kind_needed',
        '--requester and --kind must be used together',
        `add --kind ${requesterKinds.join(' or --kind ')}`,
      )
    const asked = identifier && (await pinsOfQuestion(session, identifier, kind))
    if (asked) await showQuestion(session, asked)
    const base = asked ? asked.pins : await session.trust()
    const named = requester === undefined ? [] : [{ address: requester, kind: kind ?? '' }]
    const more = {
      ...base,
      requesters: [...base.requesters, ...named],
      oracles: [...base.oracles, oracle ?? []].flat(),
      tokens: [...base.tokens, token ?? []].flat(),
      ...(receipts && { receipt_keys: await listedKeys(session, flags) }),
    }
    const pins = parseTrust(more, 'what is to be pinned')
    await write(session, pins, isDryRun, { onlyAdds: true })
  },
})

/** With a node: what is new is what it should be there (contract §9). */
async function confirmAdded(session: Session, trust: Trust, added: readonly string[]) {
  const chain = await session.chain()
  if (chain === undefined) return
  await chainNow(chain, trust, session.clock)
  const addresses = added.flatMap((line) => /0x[0-9a-f]{40}$/.exec(line) ?? [])
  if (addresses.length === 0) return
  const checks = (await verifyTrust(chain, trust)).filter(({ name }) =>
    addresses.some((address) => name.includes(address)),
  )
  session.output.aside([findingsText(checks)])
  refuseUnverified(checks)
}

const trustSource = (needs: string) =>
  new UsageError(
    'trust_source',
    `trust init needs ${needs}`,
    'run `proposer trust init --from <file>`, name a question id or slug, or give --profile polygon --signed-proposer 0x…',
  )

function pinsFrom(text: string, path: string) {
  const [first] = jsonIn(text)
  if (first !== undefined) return parseTrust(first?.dev?.trust ?? first?.trust ?? first, path)
  throw new UsageError(
    'input_not_json',
    `${path === '-' ? 'stdin' : path} is not JSON`,
    'give a trust.json, or what `proposer serve --dev --json` or `proposer devchain --json` printed',
  )
}

const verifyVerb = sessionVerb({
  name: 'verify',
  about: 'verify the pinned contracts on chain; exit 2 if one differs',
  flags: {
    '--repin': 'show what code oracles and tokens run, old and new, and pin it; asks',
    ...dryRunFlag,
  },
  help: 'Where a proxy runs code other than the pinned code, nothing is signed until it is pinned again.',
  examples: ['trust verify --rpc-url http://127.0.0.1:8545', 'trust verify --repin --yes'],
  async run(session, { repin, dryRun: isDryRun }) {
    if (isDryRun && repin !== true)
      throw new UsageError(
        'flag_without_meaning',
        'trust verify writes nothing without --repin',
        'leave --dry-run out',
      )
    const trust = await session.trust()
    const chain = await requireChain(session, 'trust verify')
    const checks = await verifyTrust(chain, trust)
    if (repin) {
      // Other code of a contract that is not what it should be is no upgrade.
      refuseUnverified(checks.filter(({ id }) => id !== 'implementation'))
      const implementations = await implementationsNow(chain, trust)
      return write(session, { ...trust, implementations }, isDryRun)
    }
    const isBuiltIn = (await builtInPins(session)) !== undefined
    const path = isBuiltIn ? null : session.settings.trust.value
    const shown = checks.map(({ id, name, result, detail }) => {
      return { check: id, name, ok: result === 'pass', detail }
    })
    const ok = shown.every((one) => one.ok)
    session.output.show('trust-verified', { path, ok, checks: shown }, [findingsText(checks)])
    refuseUnverified(checks)
  },
})

function refuseUnverified(checks: readonly TrustFinding[]) {
  const failed = checks.filter(({ result }) => result === 'fail')
  if (failed.length === 0) return
  const codes = failed.filter(({ id }) => id === 'implementation')
  if (codes.length === failed.length)
    throw new UsageError(
      'implementation_changed',
      codes.map(({ detail }) => detail).join('; '),
      howToRepin,
    )
  throw new UsageError(
    'trust_not_verified',
    `${failed.length} of ${checks.length} checks failed: ${failed.map(({ name }) => name).join(', ')}`,
    'do not sign with these pins until you know why: wrong file, wrong chain, or wrong node',
  )
}

/** `fromOutside`: a person has to agree. `onlyAdds`: what would change a pin is refused. */
async function write(
  session: Session,
  more: Trust,
  isDryRun = false,
  { fromOutside = true, onlyAdds = false } = {},
) {
  const { output } = session
  const path = session.settings.trust.value
  const present = await presentText(session, path)
  const before = present === undefined ? undefined : heldPins(present, path)
  // Built-in pins have no file yet, and belong into it too.
  const base = before ?? (onlyAdds ? await session.trust() : undefined)
  const { trust, changed, added } = base
    ? mergePins(base, more)
    : { trust: more, changed: [], added: [] }
  if (onlyAdds) {
    if (changed.length > 0)
      throw new UsageError(
        'pins_would_change',
        `trust pin only adds pins, and this would change some: ${changed.join('; ')}`,
        'trust it only if an independent source confirms it; `proposer trust init` with the same question, or --from <file>, changes pins',
      )
    await confirmAdded(session, trust, added)
  }
  const isNews = before === undefined || changed.length + added.length > 0
  const replaces = changed.length > 0
  const shown = together([
    pinRows(before === undefined ? trust : more),
    ...changed.map((line) => `changes ${line}`),
    ...added.map((line) => `adds ${line}`),
  ])
  if (isDryRun) {
    output.aside([shown])
    const verb = replaces ? 'replace' : before === undefined ? 'write' : 'add to'
    const would = isNews ? `${verb} ${path}` : `leave ${path} unchanged`
    return showDryRun(session, would, { path, replaces, ...trust, changed, added })
  }
  if (isNews && (fromOutside || replaces)) {
    output.warn(shown(output))
    const news = before === undefined ? 'Trust these contracts' : 'Add these pins'
    const question = `${replaces ? 'Change what is pinned' : news} (${path})?`
    await confirm(session, visible(question), session.settings.yes)
  }
  if (isNews) {
    if ((await presentText(session, path)) !== present)
      throw new UsageError(
        'trust_changed',
        `${path} was changed by another process meanwhile; nothing was written`,
        'rerun the command: it adds to the present pins',
      )
    await makeDurableDir(session.files, dirname(path))
    await writeText(session, path, `${JSON.stringify(trust, undefined, 2)}\n`)
  }
  const done = isNews ? 'pinned in' : 'everything is already pinned in'
  output.show('trust', { path, ...trust, changed, added }, [
    `${done} ${path}; verify it with \`proposer trust verify --rpc-url <url>\``,
  ])
}

function heldPins(text: string, path: string) {
  try {
    return pinsFrom(text, path)
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    const hint = `move ${path} away, then run it again; nothing was written`
    throw new UsageError(error.code, error.detail, hint)
  }
}

const presentText = async (context: Context, path: string) =>
  (await context.files.exists(path)) ? readText(context, path) : undefined

const pinRows = (trust: ProfilePins): Rows => [
  ['chain', String(trust.chain_id)],
  ...pinWords(trust).map(([name, says]) => {
    const [, label = name, subject = ''] = /^(.+) (\S+)$/.exec(name) ?? []
    return label === 'implementation of'
      ? (['code', `${subject} runs ${says}`] as const)
      : ([label.replace('_', ' '), `${subject} ${says}`.trim()] as const)
  }),
]

export const trustCommand = verb({
  name: 'trust',
  about: 'pin the contracts that proposals may be signed for, and verify them on the chain',
  examples: ['trust init --from ready.json', 'trust verify --rpc-url http://127.0.0.1:8545'],
  verbs: [showVerb, initVerb, pinVerb, verifyVerb],
})

async function showQuestion(
  session: Session,
  { pins, questionId }: Awaited<ReturnType<typeof pinsOfQuestion>>,
) {
  const { output } = session
  const chain = await session.chain()
  if (chain === undefined || !output.isForPeople) return
  const round = await onChain(() => createRoundReader(chain, contractsOf(pins)).read(questionId))
  if (round === undefined) return
  output.aside([
    [
      ['the chain says', titleOf(round.ancillaryData) ?? 'a question without a title'],
      ['question', questionId],
      ['answers', answersText(round.outcomes.filter(({ allowed }) => allowed))],
      ['bond', amountText(round.totalBondRaw, round.token)],
      ['state', round.state],
      ['round', dateText(round.timestamp)],
      ['requester', `${round.requester} (${round.kind})`],
    ],
  ])
}

/**
 * Of a question that is closed the gateway names no contracts; a node tells them where its
 * requester is pinned or built in. With a node the chain confirms the question first. Not trusted
 * before a person has agreed (R9).
 */
async function pinsOfQuestion(session: Session, named: string, kind: string | undefined) {
  const plain = requireIdentifier(named)
  const event = namedQuestion(named)?.isEvent ? await onlyMarket(session, plain) : undefined
  const identifier = event?.slug ?? plain
  const { gateway: url, local } = session.settings
  const chain = await session.chain()
  if (chain !== undefined && !isQuestionId(identifier)) {
    const market = event ?? (await marketOf(session, identifier))
    if (market !== undefined) {
      const trust = await session.trust()
      const { questionId } = await confirmedMarket(chain, trust, market)
      const slugs = { ...trust.slugs, [identifier]: questionId }
      return fromChain(session, chain, { ...trust, slugs }, questionId)
    }
  }
  if (chain !== undefined && url === undefined && local === undefined)
    return byChain(session, chain, identifier)
  const gateway = await session.gateway('read')
  const { results } = acceptedValue(await gateway.contexts([identifier], { signal: session.until }))
  const answered = results[0]
  if (!answered || answered.error) {
    if (answered?.error?.code === 'request_not_open' && chain !== undefined)
      return byChain(session, chain, identifier)
    throw new UsageError(
      'no_context',
      `the gateway gave no context for ${identifier}: ${answered?.error?.detail ?? 'no response'}`,
      'name a question that is open now, or add --rpc-url <url> where its requester is pinned or built in',
    )
  }
  const data = signingData(identifier, answered.signing_data)
  const pins = parseTrust(
    {
      chain_id: data.signing.chain_id,
      permit2: data.contracts.permit2,
      signed_proposer: data.contracts.signed_proposer,
      oracles: [data.request.oracle],
      requesters: [{ address: data.request.requester, kind: kind ?? kindOf(data) }],
      tokens: [data.bond.token],
      slugs: identifier === data.question_id ? {} : { [identifier]: data.question_id },
    },
    'the answer of the gateway',
  )
  if (chain !== undefined) {
    await chainNow(chain, pins, session.clock)
    await confirmByChain(chain, pins, { ...data, source: 'gateway' })
  }
  return { pins, questionId: data.question_id as Hex }
}

async function byChain(session: Session, chain: Chain, identifier: string) {
  const trust = await session.trust()
  const questionId = pinnedQuestionId(trust, identifier)
  if (questionId === undefined) throw unpinnedSlug(identifier)
  return fromChain(session, chain, trust, questionId)
}

async function fromChain(session: Session, chain: Chain, trust: Trust, questionId: Hex) {
  await chainNow(chain, trust, session.clock)
  const rounds = await onChain(() =>
    createRoundReader(chain, contractsOf(trust)).readAll(questionId),
  )
  if (rounds.length === 0)
    throw new UsageError(
      'no_context',
      `no pinned requester on the chain knows ${questionId}`,
      'pin its requester first: `proposer trust pin --requester 0x… --kind <kind>`',
    )
  const pins = {
    ...trust,
    oracles: rounds.map(({ oracle }) => oracle),
    requesters: rounds.map(({ requester, kind }) => ({ address: requester, kind })),
    tokens: rounds.map(({ token }) => token.address),
  }
  return { pins, questionId }
}

function signingData(identifier: string, answered: unknown) {
  try {
    return signingDataOf(answered)
  } catch (error) {
    if (!(error instanceof FactError)) throw error
    throw new UsageError(
      'no_context',
      `the gateway's context for ${identifier} cannot be used: ${error.message}`,
      'make sure that --gateway is a proposer gateway',
    )
  }
}

/** Only the ids of CTF adapter questions are the hash of their text (domain §5.1). */
function kindOf(data: BatchSigningData) {
  if (keccakHex(data.request.ancillary_data) === data.question_id) return 'uma-ctf-adapter'
  throw new UsageError(
    'kind_needed',
    'the question id is not the hash of its text, so the kind of its requester must be named',
    `add --kind ${requesterKinds.slice(2).join(' or --kind ')}`,
  )
}

async function listedKeys(session: Session, flags: SessionFlags) {
  const target = await openTarget(session, flags, 'read')
  try {
    const { signal } = session
    const { allowHttp } = target
    const keys = await listedReceiptKeys(target.fetch, target.baseUrl, { signal, allowHttp })
    if (keys.length === 0)
      throw new UsageError(
        'no_receipts',
        'this gateway signs no receipts: it lists no key',
        'ask its operator to set receipts in gateway.json',
      )
    session.output.note(
      'note: compare the key IDs with what the operator told you another way; whoever stands between could have listed a key of their own',
    )
    const okp = { kty: 'OKP', crv: 'Ed25519' } as const
    return Object.fromEntries(keys.map(({ kid, x, nbf, exp }) => [kid, { ...okp, x, nbf, exp }]))
  } finally {
    await target.close()
  }
}
