/** `demo`: the whole life of a proposal on a throwaway chain, narrated, with nothing left behind (contract §6). */
import { Command } from 'commander'
import type { Context } from './context.js'
import { type DemoStep, liveOnce } from './demo-life.js'
import { visible } from './view/render.js'

export const demoCommand = (context: Context): Command =>
  new Command('demo')
    .description('show the whole life of a proposal on a throwaway chain: question, signature, admission, execution, replay, conflict')
    .addHelpText('after', '\nExamples:\n  proposer demo\n  proposer demo --json')
    .action(async () => {
      const { output } = context
      const steps: DemoStep[] = []
      const told = (step: DemoStep) => {
        steps.push(step)
        if (output.mode === 'ndjson') output.line(wire(step))
        if (output.mode === 'human') output.text(`${line(context, step)}\n`)
      }
      if (output.mode === 'human') output.note('A proposal from question to chain, with the real client, gateway and contracts:\n')
      let failure: unknown
      try {
        await liveOnce(context, told)
      } catch (error) {
        failure = error
      }
      const ok = failure === undefined
      if (output.mode !== 'human') output.result('demo', { steps: steps.map(wire), ok }, () => '')
      if (!ok) throw failure
      if (output.mode !== 'human') return
      output.note(
        '\nDone, and nothing is left running. Next: `proposer devchain --write ./dev`, then `proposer serve --config ./dev/gateway.json`',
      )
    })

const wire = ({ name, ok, seconds, detail }: DemoStep) => ({ name, ok, seconds, detail })

function line(context: Context, { name, ok, seconds, detail }: DemoStep): string {
  const { paint } = context.output
  const mark = ok ? paint.green('ok') : paint.red('failed')
  return `${paint.bold(name.padEnd(9))} ${visible(detail)}  ${paint.dim(`${seconds.toFixed(1)} s`)} ${mark}`
}
