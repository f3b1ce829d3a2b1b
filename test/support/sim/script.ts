/**
 * Scripts of a simulated client, gateway and chain: what a seed draws, and what a fixture under
 * `fixtures/simulation` holds.
 */
import { z } from 'zod'
import { type Dice, diceOf, seeded } from '../sim-files.js'

export const machines = ['gateway', 'client0', 'client1'] as const
export type Machine = (typeof machines)[number]

export const questionCount = 3
export const networkFaults = [
  'no-connection',
  'lost-request',
  'lost-answer',
  'html-502-before',
  'html-504-after',
  'html-200-after',
  'json-500-after',
  'json-429',
  'twice',
  'late',
  'slow',
] as const
export const diskFaults = [
  'kill-before',
  'kill-after',
  'EIO',
  'ENOSPC',
  'EDQUOT',
  'EFBIG',
  'EMFILE',
  'short',
  'nothing-written',
] as const
const verbs = [
  'any',
  'write',
  'datasync',
  'syncDir',
  'rename',
  'truncate',
  'open',
  'close',
  'remove',
  'link',
  'read',
] as const
const chainFaults = [
  'block',
  'call',
  'logs',
  'receipt',
  'hasTransaction',
  'transactionCount',
  'estimateGas',
  'tip',
  'balance',
] as const
const sendFaults = [
  'unavailable',
  'already_known',
  'nonce_too_low',
  'nonce_too_high',
  'replacement_underpriced',
  'underpriced',
  'refused',
] as const
const operatorActs = [
  'pause',
  'resume',
  'allow',
  'disallow',
  'candidates/reject',
  'store/compact',
] as const

const client = z.union([z.literal(0), z.literal(1)])
const question = z
  .int()
  .min(0)
  .max(questionCount - 1)
const outcome = z.enum(['p1', 'p2'])
const machine = z.enum(machines)
/** A power cut after the end of the process: the seed of what it leaves on the disk. */
const power = z.int().optional()

const Step = z.discriminatedUnion('do', [
  z.strictObject({ do: z.literal('submit'), client, question, outcome, timeoutMs: z.int() }),
  z.strictObject({
    do: z.literal('batch'),
    client,
    questions: z.array(question).min(1),
    outcome,
    timeoutMs: z.int(),
  }),
  z.strictObject({ do: z.literal('replay'), client, timeoutMs: z.int() }),
  z.strictObject({ do: z.literal('status'), client, timeoutMs: z.int() }),
  z.strictObject({ do: z.literal('copies'), client, count: z.int().min(1) }),
  z.strictObject({ do: z.literal('crash'), machine, power }),
  z.strictObject({
    do: z.literal('disk'),
    machine,
    verb: z.enum(verbs),
    nth: z.int().min(1),
    does: z.enum(diskFaults),
    always: z.boolean().optional(),
    power,
  }),
  z.strictObject({ do: z.literal('heal'), machine }),
  z.strictObject({ do: z.literal('network'), faults: z.array(z.enum(networkFaults)) }),
  z.strictObject({ do: z.literal('wall'), machine, seconds: z.int() }),
  z.strictObject({ do: z.literal('chain-time'), seconds: z.int().min(0) }),
  z.strictObject({
    do: z.literal('chain-fault'),
    method: z.enum(chainFaults),
    times: z.int().min(1),
  }),
  z.strictObject({ do: z.literal('send-fault'), kind: z.enum(sendFaults), applied: z.boolean() }),
  z.strictObject({ do: z.literal('drop-pool') }),
  z.strictObject({
    do: z.literal('reorg'),
    depth: z.int().min(1),
    drop: z.boolean(),
    empty: z.boolean(),
  }),
  z.strictObject({ do: z.literal('rival'), question }),
  z.strictObject({ do: z.literal('dispute'), question }),
  z.strictObject({ do: z.literal('operator'), act: z.enum(operatorActs), client }),
  z.strictObject({ do: z.literal('pass'), blocks: z.int().min(1), empty: z.boolean().optional() }),
])
export type Step = z.infer<typeof Step>

export const Script = z.strictObject({
  seed: z.int(),
  finalityLag: z.int().min(2),
  segmentBytes: z.int().min(1),
  steps: z.array(Step),
})
export type Script = z.infer<typeof Script>

type Draw = (dice: Dice) => Step
const power31 = (dice: Dice) => dice.below(2 ** 31)
const maybePower = (dice: Dice) => (dice.chance(0.6) ? { power: power31(dice) } : {})
const clientOf = (dice: Dice) => (dice.chance(0.65) ? 0 : 1)
const questionOf = (dice: Dice) => (dice.chance(0.5) ? 0 : dice.below(questionCount))
const outcomeOf = (dice: Dice) => (dice.chance(0.75) ? 'p2' : 'p1')
const timeoutOf = (dice: Dice) => dice.pick([100, 4_000, 12_000])

const draws: readonly (readonly [parts: number, Draw])[] = [
  [
    16,
    (d) => ({
      do: 'submit',
      client: clientOf(d),
      question: questionOf(d),
      outcome: outcomeOf(d),
      timeoutMs: timeoutOf(d),
    }),
  ],
  [
    5,
    (d) => {
      const first = questionOf(d)
      const questions = d.chance(0.5) ? [first, (first + 1) % questionCount] : [0, 1, 2]
      return {
        do: 'batch',
        client: clientOf(d),
        questions,
        outcome: outcomeOf(d),
        timeoutMs: timeoutOf(d),
      }
    },
  ],
  [6, (d) => ({ do: 'replay', client: clientOf(d), timeoutMs: timeoutOf(d) })],
  [4, (d) => ({ do: 'status', client: clientOf(d), timeoutMs: 4_000 })],
  [4, (d) => ({ do: 'copies', client: clientOf(d), count: 1 + d.below(8) })],
  [6, (d) => ({ do: 'crash', machine: d.pick(machines), ...maybePower(d) })],
  [20, drawDiskFault],
  [2, (d) => ({ do: 'heal', machine: d.pick(machines) })],
  [
    12,
    (d) => ({
      do: 'network',
      faults: Array.from({ length: 1 + d.below(2) }, () => d.pick(networkFaults)),
    }),
  ],
  [
    5,
    (d) => ({
      do: 'wall',
      machine: d.pick(machines),
      seconds: d.pick([-86_400, -3_600, -40, -1, 1, 40, 3_600, 86_400]),
    }),
  ],
  [2, (d) => ({ do: 'chain-time', seconds: d.pick([13, 60, 1_200, 14_400]) })],
  [4, (d) => ({ do: 'chain-fault', method: d.pick(chainFaults), times: 1 + d.below(3) })],
  [4, (d) => ({ do: 'send-fault', kind: d.pick(sendFaults), applied: d.chance(0.5) })],
  [2, () => ({ do: 'drop-pool' })],
  [4, (d) => ({ do: 'reorg', depth: 1 + d.below(3), drop: d.chance(0.5), empty: d.chance(0.5) })],
  [2, (d) => ({ do: 'rival', question: questionOf(d) })],
  [3, (d) => ({ do: 'dispute', question: questionOf(d) })],
  [4, (d) => ({ do: 'operator', act: d.pick(operatorActs), client: clientOf(d) })],
  [7, (d) => ({ do: 'pass', blocks: 1 + d.below(3), ...(d.chance(0.2) ? { empty: true } : {}) })],
]
const ladder = draws.map((_, at) => draws.slice(0, at + 1).reduce((sum, [parts]) => sum + parts, 0))
const allParts = ladder.at(-1) ?? 0

const sweptFaults = [
  ['write', 'ENOSPC'],
  ['write', 'EIO'],
  ['write', 'short'],
  ['write', 'kill-after'],
  ['datasync', 'EIO'],
  ['datasync', 'kill-before'],
  ['datasync', 'kill-after'],
] as const
/**
 * More calls than either machine makes of one verb in the swept script; the last ones strike
 * nothing.
 */
const sweptCalls = { gateway: 18, client0: 8 } as const

export function sweptScripts(): readonly Script[] {
  return (['gateway', 'client0'] as const).flatMap((failing) =>
    sweptFaults.flatMap(([verb, does]) =>
      Array.from({ length: sweptCalls[failing] }, (_, at): Script => {
        const isPowerCut = does === 'kill-before' || does === 'kill-after'
        const steps: Step[] = [
          {
            do: 'disk',
            machine: failing,
            verb,
            nth: at + 1,
            does,
            ...(isPowerCut ? { power: at } : {}),
          },
          { do: 'submit', client: 0, question: 0, outcome: 'p2', timeoutMs: 4_000 },
          { do: 'pass', blocks: 4 },
        ]
        return {
          seed: at + 1,
          finalityLag: 2,
          segmentBytes: at % 2 === 0 ? 1_000_000 : 3_000,
          steps,
        }
      }),
    ),
  )
}

function drawDiskFault(dice: Dice): Step {
  const verb = dice.chance(0.5) ? 'any' : dice.pick(verbs)
  const nth = 1 + Math.floor(dice.next() ** 2 * (verb === 'any' ? 90 : 6))
  const does = dice.chance(0.55)
    ? dice.pick(['kill-before', 'kill-after'] as const)
    : dice.pick(diskFaults)
  const more = dice.chance(0.15) ? { always: true } : {}
  return {
    do: 'disk',
    machine: dice.chance(0.6) ? 'gateway' : dice.pick(machines),
    verb,
    nth,
    does,
    ...more,
    ...maybePower(dice),
  }
}

export function drawScript(seed: number): Script {
  const dice = diceOf(seeded(Math.imul(seed, 0x9e3779b1)))
  const steps: Step[] = []
  const count = 3 + dice.below(6)
  const first = draws[0]
  if (first === undefined) throw new Error('nothing to draw')
  const firstSubmit = dice.below(Math.min(3, count))
  for (let index = 0; index < count; index++) {
    const rung = dice.next() * allParts
    const drawn = draws.find((_, at) => (ladder[at] ?? 0) > rung) ?? first
    const step = (index === firstSubmit ? first : drawn)[1](dice)
    steps.push(step)
    if (step.do === 'disk')
      steps.push(dice.chance(0.8) ? first[1](dice) : { do: 'pass', blocks: 2 })
  }
  return {
    seed,
    finalityLag: dice.pick([2, 2, 4]),
    segmentBytes: dice.pick([1, 3_000, 1_000_000]),
    steps,
  }
}
