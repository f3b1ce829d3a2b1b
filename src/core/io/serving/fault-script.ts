/** `serve --dev --faults`. Rules count calls alone: a script does the same at every run. */
import * as z from 'zod'
import { type Answered, BodyError, type Call } from '#protocol/call'
import { UsageError } from '#protocol/errors'
import { commonHeaders } from '#protocol/refusal'
import { type Operation, operations } from '#protocol/service'

const calls = Object.values<Operation>(operations).flatMap(({ word, method, path }) =>
  word === undefined
    ? []
    : [{ route: word, form: new RegExp(`^${method} ${path.replaceAll(/\{\w+\}/g, '([^/]+)')}$`) }],
)
const routeNames = calls.map(({ route }) => route)

const questionRoutes = Object.values<Operation>(operations).flatMap(({ word = [], path }) =>
  path.includes('{identifier}') ? word : [],
)

const listed = (words: readonly string[]) => words.map((word) => JSON.stringify(word)).join(', ')
const wholeNumber = (least: number, most: number) => {
  const error = `must be a whole number from ${least} to ${most}`
  return z.int({ error }).min(least, { error }).max(most, { error })
}
const count = wholeNumber(1, 1_000_000)
const question = z
  .string({ error: 'must be a slug or a question id' })
  .regex(/^[a-z0-9-]{1,200}$/, 'must be a slug or a question id')
const when = z.enum(['before', 'after'], {
  error: 'must be "before" or "after" (the gateway has dealt with the call)',
})

const On = z
  .strictObject(
    {
      route: z.enum([...routeNames, 'any'], {
        error: `must be one of ${listed([...routeNames, 'any'])}`,
      }),
      nth: count.optional(),
      every: count.optional(),
      from: count.optional(),
      to: count.optional(),
      question: question.optional(),
    },
    { error: 'must be an object with a route' },
  )
  .superRefine((on, refinement) => {
    const counted = [on.nth, on.every, on.from ?? on.to].filter((one) => one !== undefined).length
    const fault = (message: string) => refinement.addIssue({ code: 'custom', message })
    if (counted > 1) fault('must have only one of nth, every, and from with to')
    if (on.from !== undefined && on.to !== undefined && on.from > on.to)
      fault('must have from no greater than to')
    if (on.question !== undefined && !questionRoutes.includes(on.route))
      fault(`may name a question with ${listed(questionRoutes)} only`)
  })

const acts = [
  z.strictObject({ act: z.literal('drop'), when }),
  z.strictObject({ act: z.literal('stall'), when }),
  z.strictObject({ act: z.literal('delay'), when, milliseconds: wholeNumber(1, 600_000) }),
  z
    .strictObject({
      act: z.literal('answer'),
      when,
      status: z.literal([429, 502, 503, 504], { error: 'must be 429, 502, 503 or 504' }),
      retry_after_seconds: wholeNumber(0, 86_400).optional(),
    })
    .refine(({ when, status }) => when === 'before' || status === 502 || status === 504, {
      error:
        'must be "before" with 429 and 503, which say that nothing was admitted; a commit is hidden by 502 or 504',
      path: ['when'],
    }),
  z.strictObject({ act: z.literal('advance_round'), question: question.optional() }),
  z.strictObject({ act: z.literal('lose_chain'), seconds: wholeNumber(1, 86_400) }),
  z.strictObject({ act: z.literal('skew_clock'), seconds: wholeNumber(-31_536_000, 31_536_000) }),
] as const

const actNames = acts.map((act) => act.shape.act.value)

const Script = z.strictObject(
  {
    rules: z
      .array(
        z
          .strictObject({
            on: On,
            do: z.discriminatedUnion('act', acts, {
              error: `must have an act, one of ${listed(actNames)}`,
            }),
          })
          .refine(
            (rule) =>
              rule.do.act !== 'advance_round' ||
              rule.do.question !== undefined ||
              questionRoutes.includes(rule.on.route),
            {
              error: 'must name a question, because the calls of this route name none or many',
              path: ['do'],
            },
          ),
        { error: 'must be a list of rules, {"on": …, "do": …}' },
      )
      .min(1, 'must hold at least one rule')
      .max(1_000, 'must hold at most 1,000 rules'),
  },
  { error: 'must be one JSON object with "rules"' },
)

export type FaultScript = z.infer<typeof Script>
type FaultRule = FaultScript['rules'][number]
type FaultAct = FaultRule['do']

export function parseFaultScript(raw: unknown, source: string): FaultScript {
  const parsed = Script.safeParse(raw)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new UsageError(
    'faults_invalid',
    `${source}: ${issue === undefined ? 'is not a fault script' : faultOf(issue)}`,
    'correct the script; `proposer serve --help` shows one',
  )
}

function faultOf({ path, message, ...issue }: z.core.$ZodIssue) {
  const key = path.map(String).join('.')
  if (issue.code === 'unrecognized_keys') {
    const names = issue.keys
      .map((name) => JSON.stringify(key === '' ? name : `${key}.${name}`))
      .join(', ')
    return `${names} ${issue.keys.length > 1 ? 'are unknown keys' : 'is an unknown key'}`
  }
  return key === '' ? `it ${message}` : `${key} ${message}`
}

/** A rule that never fires proves nothing. */
export function requireKnownSlugs({ rules }: FaultScript, slugs: readonly string[]) {
  for (const [index, rule] of rules.entries()) {
    const named = { on: rule.on.question, do: 'question' in rule.do ? rule.do.question : undefined }
    for (const [part, name] of Object.entries(named)) {
      if (name === undefined || /^0x[0-9a-f]{64}$/.test(name) || slugs.includes(name)) continue
      throw new UsageError(
        'faults_invalid',
        `rules.${index}.${part}.question is a slug that no question of this chain has`,
        `give one of ${slugs.slice(0, 5).join(', ')}${slugs.length > 5 ? ', …' : ''}, or a question id`,
      )
    }
  }
}

interface FaultCall {
  readonly route: string
  readonly question: string | undefined
}

export function faultCall(method: string, target: string): FaultCall | undefined {
  for (const { route, form } of calls) {
    const found = form.exec(`${method} ${target}`)
    // `eligibility` is not a slug.
    if (found && !(route === 'submit' && found[1] === 'eligibility'))
      return { route, question: questionRoutes.includes(route) ? found[1] : undefined }
  }
  return undefined
}

interface MetRule {
  readonly number: number
  readonly call: number
  readonly act: FaultAct
}

export function countFaults(
  { rules }: FaultScript,
  sameQuestion: (one: string, other: string) => boolean,
) {
  const counts = rules.map(() => 0)
  const isAbout = ({ route, question }: FaultRule['on'], call: FaultCall) =>
    (route === 'any' || route === call.route) &&
    (question === undefined ||
      (call.question !== undefined && sameQuestion(question, call.question)))
  return {
    meet: (call: FaultCall) =>
      rules.flatMap((rule, index) => {
        if (!isAbout(rule.on, call)) return []
        const nth = (counts[index] ?? 0) + 1
        counts[index] = nth
        return isDue(rule.on, nth) ? [{ number: index + 1, call: nth, act: rule.do }] : []
      }),
    counts: () => [...counts],
  }
}

function isDue(
  { nth, every, from = 1, to = Number.POSITIVE_INFINITY }: FaultRule['on'],
  call: number,
) {
  if (nth !== undefined) return call === nth
  return every === undefined ? call >= from && call <= to : call % every === 0
}

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

const bodyBytes = 4 * 1024 * 1024

/** Up to the first rule that takes the answer away; those `after` once the gateway has answered. */
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

/** A caller still sending would see a reset in place of an early answer. */
async function readAway(call: Call) {
  try {
    await call.readBody({ limitBytes: bodyBytes, reserve: () => true })
  } catch (error) {
    if (!(error instanceof BodyError)) throw error
  }
}
