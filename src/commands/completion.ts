/**
 * `completion`: the script that teaches a shell this program's commands, flags, accounts and ids
 * (contract §6). Each script hands over what is typed, so that it never grows old.
 */
import { verb } from './terminal/verb.js'

export const shells = ['bash', 'zsh', 'fish'] as const
export type Shell = (typeof shells)[number]

/** Asked by the name it was typed with: a copy in a project's folder completes itself. */
const bash = `# Completion of proposer for bash 4 and later.
# This shell:   source <(proposer completion bash)
# Every shell:  proposer completion bash > ~/.local/share/bash-completion/completions/proposer
_proposer() {
  local form value word glue='' words=() typed=\${COMP_WORDS[COMP_CWORD]}
  # readline may break words at = and at :, which the program is to see whole
  for word in "\${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ -n $word && ( -n $glue || -z \${word//[=:]/} ) ]]; then
      words[\${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
    [[ -n $word && -z \${word//[=:]/} ]] && glue=1 || glue=''
  done
  [[ -z \${typed//[=:]/} ]] && typed=''
  # what stands before the break is kept by readline
  local kept=\${words[\${#words[@]}-1]%"$typed"}
  COMPREPLY=()
  {
    read -r form
    case $form in
      files) compopt -o default ;;
      folders) compopt -o filenames -o dirnames ;;
      values) while IFS= read -r value; do COMPREPLY+=("\${value#"$kept"}"); done ;;
    esac
  } < <("\${1/#\\~\\//$HOME/}" __complete bash "\${words[@]}" 2>/dev/null)
}
complete -o nosort -F _proposer proposer 2>/dev/null || complete -F _proposer proposer
`

const zsh = `#compdef proposer
# Completion of proposer for zsh.
# This shell:   source <(proposer completion zsh)
# Every shell:  proposer completion zsh > a folder of $fpath, as _proposer
_proposer() {
  local -a lines values
  local line value
  lines=("\${(@f)$("\${(Q)words[1]/#\\~\\//$HOME/}" __complete zsh "\${(@Q)words[1,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)}")
  case $lines[1] in
    files) _files ;;
    folders) _files -/ ;;
    values)
      for line in "\${(@)lines[2,-1]}"; do
        value=\${line%%$'\\t'*}
        value=\${value//\\\\/\\\\\\\\}
        values+=("\${value//:/\\\\:}:\${line#*$'\\t'}")
      done
      _describe -V -t values value values
      ;;
  esac
}
if [[ $funcstack[1] == _proposer ]]; then
  _proposer "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _proposer proposer
fi
`

const fish = `# Completion of proposer for fish 3 and later.
# Every shell:  proposer completion fish > ~/.config/fish/completions/proposer.fish
function __proposer_complete
  set -l lines (command proposer __complete fish (commandline -opc) (commandline -ct) 2>/dev/null)
  switch "$lines[1]"
    case files
      __fish_complete_path (commandline -ct)
    case folders
      __fish_complete_directories (commandline -ct) ''
    case values
      string join \\n -- $lines[2..-1]
  end
end
complete -c proposer -f -k -a '(__proposer_complete)'
`

export const scripts: Readonly<Record<Shell, string>> = { bash, zsh, fish }

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
