"""What a run was begun with, and what has changed when it is taken up again: its tools, its output and its model.

A run may be resumed days later, by a newer version of the program. What changed is recorded and told. Most of it does
no harm: a tool that is gone is answered as unknown, a call that no longer fits its schema with what is wrong, an approval
that was given for another schema is asked for anew. What would do harm is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from remit.canonical import arguments_hash
from remit.config import Config
from remit.current import Frame
from remit.errors import ConfigurationError
from remit.report import read_state
from remit.state import CallState, RunState
from remit.store.base import Journal, RunStatus
from remit.store.directory import Directory, RunQuery
from remit.tools import Arguments, Effect, Tool

__all__ = ["changes", "refuse_exchange", "refuse_unsafe", "refuse_unsafe_inside", "tools_of"]

_MOST_NAMED: Final = 64
"""Of more tools than that a run records one fingerprint over all."""
_MOST_LOOKED_AT: Final = 1_000
"""Runs inside one call, the newest first."""
_ALL: Final = "*"
_OUTPUT: Final = "(output)"
"""The type of the output, among the tools, where the text of the model is held to it and no tool takes it."""
_OPEN: Final[frozenset[RunStatus]] = frozenset({"ready", "running", "waiting"})
_STRICTNESS: Final = tuple(each.value for each in (Effect.READ, Effect.IDEMPOTENT, Effect.CONFIRM))


def tools_of(config: Config) -> Mapping[str, str]:
    """What the tools are, by name: a fingerprint of each. Of very many, one for all, under `*`."""
    prints = {name: tool.fingerprint for name, tool in config.tools.items()}
    if config.output is not None and config.output_schema is not None:
        prints[_OUTPUT] = config.output.tool.fingerprint
    if len(prints) <= _MOST_NAMED:
        return prints
    return {_ALL: arguments_hash(prints)}


def changes(state: RunState, config: Config) -> dict[str, tuple[str, ...]]:
    """What is different now from when the run was last at work: `model` (old, new), `added`, `removed`, `changed` tools.

    Shape: all four, or empty where nothing changed or nothing is known of how it was.
    """
    found: dict[str, tuple[str, ...]] = {"model": (), "added": (), "removed": (), "changed": ()}
    if state.model and state.model != config.model.name:
        found["model"] = (state.model, config.model.name)
    before, now = state.tools, tools_of(config)
    if before and before != now:
        if _ALL in before or _ALL in now:
            found["changed"] = (_ALL,)
        else:
            found["added"] = tuple(sorted(now.keys() - before.keys()))
            found["removed"] = tuple(sorted(before.keys() - now.keys()))
            found["changed"] = tuple(
                sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
            )
    return found if any(found.values()) else {}


def refuse_unsafe(state: RunState, config: Config) -> None:
    """Errors: `ConfigurationError` where an open call would be treated as less than it was begun as."""
    wrong = _wrong_in(state, config.tools)
    if wrong:
        raise _refusal(state.run_id, wrong)


async def refuse_unsafe_inside(
    store: Journal, state: RunState, tools: Mapping[str, Tool[..., Any]]
) -> None:
    """The same for the runs inside its open calls that are child loops, and those inside them.

    Errors: `ConfigurationError`, `JournalError`.
    """
    root, around = state.run_id, [(state, tools)]
    while around:
        run, known = around.pop()
        for call in run.calls:
            tool = known.get(call.use.name)
            if call.settled or call.started is None or tool is None or not tool.inside:
                continue
            for child in await _open_inside(store, call.key or "", run.run_id):
                inside = await read_state(store, child)
                wrong = _wrong_in(inside, tool.inside)
                if wrong:
                    raise _refusal(root, f"in the run of {tool.remit!r} inside, {wrong}")
                around.append((inside, tool.inside))


async def _open_inside(store: Journal, key: str, around: str) -> Sequence[str]:
    """The runs inside a call that have not ended."""
    if not isinstance(store, Directory):
        return ()
    query = RunQuery(statuses=_OPEN, parent=around, prefix=f"{key}/")
    return [entry.run_id for entry in await store.runs(query, count=_MOST_LOOKED_AT)]


def _refusal(run_id: str, wrong: str) -> ConfigurationError:
    return ConfigurationError(
        f"run {run_id!r} cannot go on with these tools: {wrong}. Give the remit the tool as it was, or end the "
        f"run: cancel({run_id!r})"
    )


async def refuse_exchange(
    store: Journal, frame: Frame, run_id: str, asked_of: Callable[[str], bytes]
) -> None:
    """A body that was begun before asks for this run, and not for one that it asked for then.

    `asked_of` gives the digest of what it asks for, had another remit been asked. Errors: `ConfigurationError` where
    that one is open, or was asked for the same under another name: what it did would be done again under other keys.
    """
    if not isinstance(store, Directory) or await store.info(run_id) is not None:
        return
    inside = f"{frame.key}/"
    for entry in await store.runs(RunQuery(prefix=inside), count=_MOST_LOOKED_AT):
        if (entry.parent or "").startswith(inside) or frame.has_claimed(entry.run_id):
            continue
        before = await store.info(entry.run_id)
        if entry.status != "ended" or (
            before is not None and before.spec_hash == asked_of(entry.remit)
        ):
            raise ConfigurationError(
                f"the call {frame.key!r} was begun with another run inside, of {entry.remit!r}, which is not asked for "
                "now"
            )


def _wrong_in(state: RunState, tools: Mapping[str, Tool[..., Any]]) -> str:
    """What harm it would do to go on with the open calls of a run; empty where it does none."""
    wrongs = (_wrong(call, tools) for call in state.calls if not call.settled)
    return next(filter(None, wrongs), "")


def _wrong(call: CallState, tools: Mapping[str, Tool[..., Any]]) -> str:
    """What harm it would do to go on with an open call; empty where it does none.

    Of what may have taken effect nobody may say "not run", nor begin it anew under another key; and what was asked
    as an effect of one class is not carried out as one of a looser class.
    """
    name = call.use.name
    tool = tools.get(name)
    in_doubt = call.started is not None and call.handed_out is None
    if tool is None:
        if not in_doubt:
            return ""
        return (
            f"a call of {name!r} was begun and may have taken effect, and there is no {name!r} now"
        )
    if in_doubt and call.remit != tool.remit:
        return f"a call of {name!r} was begun as {_kind(call.remit)}, and {name!r} is {_kind(tool.remit)} now"
    if in_doubt and call.effect != Effect.READ and not _reads(tool, call.arguments):
        return (
            f"a call of {name!r} was begun and may have taken effect, and its arguments do not fit "
            f"{name!r} as it is now"
        )
    before, now = call.effect, tool.effect.value
    if before in _STRICTNESS and _STRICTNESS.index(now) < _STRICTNESS.index(before):
        return (
            f"a call of {name!r} is open that was begun as {before!r}, and {name!r} is {now!r} now"
        )
    return ""


def _kind(remit: str) -> str:
    return f"a run of {remit!r}" if remit else "a function"


def _reads(tool: Tool[..., Any], arguments: str) -> bool:
    return isinstance(tool.read_arguments(arguments), Arguments)
