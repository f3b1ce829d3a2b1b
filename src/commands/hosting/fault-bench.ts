/**
 * What a fault script needs of a dev gateway: its chain, its clock and its view, each of which can
 * be made to fail (`serve --dev --faults`).
 */

import type { DevDescription } from '../../core/devchain/dev-chain.js'
import {
  changeQuestion,
  type DevRound,
  disputeProposal,
  proposeDirectly,
  showRound,
} from '../../core/devchain/dev-verbs.js'
import { pause } from '../../core/gateway/view/view.js'
import { type FaultScript, requireKnownSlugs } from '../../core/io/serving/fault-script.js'
import {
  type FaultWorld,
  type FaultyHandler,
  withFaults,
} from '../../core/io/serving/faulty-handler.js'
import { type Chain, ChainError, type Clock } from '../../core/ports.js'
import { ProposerError, UnavailableError, UsageError } from '../../core/protocol/errors.js'
import { priceOf } from '../../core/protocol/proposal.js'
import type { Context } from '../terminal/context.js'
import { aborted } from './foreground.js'
import type { HostedGateway } from './gateway-host.js'

export interface FaultBench {
  /** The context to open the gateway with: a clock and a chain that rules can reach. */
  readonly context: Context
  /** The gateway's handler behind the script. `tell` gets a line for each rule that fires. */
  before(
    hosted: Pick<HostedGateway, 'gateway' | 'view'>,
    tell: (line: string) => void,
  ): FaultyHandler
}

/** How long a new round may take to be seen; blocks come every second. */
const roundMs = 15_000
const lookMs = 50

/**
 * Sets the bench up for one run. Throws UsageError `faults_invalid` where the script names a slug
 * that the chain has no question for.
 */
export function createFaultBench(
  context: Context,
  script: FaultScript,
  dev: DevDescription,
): FaultBench {
  requireKnownSlugs(
    script,
    dev.questions.map(({ slug }) => slug),
  )
  const { clock, signal } = context
  let skewMs = 0
  let lostUntilMs = Number.NEGATIVE_INFINITY
  const isLost = () => clock.monotonicMs() < lostUntilMs
  const skewed: Clock = { ...clock, nowMs: () => clock.nowMs() + skewMs }
  const stopping = aborted(signal).then(() => undefined)
  const sleep = (ms: number) => pause(clock, ms, signal)
  const idOf = (name: string) =>
    dev.questions.find(({ slug }) => slug === name)?.question_id ?? name

  async function advanceRound(
    view: HostedGateway['view'],
    question: string,
  ): Promise<string | undefined> {
    try {
      const { question_id, timestamp } = await openNewRound(dev.rpc_url, question, sleep)
      const endMs = clock.monotonicMs() + roundMs
      while (!signal.aborted) {
        const known = await view.question(question_id).catch((error: unknown) => {
          // Not known now is not known yet.
          if (error instanceof UnavailableError) return undefined
          throw error
        })
        if (String(known?.round.timestamp) === timestamp) return undefined
        if (clock.monotonicMs() > endMs) return 'the gateway has not seen it'
        await sleep(lookMs)
      }
      return 'the server stops'
    } catch (error) {
      if (error instanceof ProposerError) return error.detail
      throw error
    }
  }

  return {
    context: {
      ...context,
      clock: skewed,
      edges: {
        ...context.edges,
        chain: async (urls, expected) =>
          cuttable(await context.edges.chain(urls, expected), isLost),
      },
    },
    before({ gateway, view }, tell) {
      const world: FaultWorld = {
        advanceRound: (question) => advanceRound(view, question),
        async loseChain(seconds) {
          lostUntilMs = clock.monotonicMs() + seconds * 1_000
          // The call is to meet a gateway that has noticed; one that needs longer than the loss
          // never does.
          while (isLost() && view.faults().length === 0 && !signal.aborted) await sleep(lookMs)
          if (isLost() || signal.aborted) return
          // Else a test that waits for 503 would fail without a word.
          tell(
            `fault: the node is back before the gateway noticed: ${seconds} s are no more than chain.max_head_age_seconds`,
          )
        },
        skewClock(seconds) {
          skewMs = seconds * 1_000
        },
        sameQuestion: (one, other) => idOf(one) === idOf(other),
        sleep,
        stopping,
        tell,
      }
      return withFaults(gateway.answer, script, world)
    },
  }
}

/** Domain §4: 1 requested, 2 proposed. */
const requested = 1
const proposed = 2

/**
 * The gateway's own executor may propose between two of these steps, which makes the next one
 * revert until its block is mined.
 */
const openTries = 20
const openPauseMs = 300

async function openNewRound(
  rpcUrl: string,
  question: string,
  sleep: (ms: number) => Promise<void>,
): Promise<DevRound> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await openOnce(rpcUrl, question)
    } catch (error) {
      if (
        tries === openTries ||
        !(error instanceof UsageError) ||
        error.code !== 'dev_chain_refused'
      )
        throw error
      await sleep(openPauseMs)
    }
  }
}

/**
 * Disputes what is proposed, the rival's proposal where there is none. A question whose dispute is
 * used up is reset by its adapter.
 */
async function openOnce(rpcUrl: string, question: string): Promise<DevRound> {
  const before = await showRound(rpcUrl, question)
  if (before.state === requested) await proposeDirectly(rpcUrl, question, BigInt(priceOf.p1))
  const after =
    before.state === requested || before.state === proposed
      ? await disputeProposal(rpcUrl, question)
      : before
  return after.timestamp === before.timestamp ? changeQuestion(rpcUrl, question, 'reset') : after
}

/** The chain; while it is lost it answers nothing. */
function cuttable(chain: Chain, isLost: () => boolean): Chain {
  const cut =
    <Args extends unknown[], Answer>(ask: (...args: Args) => Promise<Answer>) =>
    async (...args: Args): Promise<Answer> => {
      const lost = () =>
        new ChainError('unavailable', 'the node gives no answer, says the fault script')
      if (isLost()) throw lost()
      const answer = await ask(...args)
      // What was on its way is lost too.
      if (isLost()) throw lost()
      return answer
    }
  return {
    // With what only the real one has: its nodes, and how it is closed.
    ...chain,
    chainId: cut(chain.chainId),
    block: cut(chain.block),
    call: cut(chain.call),
    logs: cut(chain.logs),
    code: cut(chain.code),
    balance: cut(chain.balance),
    transactionCount: cut(chain.transactionCount),
    estimateGas: cut(chain.estimateGas),
    tip: cut(chain.tip),
    send: cut(chain.send),
    receipt: cut(chain.receipt),
    hasTransaction: cut(chain.hasTransaction),
    calldata: cut(chain.calldata),
  }
}
