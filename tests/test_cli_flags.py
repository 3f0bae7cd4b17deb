"""Every flag that the help lists has a test, and every command of the README runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from cli_rig import ROOT, Cli, environment
from promises import read_tests
from remit.cli.app import APP

_LIMITS = ("steps", "tokens", "usd", "calls", "seconds")
_ACTING = "test_cli_acting.py"
_DISPLAY = ("plain", "quiet", "verbose", "no-motion", "color")
TESTED = {
    "chat --color": "test_cli_chat.py::test_a_chat_is_shown_as_its_flags_say",
    "chat --confirm": "test_cli_chat.py::test_approvals_are_decided_in_a_chat_too",
    "chat --instructions": "test_cli_chat.py::test_a_chat_is_put_together_as_a_run_is",
    "chat --model": "test_cli_chat.py::test_a_chat_is_put_together_as_a_run_is",
    "chat --no-motion": "test_cli_chat.py::test_a_chat_is_shown_as_its_flags_say",
    "chat --plain": "test_cli_chat.py::test_a_chat_is_shown_as_its_flags_say",
    "chat --quiet": "test_cli_chat.py::test_a_chat_is_shown_as_its_flags_say",
    "chat --remit": "test_cli_chat.py::test_each_line_is_a_prompt_of_one_conversation",
    "chat --tools": "test_cli_chat.py::test_a_chat_is_put_together_as_a_run_is",
    "chat --verbose": "test_cli_chat.py::test_a_chat_is_shown_as_its_flags_say",
    "chat --base-url": "test_cli_models.py::test_an_address_is_where_the_model_is_asked",
    "run --base-url": "test_cli_models.py::test_an_address_is_where_the_model_is_asked",
    "tools --base-url": "test_cli_models.py::test_tools_are_shown_as_they_go_out_to_a_provider",
    "demo --base-url": "test_cli_models.py::test_a_real_model_can_look_after_the_desk",
    "demo --model": "test_cli_models.py::test_a_real_model_can_look_after_the_desk",
    "doctor --model": "test_cli_doctor.py::test_a_model_that_answers_is_well",
    "doctor --base-url": "test_cli_doctor.py::test_a_model_that_answers_is_well",
    "doctor --offline": "test_cli_doctor.py::test_offline_sends_nothing",
    "doctor --json": "test_cli_doctor.py::test_json_is_one_document",
    "completion --install": "test_cli_completion.py::test_install_writes_a_script_where_its_shell_looks",
    "completion SHELL": "test_cli_completion.py::test_a_script_is_printed",
    "config show --json": "test_cli_settings.py::test_what_stands_nearer_wins",
    "config show --origin": "test_cli_settings.py::test_origin_says_where_each_value_comes_from",
    "store info --json": "test_cli_store.py::test_what_is_kept_is_counted",
    "store info --store": "test_cli_store.py::test_what_is_kept_is_counted",
    "store check --json": "test_cli_store.py::test_a_check_fails_where_anything_is_not_as_it_was_written",
    "store check --store": "test_cli_store.py::test_a_check_fails_where_anything_is_not_as_it_was_written",
    "store erase --run": "test_cli_store.py::test_a_run_is_erased_with_its_id_in_full",
    "store erase --session": "test_cli_store.py::test_a_session_is_erased_as_a_whole",
    "store erase --yes": "test_cli_store.py::test_nobody_erases_by_accident",
    "store erase --json": "test_cli_store.py::test_a_run_is_erased_with_its_id_in_full",
    "store erase --store": "test_cli_store.py::test_a_run_is_erased_with_its_id_in_full",
    "store prune --older-than": "test_cli_store.py::test_what_is_old_is_pruned_and_a_dry_run_only_counts",
    "store prune --dry-run": "test_cli_store.py::test_what_is_old_is_pruned_and_a_dry_run_only_counts",
    "store prune --json": "test_cli_store.py::test_what_is_old_is_pruned_and_a_dry_run_only_counts",
    "store prune --store": "test_cli_store.py::test_what_is_old_is_pruned_and_a_dry_run_only_counts",
    "store backup FILE": "test_cli_store.py::test_a_backup_is_a_store_that_passes_the_check",
    "store backup --json": "test_cli_store.py::test_a_backup_is_a_store_that_passes_the_check",
    "store backup --store": "test_cli_store.py::test_a_backup_is_a_store_that_passes_the_check",
    "run --confirm": "test_cli_run.py::test_approvals_are_decided_by_whoever_is_named",
    "run --exit-zero": "test_cli_run.py::test_the_exit_code_says_why_a_run_ended",
    "run --file": "test_cli_run.py::test_files_are_attached_as_text_or_as_media",
    "run --instructions": "test_cli_run.py::test_instructions_are_a_text_or_a_file",
    "run --json": "test_cli_run.py::test_json_is_one_document",
    "run --jsonl": "test_cli_run.py::test_jsonl_is_a_line_for_each_event_and_the_outcome_last",
    "run --model": "test_cli_run.py::test_a_remit_keeps_what_no_flag_changes",
    "run --output": "test_cli_run.py::test_with_a_schema_the_answer_is_json",
    "run --remit": "test_cli_run.py::test_the_prompt_is_the_argument_and_what_is_piped_in",
    "run --run-id": "test_cli_run.py::test_the_same_run_id_is_the_same_run_and_another_prompt_is_refused",
    "run --tools": "test_cli_settings.py::test_what_stands_nearer_wins",
    "run -f": "test_cli_run.py::test_files_are_attached_as_text_or_as_media",
    "run PROMPT": "test_cli_run.py::test_the_prompt_is_the_argument_and_what_is_piped_in",
    "runs --all": "test_cli_runs.py::test_runs_inside_of_others_are_listed_where_they_are_asked_for",
    "runs --json": "test_cli_runs.py::test_what_waits_is_told_to_programs_without_a_token",
    "runs --store": "test_cli_runs.py::test_a_list_fits_the_terminal",
    **{
        f"runs --{flag}": "test_cli_runs.py::test_runs_are_found"
        for flag in (
            *("cursor", "limit", "reason", "remit", "session", "since", "state", "tag", "until"),
        )
    },
    "show RUN": "test_cli_show.py::test_a_run_is_shown_with_what_it_said_did_used_and_why_it_ended",
    "show --call": "test_cli_show.py::test_a_call_is_found_by_its_id_or_its_key",
    "show --full": "test_cli_show.py::test_no_secret_and_no_token_is_in_any_answer",
    "show --json": "test_cli_show.py::test_a_part_of_a_run_is_shown",
    "show --markdown": "test_cli_show.py::test_a_markdown_document_has_no_markup_but_ours",
    "show --only": "test_cli_show.py::test_a_part_of_a_run_is_shown",
    "show --step": "test_cli_show.py::test_a_part_of_a_run_is_shown",
    "show --store": "test_cli_show.py::test_a_run_fits_the_terminal",
    "tail RUN": "test_cli_tail.py::test_a_live_run_is_followed_with_what_runs_inside_until_it_ends",
    "tail --all": "test_cli_tail.py::test_every_live_run_is_followed_until_somebody_leaves",
    "tail --from": "test_cli_tail.py::test_programs_get_events_with_the_number_of_their_row",
    "tail --jsonl": "test_cli_tail.py::test_programs_get_events_with_the_number_of_their_row",
    "tail --store": "test_cli_tail.py::test_every_live_run_is_followed_until_somebody_leaves",
    "tail --verbose": "test_cli_tail.py::test_who_asks_for_everything_is_told_what_was_billed",
    "artifact HANDLE": "test_cli_artifact.py::test_a_text_is_printed_whole_by_its_handle_or_the_beginning_of_it",
    "artifact --run": "test_cli_artifact.py::test_a_text_is_printed_whole_by_its_handle_or_the_beginning_of_it",
    "artifact --range": "test_cli_artifact.py::test_a_part_of_a_text_is_printed",
    "artifact --json": "test_cli_artifact.py::test_a_program_is_told_the_text_the_lines_or_the_bytes",
    "artifact --grep": "test_cli_artifact.py::test_a_part_of_a_text_is_printed",
    "artifact --out": "test_cli_artifact.py::test_bytes_are_written_to_a_file_as_they_are",
    "artifact --store": "test_cli_artifact.py::test_bytes_go_through_a_pipe_and_not_to_a_terminal",
    "tools --json": "test_cli_views.py::test_tools_are_shown_as_the_model_would_see_them",
    "tools --model": "test_cli_views.py::test_a_model_says_what_part_of_its_window_the_tools_take",
    "tools --tools": "test_cli_targets.py::test_several_targets_are_put_together_and_one_tool_counts_once",
    "tools TARGET": "test_cli_targets.py::test_a_file_and_a_module_give_the_same_tools",
    "approvals --json": f"{_ACTING}::test_everything_that_is_waited_for_is_listed_and_no_token_is",
    "approve --by": f"{_ACTING}::test_what_is_approved_is_shown_whole_runs_once_and_its_run_goes_on",
    "approve --json": f"{_ACTING}::test_of_two_people_who_approve_at_once_one_is_told_that_the_other_was_first",
    "approve --no-resume": f"{_ACTING}::test_no_resume_decides_alone_and_loads_no_code",
    "approve --yes": f"{_ACTING}::test_nobody_is_asked_where_nobody_sits_and_no_beginning_of_an_id_decides",
    "cancel --json": f"{_ACTING}::test_a_run_is_cancelled_from_another_process_while_its_tool_hangs",
    "chat --session": f"{_ACTING}::test_a_session_is_gone_on_with_by_the_next_command",
    "chat --session-wait": f"{_ACTING}::test_a_session_is_gone_on_with_by_the_next_command",
    "reject --by": f"{_ACTING}::test_who_rejects_gives_the_model_a_reason",
    "reject --json": f"{_ACTING}::test_who_rejects_gives_the_model_a_reason",
    "reject --no-resume": f"{_ACTING}::test_every_way_to_decide_takes_the_same_flags",
    "reject --reason": f"{_ACTING}::test_who_rejects_gives_the_model_a_reason",
    "resume --exit-zero": f"{_ACTING}::test_new_limits_that_leave_no_room_change_nothing",
    "resume --json": f"{_ACTING}::test_a_run_that_met_a_limit_goes_on_with_more",
    "resume --jsonl": f"{_ACTING}::test_a_run_that_met_a_limit_goes_on_with_more",
    "resume --reopen": f"{_ACTING}::test_a_run_is_cancelled_from_another_process_while_its_tool_hangs",
    "run --session": f"{_ACTING}::test_a_session_is_gone_on_with_by_the_next_command",
    "run --session-wait": f"{_ACTING}::test_a_session_is_gone_on_with_by_the_next_command",
    "send --json": f"{_ACTING}::test_what_is_said_to_a_run_is_heard_when_it_goes_on",
    "supply --by": f"{_ACTING}::test_a_question_is_answered_from_another_process",
    "supply --error": f"{_ACTING}::test_a_question_is_answered_from_another_process",
    "supply --json": f"{_ACTING}::test_a_question_is_answered_from_another_process",
    "supply --no-resume": f"{_ACTING}::test_an_answer_that_does_not_fit_uses_nothing_up",
    **{
        f"resume --{limit}": f"{_ACTING}::test_new_limits_that_leave_no_room_change_nothing"
        for limit in ("usd", "calls")
    },
    **{
        f"resume --{limit}": f"{_ACTING}::test_a_run_that_met_a_limit_goes_on_with_more"
        for limit in ("steps", "tokens", "seconds")
    },
    **{
        f"{command} --{flag}": f"{_ACTING}::test_every_way_to_decide_takes_the_same_flags"
        for command in ("approve", "reject", "supply", "resume")
        for flag in (*_DISPLAY, "remit", "tools", "model", "base-url", "confirm", "store")
    },
    **{
        f"{command} --store": f"{_ACTING}::test_every_way_to_decide_takes_the_same_flags"
        for command in ("approvals", "cancel", "send")
    },
    **{
        f"{command} --{flag}": f"{_ACTING}::test_where_a_run_is_kept_and_what_it_is_marked_with"
        for command in ("run", "chat")
        for flag in ("store", "tag")
    },
    **{
        f"{command} PENDING": f"{_ACTING}::test_nobody_is_asked_where_nobody_sits_and_no_beginning_of_an_id_decides"
        for command in ("approve", "reject")
    },
    "supply PENDING": f"{_ACTING}::test_a_question_is_answered_from_another_process",
    "supply VALUE": f"{_ACTING}::test_a_question_is_answered_from_another_process",
    "cancel RUN": f"{_ACTING}::test_a_killed_run_is_cancelled_by_whoever_says_so",
    "cancel OTHERS": f"{_ACTING}::test_a_killed_run_is_cancelled_by_whoever_says_so",
    "cancel --grace": f"{_ACTING}::test_a_run_is_cancelled_from_another_process_while_its_tool_hangs",
    "cancel --reason": f"{_ACTING}::test_a_run_is_cancelled_from_another_process_while_its_tool_hangs",
    "approve OTHERS": f"{_ACTING}::test_several_are_shown_together_and_each_is_decided_on_its_own",
    "approve --reason": f"{_ACTING}::test_several_are_shown_together_and_each_is_decided_on_its_own",
    "reject OTHERS": f"{_ACTING}::test_of_several_that_are_refused_each_run_goes_on",
    "resume RUN": f"{_ACTING}::test_a_run_that_met_a_limit_goes_on_with_more",
    "send RUN": f"{_ACTING}::test_what_is_said_to_a_run_is_heard_when_it_goes_on",
    "send TEXT": f"{_ACTING}::test_what_is_said_to_a_run_is_heard_when_it_goes_on",
    **{
        f"run --{limit}": "test_cli_run.py::test_the_exit_code_says_why_a_run_ended"
        for limit in _LIMITS
    },
    **{
        f"chat --{limit}": "test_cli_chat.py::test_the_limits_are_those_of_each_prompt"
        for limit in _LIMITS
    },
    **{
        f"run --{flag}": "test_cli_run.py::test_what_is_shown_is_what_the_flags_say"
        for flag in _DISPLAY
    },
    **{
        f"demo --{flag}": "test_cli_views.py::test_the_demo_is_shown_as_its_flags_say"
        for flag in _DISPLAY
    },
}
LABELS = re.compile(
    r"^  (?:(--?[a-z][a-z-]*)(?:, (--?[a-z][a-z-]*))?|([A-Z]+))(?: |$)", re.MULTILINE
)
"""How a line of the help begins that is about a flag or an argument."""


def commands(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, by what is typed."""
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], (*path, name))
    if app.default_command is not None:
        yield path


def documented(cli: Cli, command: tuple[str, ...]) -> set[str]:
    """Every flag and argument that the help of a command lists."""
    page = cli(*command, "--help").out.partition("Exit codes:")[0]
    labels = {label for found in LABELS.findall(page) for label in found if label}
    return {f"{' '.join(command)} {label}" for label in labels}


def test_every_documented_flag_is_pinned_to_a_test(cli: Cli) -> None:
    found = {flag for command in commands(APP) for flag in documented(cli, command)}
    assert found == set(TESTED)


def test_every_test_that_a_flag_is_pinned_to_is_there() -> None:
    there = {test.id.removeprefix("tests/") for test in read_tests(ROOT)}
    assert {name for name in TESTED.values() if name not in there} == set()


def commands_of(page: Path) -> list[str]:
    """What a reader would copy from a page: lines of its console blocks that call `remit`."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if re.search(r"(^|\| )remit ", line)]


@pytest.mark.parametrize("command", commands_of(ROOT / "README.md"))
def test_a_command_of_the_readme_runs(command: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        ["bash", "-c", f"remit() {{ '{sys.executable}' -m remit.cli \"$@\"; }}; {command}"],
        cwd=ROOT,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout or "install" in command or "chat" in command


def test_the_readme_or_a_page_shows_every_command(tmp_path: Path) -> None:
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    shown = " ".join(line for page in pages for line in commands_of(page))
    assert [name for name in APP if name[0] != "-" and f"remit {name}" not in shown] == []


def test_the_two_commands_to_set_up_with_are_targets_of_make() -> None:
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    targets = re.findall(r"^\$ make (\w+)", blocks[0], re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(re.search(rf"^{target}:.*##", makefile, re.MULTILINE) for target in targets)
    assert re.search(r"^demo:.*\n\t.*remit demo\b", makefile, re.MULTILINE)


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ([], "remit demo"),
        (["MODEL=anthropic:claude-sonnet-5-5"], "remit demo --model anthropic:claude-sonnet-5-5"),
        (
            ["MODEL=vllm:qwen3", "BASE_URL=http://localhost:8000/v1"],
            "remit demo --model vllm:qwen3 --base-url http://localhost:8000/v1",
        ),
    ],
)
def test_make_demo_passes_a_model_on(given: list[str], called: str, tmp_path: Path) -> None:
    for stamp in (".created", ".runtime"):  # an environment that is there, so that none is made
        (tmp_path / stamp).touch()
    told = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo", f"VENV={tmp_path}", *given],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert " ".join(told.splitlines()[-1].split()) == f"{tmp_path}/bin/{called}"
