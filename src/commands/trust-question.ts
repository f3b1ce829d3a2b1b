/** The pins of one question: as the gateway names them, or Gamma and the chain (contract §7; R9). */
import { titleOf } from '#chain/ancillary'
import { createRoundReader } from '#chain/questions'
import { keccakHex, requesterKinds } from '#chain/round'
import { onChain } from '#chain/unavailable'
import { acceptedValue } from '#client/gateway/answer'
import { listedReceiptKeys } from '#client/gateway/gateway-client'
import { chainNow, confirmByChain } from '#client/trust/context'
import { FactError, signingDataOf } from '#client/trust/signing-data'
import { contractsOf, pinnedQuestionId, unpinnedSlug } from '#client/trust/trust'
import { parseTrust, type Trust } from '#client/trust/trust-file'
import type { Chain, Hex } from '#ports'
import { UsageError } from '#protocol/errors'
import { namedQuestion } from '#protocol/market-url'
import { answersText } from '#protocol/outcome-words'
import type { BatchSigningData } from '#protocol/schema'
import { isQuestionId } from '#protocol/words'
import { confirmedMarket, marketOf, onlyMarket } from './session/identify.js'
import { requireIdentifier } from './session/question.js'
import { openTarget, type Session } from './session/session.js'
import type { SessionFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { rows } from './terminal/output.js'
import { amountText, dateText } from './terminal/render.js'

export interface PinnedQuestion {
  readonly pins: Trust
  readonly questionId: Hex
}

export async function showQuestion(
  { output }: Context,
  session: Session,
  { pins, questionId }: PinnedQuestion,
) {
  const chain = await session.chain()
  if (chain === undefined || !output.isForPeople) return
  const round = await onChain(() => createRoundReader(chain, contractsOf(pins)).read(questionId))
  if (round === undefined) return
  output.aside([
    rows([
      ['the chain says', titleOf(round.ancillaryData) ?? 'a question without a title'],
      ['question', questionId],
      ['answers', answersText(round.outcomes.filter(({ allowed }) => allowed))],
      ['bond', amountText(String(round.totalBondRaw), round.token)],
      ['state', round.state],
      ['round', dateText(round.timestamp)],
      ['requester', `${round.requester} (${round.kind})`],
    ]),
  ])
}

/**
 * Of a question that is closed the gateway names no contracts; a node tells them where its
 * requester is pinned
 * or built in. With a node the chain confirms the question first. Not trusted before a person has
 * agreed (R9).
 */
export async function pinsOfQuestion(session: Session, named: string, kind: string | undefined) {
  const plain = requireIdentifier(named)
  const event =
    namedQuestion(named)?.isEvent === true ? await onlyMarket(session, plain) : undefined
  const identifier = event?.slug ?? plain
  const { gateway: url, local } = session.settings
  const chain = await session.chain()
  if (chain !== undefined && !isQuestionId(identifier)) {
    const market = event ?? (await marketOf(session, identifier))
    if (market !== undefined) {
      const { questionId } = await confirmedMarket(chain, await session.trust(), market)
      const pins = await fromChain(session, chain, questionId)
      const slugs = { ...pins.slugs, [identifier]: questionId }
      return { pins: { ...pins, slugs }, questionId }
    }
  }
  if (chain !== undefined && url === undefined && local === undefined)
    return byChain(session, chain, identifier)
  const gateway = await session.gateway('read')
  const { results } = acceptedValue(
    await gateway.contexts([identifier], { signal: session.signal }),
  )
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
    await chainNow(chain, pins, session.ports.clock)
    await confirmByChain(chain, pins, { ...data, source: 'gateway' })
  }
  return { pins, questionId: data.question_id as Hex }
}

async function byChain(session: Session, chain: Chain, identifier: string) {
  const questionId = pinnedQuestionId(await session.trust(), identifier)
  if (questionId === undefined) throw unpinnedSlug(identifier)
  return { pins: await fromChain(session, chain, questionId), questionId }
}

async function fromChain(session: Session, chain: Chain, questionId: Hex) {
  const trust = await session.trust()
  await chainNow(chain, trust, session.ports.clock)
  const rounds = await onChain(() =>
    createRoundReader(chain, contractsOf(trust)).readAll(questionId),
  )
  if (rounds.length === 0) {
    throw new UsageError(
      'no_context',
      `no pinned requester on the chain knows ${questionId}`,
      'pin its requester first: `proposer trust pin --requester 0x… --kind <kind>`',
    )
  }
  return {
    ...trust,
    oracles: rounds.map(({ oracle }) => oracle),
    requesters: rounds.map(({ requester, kind }) => ({ address: requester, kind })),
    tokens: rounds.map(({ token }) => token.address),
  }
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

/**
 * `trust pin --receipts`: the keys that the gateway lists, to be compared and pinned (contract §9).
 * What it says of itself proves nothing, so a note asks for another source.
 */
export async function listedKeys(context: Context, { settings }: Session, flags: SessionFlags) {
  const target = await openTarget(context, settings, flags, 'read')
  try {
    const { signal } = context
    const { allowHttp } = target
    const keys = await listedReceiptKeys(target.fetch, target.baseUrl, { signal, allowHttp })
    if (keys.length === 0)
      throw new UsageError(
        'no_receipts',
        'this gateway signs no receipts: it lists no key',
        'ask its operator to set receipts in gateway.json',
      )
    context.output.note(
      'note: compare the key IDs with what the operator told you another way; whoever stands between could have listed a key of their own',
    )
    return Object.fromEntries(
      keys.map(({ kid, x, nbf, exp }) => [
        kid,
        {
          ...({ kty: 'OKP', crv: 'Ed25519', x } as const),
          ...(nbf === undefined ? {} : { nbf }),
          ...(exp === undefined ? {} : { exp }),
        },
      ]),
    )
  } finally {
    await target.close()
  }
}
