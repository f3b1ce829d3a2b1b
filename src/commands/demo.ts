/**
 * `demo`: the whole life of a proposal on a throwaway chain, narrated, with nothing left behind
 * (contract §6).
 */
import { Command } from 'commander'
import { UsageError } from '../core/protocol/errors.js'
import { type DemoStep, liveOnce } from './demo-life.js'
import { wholeNumber } from './hosting/foreground.js'
import type { Context } from './terminal/context.js'
import { fold } from './terminal/render.js'

interface DemoFlags {
  readonly gateways?: string
  readonly storeUrl?: string
}

type Life = (context: Context, report: (step: DemoStep) => void) => Promise<void>

/** The life that the flags ask for. Throws UsageError. */
async function lifeOf({ gateways = '1', storeUrl }: DemoFlags): Promise<Life> {
  const isShared = wholeNumber('--gateways', gateways, 1, 2) === 2
  if (!isShared && storeUrl !== undefined)
    throw new UsageError('flag_without_meaning', '--store-url requires --gateways 2', {
      hint: 'add --gateways 2, or leave it out',
    })
  if (!isShared) return liveOnce
  const { liveWithGateways, refusePassword } = await import('./demo-gateways.js')
  if (storeUrl !== undefined) await refusePassword(storeUrl)
  return (context, report) => liveWithGateways(context, report, storeUrl)
}

export const demoCommand = (context: Context): Command =>
  new Command('demo')
    .description(
      'show the whole life of a proposal on a throwaway chain: question, signature, admission, execution, replay, conflict',
    )
    .option(
      '--gateways <number>',
      'number of gateways; 2 share one PostgreSQL, and the leader is killed midway; default: 1',
    )
    .option(
      '--store-url <postgres://…>',
      'with two gateways: use this empty database instead of a server of its own; no password in the URL',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  proposer demo\n  proposer demo --json\n  proposer demo --gateways 2',
    )
    .action(async (flags: DemoFlags) => {
      const { output } = context
      const live = await lifeOf(flags)
      const steps: DemoStep[] = []
      const report = (step: DemoStep) => {
        steps.push(step)
        if (output.mode === 'ndjson') output.line(wire(step))
        if (output.mode === 'human') output.text(`${line(context, step)}\n`)
      }
      if (output.mode === 'human')
        output.note(
          'A proposal from question to chain, with the real client, gateway and contracts:\n',
        )
      let failure: unknown
      try {
        await live(context, report)
      } catch (error) {
        failure = error
      }
      const ok = failure === undefined
      if (output.mode !== 'human') output.result('demo', { steps: steps.map(wire), ok }, () => '')
      if (!ok) throw failure
      if (output.mode !== 'human') return
      output.note(
        '\nDone; nothing is left running. Next:\n  proposer devchain --write ./dev\n  proposer serve --config ./dev/gateway.json',
      )
    })

const wire = ({ name, ok, seconds, detail }: DemoStep) => ({ name, ok, seconds, detail })

/** The longest name of a step. */
const nameWidth = 9

function line(context: Context, { name, ok, seconds, detail }: DemoStep): string {
  const { columns, paint } = context.output
  const mark = ok ? 'ok' : 'failed'
  const painted = ok ? paint.green(mark) : paint.red(mark)
  // The time stands behind the text where it has room, so that no line is wider than the terminal.
  const room = columns - nameWidth - 1
  const detailLines = fold(detail, room).split('\n')
  const time = `${seconds.toFixed(1)} s`
  const isWide = (detailLines.at(-1)?.length ?? 0) + time.length + mark.length + 3 > room
  const lines = [
    ...detailLines.slice(0, -1),
    ...(isWide
      ? [detailLines.at(-1) ?? '', `${paint.dim(time)} ${painted}`]
      : [`${detailLines.at(-1)}  ${paint.dim(time)} ${painted}`]),
  ]
  return `${paint.bold(name.padEnd(nameWidth))} ${lines.join(`\n${' '.repeat(nameWidth + 1)}`)}`
}
