/**
 * `completion`: the script that teaches a shell this program's commands, flags, accounts and ids
 * (contract §6).
 */
import { verb } from '../terminal/verb.js'
import { scripts, shells } from './scripts.js'

export const completionCommand = verb({
  name: 'completion',
  about:
    'generate a completion script for commands, flags, accounts and ids; reads this machine only, no network',
  args: { '<shell>': { about: 'which shell', choices: shells } },
  examples: [
    'completion bash > ~/.local/share/bash-completion/completions/proposer',
    `completion zsh > "\${fpath[1]}/_proposer"`,
    'completion fish > ~/.config/fish/completions/proposer.fish',
    'source <(proposer completion bash)    # this shell alone',
  ],
  run({ output }, _flags, { shell }) {
    const script = scripts[shell]
    output.show('completion', { shell, script }, [() => script.replace(/\n$/, '')])
  },
})
