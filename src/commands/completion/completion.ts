/**
 * `completion`: the script that teaches a shell this program's commands, flags, accounts and ids
 * (contract §6).
 */
import { Argument, Command } from 'commander'
import type { Context } from '../terminal/context.js'
import { type Shell, scripts, shells } from './scripts.js'

export const completionCommand = (context: Context): Command =>
  new Command('completion')
    .description(
      'generate a completion script for commands, flags, accounts and ids; reads this machine only, no network',
    )
    .addArgument(new Argument('<shell>', 'which shell').choices(shells))
    .addHelpText(
      'after',
      `
Examples:
  proposer completion bash > ~/.local/share/bash-completion/completions/proposer
  proposer completion zsh > "\${fpath[1]}/_proposer"
  proposer completion fish > ~/.config/fish/completions/proposer.fish
  source <(proposer completion bash)    # this shell alone`,
    )
    .action((shell: Shell) => {
      const { output } = context
      if (output.mode === 'human') output.text(scripts[shell])
      else output.result('completion', { shell, script: scripts[shell] }, () => '')
    })
