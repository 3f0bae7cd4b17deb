"""How the command line starts: what it loads, and what it answers before it loads anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import remit
from cli_rig import ROOT, SHOP, environment, program, write_script
from reading_rig import STORE, leave_runs

SLOW = {"aiohttp", "httpx", "mcp", "requests", "rich.markdown", "starlette", "textual", "urllib3"}
"""HTTP clients, servers and renderers of Markdown: no command of ours needs them to begin."""


def loaded(*arguments: str, cwd: Path) -> set[str]:
    """The modules that a command has loaded when it ends."""
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"sys.argv = ['remit', *{list(arguments)!r}]\n"
        "from remit.cli.__main__ import main\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=cwd,
        env=environment(cwd),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.splitlines()[-1].split())


def test_the_version_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    modules = loaded("--version", cwd=tmp_path)
    ours = {name for name in modules if name.partition(".")[0] == "remit"}
    assert ours == {"remit", "remit.cli", "remit.cli.__main__"}
    assert not {"cyclopts", "logging", "typing", "asyncio", "argparse"} & modules


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_before_the_command_line_is_loaded(
    shell: str, tmp_path: Path
) -> None:
    modules = loaded("completion", shell, cwd=tmp_path)
    assert not {"cyclopts", "logging", "typing", "asyncio", "remit.cli.app"} & modules


def test_looking_at_tools_loads_no_http_client_and_no_markdown(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    write_script(tmp_path, ["Hello."])
    assert not SLOW & loaded("tools", "shop.py", cwd=tmp_path)


def test_a_run_loads_no_http_client_and_no_markdown(tmp_path: Path) -> None:
    model = write_script(tmp_path, ["Hello."])
    assert not SLOW & loaded("run", "hi", "--model", model, cwd=tmp_path)


@pytest.mark.parametrize("command", ["runs --json", "show done", "tail done --jsonl"])
def test_runs_are_looked_at_without_a_model_a_client_or_pydantic(
    command: str, tmp_path: Path
) -> None:
    """They are listed often, and by scripts: what only a run needs is not loaded."""
    leave_runs(tmp_path)
    modules = loaded(*command.split(), "--store", STORE, cwd=tmp_path)
    assert not SLOW & modules
    assert not {"pydantic", "pydantic_core", "jsonschema", "remit.remit"} & modules


def test_settings_are_shown_without_the_loop(tmp_path: Path) -> None:
    modules = loaded("config", "show", cwd=tmp_path)
    assert not {"remit.loop", "pydantic"} & modules
    assert not SLOW & modules


def test_the_version_is_the_package_s(tmp_path: Path) -> None:
    for arguments in (["--version"], ["run", "--version"]):
        ended = program(*arguments, cwd=tmp_path)
        assert (ended.code, ended.out.split()[-1]) == (0, remit.__version__)


def test_python_m_remit_is_the_same_program(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "remit", "--version"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == f"remit {remit.__version__}\n"


def test_the_installed_program_is_this_one() -> None:
    assert 'remit = "remit.cli.__main__:main"' in (ROOT / "pyproject.toml").read_text("utf-8")
