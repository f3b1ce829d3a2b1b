import { type Answered, BodyError, type Call } from '#protocol/call'
import { commonHeaders } from '#protocol/refusal'
import {
  countFaults,
  type FaultAct,
  type FaultRule,
  type FaultScript,
  faultCall,
  type MetRule,
} from './fault-script.js'

/** Without an answer the connection is reset. */
type Handler = (call: Call) => Promise<Answered | undefined>

export interface FaultWorld {
  advanceRound(question: string): Promise<string | undefined>
  loseChain(seconds: number): Promise<void>
  skewClock(seconds: number): void
  sameQuestion(one: string, other: string): boolean
  sleep(ms: number): Promise<void>
  readonly stopping: Promise<void>
  note(line: string): void
}

export interface FaultyHandler {
  readonly handle: Handler
  counts(): {
    readonly rules: readonly (FaultRule & { readonly calls: number; readonly fired: number })[]
  }
}

/**
 * Larger than any body that a route takes: what is too large for the gateway is its own to refuse.
 */
const bodyBytes = 4 * 1024 * 1024

/**
 * Every rule that a call meets is carried out, up to the first that takes the answer away; those
 * `after` once the gateway has answered. Calls that the listener refuses are not counted.
 */
export function withFaults(
  handler: Handler,
  script: FaultScript,
  world: FaultWorld,
): FaultyHandler {
  const counter = countFaults(script, world.sameQuestion)
  const fired = script.rules.map(() => 0)

  const carryOut = async (met: MetRule, of: string, question: string | undefined) => {
    const { act } = met
    fired[met.number - 1] = (fired[met.number - 1] ?? 0) + 1
    const tell = (what: string) =>
      world.note(`fault: rule ${met.number}, call ${met.call} of ${of}: ${what}`)
    switch (act.act) {
      case 'drop':
        tell(`the connection is reset ${place(act)}`)
        return 'reset'
      case 'stall':
        tell(`no response ${place(act)}`)
        await world.stopping
        return 'reset'
      case 'answer':
        tell(`answered ${act.status} ${place(act)}`)
        return answerOf(act)
      case 'delay':
        tell(`${act.milliseconds} ms later, ${place(act)}`)
        await world.sleep(act.milliseconds)
        return undefined
      case 'advance_round': {
        const name = act.question ?? question ?? ''
        const fault = await world.advanceRound(name)
        tell(
          fault === undefined
            ? `${name} is in a new round`
            : `${name} could not be brought into a new round (${fault})`,
        )
        return undefined
      }
      case 'lose_chain':
        tell(`the node does not respond for ${act.seconds} s`)
        await world.loseChain(act.seconds)
        return undefined
      case 'skew_clock':
        tell(`the gateway's clock is ${act.seconds} s off`)
        world.skewClock(act.seconds)
        return undefined
    }
  }

  return {
    async handle(call) {
      const about = call.refused ? undefined : faultCall(call.method, call.target)
      const met = about ? counter.meet(about) : []
      if (!about || met.length === 0) return handler(call)
      const isLate = ({ act }: MetRule) => 'when' in act && act.when === 'after'
      for (const rule of met.filter((one) => !isLate(one))) {
        const instead = await carryOut(rule, about.route, about.question)
        if (!instead) continue
        await readAway(call)
        return answerOr(instead)
      }
      const answer = await handler(call)
      for (const rule of met.filter(isLate)) {
        const instead = await carryOut(rule, about.route, about.question)
        if (instead) return answerOr(instead)
      }
      return answer
    },
    counts: () => ({
      rules: script.rules.map((rule, index) => ({
        ...rule,
        calls: counter.counts()[index] ?? 0,
        fired: fired[index] ?? 0,
      })),
    }),
  }
}

const place = ({ when }: { when: 'before' | 'after' }) =>
  when === 'before'
    ? 'before the gateway sees the call'
    : 'after the gateway has dealt with the call'

const answerOr = (instead: Answered | 'reset') => (instead === 'reset' ? undefined : instead)

function answerOf({ status, retry_after_seconds: seconds }: Extract<FaultAct, { act: 'answer' }>) {
  const retry = seconds === undefined ? {} : { 'retry-after': String(seconds) }
  if (status === 502 || status === 504) {
    const title = status === 502 ? '502 Bad Gateway' : '504 Gateway Timeout'
    const body = `<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>\n`
    return { status, headers: { 'content-type': 'text/html', ...retry }, body }
  }
  const [code, what] =
    status === 429
      ? ['rate_limited', 'rate limit reached']
      : ['server_busy', 'too many calls are in flight']
  const detail = `${what} (fault script)${seconds === undefined ? '' : `; retry in ${seconds} seconds`}`
  return {
    status,
    headers: { ...commonHeaders, ...retry },
    body: JSON.stringify({ error: { code, detail } }),
  }
}

/** A caller that is still sending would see a reset in place of an early answer. */
async function readAway(call: Call) {
  try {
    await call.readBody({ limitBytes: bodyBytes, reserve: () => true })
  } catch (error) {
    // Nobody wanted the body, so it may be cut off or endless.
    if (!(error instanceof BodyError)) throw error
  }
}
