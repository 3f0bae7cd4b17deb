"""Write the completion scripts of the command line anew, from its own description of itself.

    python scripts/completions.py

`tests/test_cli_completion.py` fails where one is out of date. What the description does not know is added here: ids of
runs and of what they wait for, which the shell asks the command line for (`cli/ids.py`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from remit.cli.app import APP
from remit.cli.scripts import NAMES

__all__ = ["generated", "main"]

SCRIPTS = Path(__file__).resolve().parent.parent / "src" / "remit" / "cli" / "scripts"

ONE = {
    "show": "runs",
    "tail": "runs",
    "resume": "runs",
    "send": "open",
    "supply": "questions",
}
"""Commands whose first argument is an id, and of what."""
MANY = {"cancel": "open", "approve": "approvals", "reject": "approvals"}
"""Those that take any number."""
FLAGS = {"artifact": "--run", "runs": "--cursor", "store": "--run"}
"""Flags that take the id of a run, by the first word of their command."""

BASH = """
_remit() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}"
  COMPREPLY=()
  _remit_words
  [[ ${{#COMPREPLY[@]}} -eq 0 && "$cur" != -* ]] || return 0
  local with_values='{values}'
  local command="" given=0 skip=0 kind="" store="" i word line
  for ((i=1; i<COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    if [[ "$word" == "=" || "$word" == ":" ]]; then
      skip=1  # bash takes the word apart there
    elif [[ $skip -eq 1 ]]; then
      skip=0
    elif [[ "$word" == -* ]]; then
      [[ " $with_values " == *" $word "* ]] && skip=1
    elif [[ -z "$command" ]]; then
      command="$word"
    else
      given=$((given+1))
    fi
  done
  if [[ $skip -eq 1 ]]; then
    case "$command ${{COMP_WORDS[COMP_CWORD-1]}}" in
      {flags}) kind="runs" ;;
    esac
  else
    case "$command:$given" in
      {arguments}
    esac
  fi
  [[ -n "$kind" ]] || return 0
  compopt +o default +o bashdefault 2>/dev/null
  [[ "$COMP_LINE" =~ --store[=\\ ]+([^\\ ]+) ]] && store="${{BASH_REMATCH[1]}}"
  while IFS= read -r line; do
    COMPREPLY+=("${{line%%$'\\t'*}}")
  done < <("${{COMP_WORDS[0]}}" completion --ids "$kind" "$cur" "$store" 2>/dev/null)
  return 0
}}
"""
"""Around what is generated: where that offers nothing, ids may fit."""

ZSH_END = """
if [ "$funcstack[1]" = "_remit" ]; then
  _remit "$@"
else
  compdef _remit remit
fi
"""
"""Loaded by name from fpath it completes at once; sourced it registers itself."""

ZSH_IDS = """
_remit_ids() {
  local -a lines ids shown
  local store=""
  local -i at=${words[(i)--store]}
  (( at < CURRENT )) && store=${words[at+1]}
  [[ -n ${words[(r)--store=*]} ]] && store=${${words[(r)--store=*]}#--store=}
  lines=(${(f)"$(_call_program ids remit completion --ids $1 ${(q)PREFIX} ${(q)store} 2>/dev/null)"})
  ids=(${lines%%$'\\t'*})
  shown=(${lines/$'\\t'/  })
  (( $#ids )) && compadd -l -V ids -d shown -a ids
}

"""

FISH_IDS = """
function __remit_ids
    set -l store (string match -rg -- '--store[= ]+(\\S+)' (commandline -cp))
    command remit completion --ids $argv[1] (commandline -ct) $store[-1] 2>/dev/null
end

"""


def generated(shell: Literal["bash", "zsh", "fish"]) -> str:
    """The script of a shell, as the command line is now."""
    script = APP.generate_completion(prog_name="remit", shell=shell).rstrip("\n") + "\n"
    match shell:
        case "bash":
            return _bash(script)
        case "zsh":
            return _zsh(script)
        case "fish":
            return _fish(script)


def _bash(script: str) -> str:
    values = re.search(r"options_with_values='(.*)'", script)
    asked = [(f"{command}:0", kind) for command, kind in ONE.items()]
    asked += [(f"{command}:*", kind) for command, kind in MANY.items()]
    around = BASH.format(
        values="" if values is None else values[1],
        flags="|".join(f'"{command} {flag}"' for command, flag in FLAGS.items()),
        arguments="\n      ".join(f'{pattern}) kind="{kind}" ;;' for pattern, kind in asked),
    )
    # Where nothing of ours fits, such as behind --tools, files do.
    return script.replace("\n_remit() {", "\n_remit_words() {").replace(
        "complete -F _remit remit",
        f"{around.strip()}\n\ncomplete -o bashdefault -o default -F _remit remit",
    )


def _zsh(script: str) -> str:
    lines: list[str] = []
    command = ""
    for line in script.replace("_cyclopts_remit", "_remit").splitlines():
        asked = line
        found = re.fullmatch(r"        ([a-z]+)\)", line)
        command = command if found is None else found[1]
        kind = ONE.get(command) if "'1:" in line else None
        if re.match(r" +'[1*]:", line) and command in MANY:
            kind = MANY[command]
        flag = FLAGS.get(command)
        if flag is not None and f"'*{flag}[" in line:
            kind = "runs"
        indent = len(line) - len(line.lstrip())
        if kind is not None and indent > 8 and line.endswith("' \\"):
            asked = f"{line[:-3]}: _remit_ids {kind}' \\"
        lines.append(asked)
    return "\n".join(lines).replace("\n_remit() {", f"{ZSH_IDS}_remit() {{", 1) + "\n" + ZSH_END


def _fish(script: str) -> str:
    asked = [
        f"complete -c remit -n '__fish_remit_using_command {command}"
        f"; and test (__fish_remit_positional_index 1) -eq 0' -kfa '(__remit_ids {kind})'"
        for command, kind in ONE.items()
    ]
    asked += [
        f"complete -c remit -n '__fish_remit_using_command {command}' -kfa '(__remit_ids {kind})'"
        for command, kind in MANY.items()
    ]
    for command, flag in FLAGS.items():
        path = "store erase" if command == "store" else command
        asked.append(
            f"complete -c remit -n '__fish_remit_using_command {path}' -l {flag[2:]} -xka '(__remit_ids runs)'"
        )
    return script + FISH_IDS + "\n".join(asked) + "\n"


def main() -> None:
    """Write all of them."""
    for shell in ("bash", "zsh", "fish"):
        (SCRIPTS / NAMES[shell]).write_text(generated(shell), "utf-8")


if __name__ == "__main__":
    main()
