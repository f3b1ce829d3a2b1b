/**
 * `demo`: the whole life of a proposal on a throwaway chain, narrated, with nothing left behind
 * (contract §6).
 */
import { Command } from 'commander'
import { type DemoStep, liveOnce } from './demo-life.js'
import type { Context } from './terminal/context.js'
import { fold } from './terminal/render.js'

export const demoCommand = (context: Context): Command =>
  new Command('demo')
    .description(
      'show the whole life of a proposal on a throwaway chain: question, signature, admission, execution, replay, conflict',
    )
    .addHelpText('after', '\nExamples:\n  proposer demo\n  proposer demo --json')
    .action(async () => {
      const { output } = context
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
        await liveOnce(context, report)
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
