"""Copies of a remit: what `replace` changes, what it keeps, and what no copy can change."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import remit
from loop_rig import desk
from remit import Allow, ConfigurationError, Limits, MemoryStore, Remit, Settings
from remit.remit import Changes
from remit.testing import ScriptedModel, run_virtual

TYPES = {"deps_type", "output"}
"""What a remit is typed by. A copy with others would be another remit."""


@remit.tool(effect="read")
async def look(x: str) -> str:
    """Look."""
    return x


async def allow(_: Any) -> Allow:
    return Allow()


def test_every_part_of_a_remit_but_its_types_can_be_replaced() -> None:
    """C8: no part is forgotten in a copy, so that a copy is never less guarded than it looks."""
    parts = {field.name for field in dataclasses.fields(Remit) if field.init}
    assert Changes.__optional_keys__ == parts - TYPES


def test_a_copy_keeps_what_is_not_named_and_the_store_with_its_runs() -> None:
    """E8: a copy knows the runs of its original."""

    async def main() -> None:
        support = desk(["fine"], [look], policy=allow, show_budget=True)
        outcome = await support.run("go", run_id="r")
        copy = support.replace(limits=Limits(steps=1, tokens=9_000, seconds=9))
        assert (copy.tools, copy.policy, copy.show_budget) == ((look,), allow, True)
        assert copy.limits.steps == 1
        assert (await copy.outcome("r")).text == outcome.text

    run_virtual(main())


def test_none_takes_a_part_away_and_what_is_not_given_stays() -> None:
    """C8: "not given" and None are two things."""
    support = desk(["fine"], [look], policy=allow)
    assert support.replace().policy is allow
    assert support.replace(policy=None).policy is None
    assert support.replace(tools=()).tools == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nome": "x"}, "cannot change nome"),
        ({"deps_type": int}, "cannot change deps_type"),
        ({"model": None}, "model="),
        ({"store": None}, "store="),
        ({"limits": None}, "limits="),
        ({"tools": [len]}, "plain function"),
        ({"settings": Settings(tool_choice="nonesuch")}, "nonesuch"),
    ],
)
def test_what_no_copy_can_have_is_refused(changes: Any, words: str) -> None:
    """C8: a copy is checked like its original."""
    with pytest.raises(ConfigurationError, match=words):
        desk(["fine"], [look]).replace(**changes)


def test_a_remit_of_typed_deps_begins_no_run_without_them() -> None:
    """E8: what a body will reach for is there before anything is sent."""

    async def main() -> None:
        model = ScriptedModel(["fine", "fine"])
        support = desk(model, [look], deps_type=dict, store=MemoryStore())
        with pytest.raises(ConfigurationError, match=r"deps of type dict: give deps="):
            await support.run("go", run_id="r")
        with pytest.raises(ConfigurationError, match="deps="):
            await support.resume("r")
        assert model.asked == 0
        assert (await support.run("go", run_id="r", deps={})).completed

    run_virtual(main())
