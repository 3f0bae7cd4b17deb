"""The tools of a request as a wire takes them, and the way back."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from typing import Any

import pytest

import remit as rm
from loop_rig import desk, results
from remit.models.base import ToolSpec
from remit.models.wires.lowering import Dialect
from remit.models.wires.schema_source import MOST_CHARS
from remit.models.wires.toolbox import Toolbox
from remit.testing import run_virtual
from test_lowering import ORDER

OPEN = Dialect("open")
STRICT = Dialect("strict")
PLAIN: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
SERVER = "a-server-whose-name-is-exactly-fifty-characters-lo"
LONG = [f"{SERVER}.find_all_{end}" for end in ("customers", "contracts")]
FIVE = [*LONG, "a.b", "a/b", "a_b"]


def spec(name: str, parameters: dict[str, Any] | None = None) -> ToolSpec:
    return ToolSpec(name, "Does it.", PLAIN if parameters is None else parameters)


# --- names ---------------------------------------------------------------------------------------


def test_five_tools_that_look_alike_on_a_wire_are_all_callable() -> None:
    """case 22: two equal in their first 60 characters, and `a.b`, `a/b`, `a_b`."""
    assert len(SERVER) == 50
    assert LONG[0][:60] == LONG[1][:60]
    box = Toolbox([spec(name) for name in FIVE], OPEN)
    wire = [tool.name for tool in box.offered]
    assert box.set_aside == {}
    assert len(set(wire)) == 5
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in wire)
    assert [box.own_name(name) for name in wire] == FIVE
    assert [box.own_name(name) for name in FIVE] == FIVE, "own names are understood too"


def test_a_wire_name_depends_on_no_other_tool() -> None:
    """case 22: the same after a restart, in another order, and for a tool that is there no more."""
    box = Toolbox([spec(name) for name in FIVE], OPEN)
    other = Toolbox([spec(name) for name in reversed(FIVE[1:])], OPEN)
    assert [box.wire_name(name) for name in FIVE] == [other.wire_name(name) for name in FIVE]


def test_a_tool_whose_own_name_is_the_alias_of_another_is_called_as_itself() -> None:
    """case 22: nothing merges, even on purpose."""
    taken = Toolbox([], OPEN).wire_name("a.b")
    box = Toolbox([spec("a.b"), spec(taken)], OPEN)
    first, second = (tool.name for tool in box.offered)
    assert (box.own_name(first), box.own_name(second)) == ("a.b", taken)


def test_an_unknown_name_stays_what_the_model_said() -> None:
    assert Toolbox([spec("a.b")], OPEN).own_name("nope") == "nope"


def test_a_changed_name_is_told() -> None:
    (tool,) = Toolbox([spec("a.b")], OPEN).offered
    assert tool.description == "Does it.\n(Its own name is 'a.b'.)"


@pytest.mark.parametrize("name", ["a:b", "r:1:t:0123456789abcdef:1", "50%", "a%3Ab"])
def test_a_colon_in_a_name_tears_no_key(name: str) -> None:
    """E2, E1, case 22: a call in doubt is found again under its tool, and no other call is taken for it."""

    async def main() -> None:
        entered: list[str] = []

        @rm.tool(effect="idempotent", name=name, timeout=1)
        async def act(what: str) -> str:
            """Do it."""
            entered.append(what)
            await asyncio.sleep(60)
            return what

        remit = desk([[(name, {"what": "a"})], "done", [(name, {"what": "a"})], "done"], [act])
        first = await remit.run("go", run_id="r")
        key = results(first)[0].key
        assert key is not None
        assert [len(key.rsplit(":", 4)), key.rsplit(":", 4)[:2]] == [5, ["r", "1"]]
        assert list(first.transcript.doubts) == [f"{name}:{key.split(':')[-2]}"]
        second = await remit.run("go", history=first.transcript, run_id="s")
        assert results(second)[1].key == key, "the same logical call, under the same key"

    run_virtual(main())


# --- set aside -----------------------------------------------------------------------------------

BY_ID_OR_NAME: dict[str, Any] = {
    "type": "object",
    "anyOf": [
        {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    ],
    "unevaluatedProperties": False,
}
LABELS: dict[str, Any] = {
    "type": "object",
    "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}},
    "required": ["labels"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("dialect", [OPEN, STRICT, Dialect("anthropic-strict"), Dialect("inlined")])
def test_a_union_at_the_root_and_a_free_map_go_out_with_the_others(dialect: Dialect) -> None:
    """case 20: strictness and lowering are a matter of each tool."""
    box = Toolbox([spec("find", BY_ID_OR_NAME), spec("label", LABELS), spec("ping")], dialect)
    find, label, ping = box.offered
    assert box.set_aside == {}
    assert find.parameters["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & set(find.parameters)
    assert set(find.parameters["properties"]) == {"id", "name"}
    assert find.parameters["properties"]["id"]["type"] in ("integer", ["integer", "null"])
    assert 'at least one of [{"properties":{"id":true},"required":["id"]' in find.description
    assert label.parameters["properties"]["labels"]["additionalProperties"] == {"type": "string"}
    strict = dialect.target in ("strict", "anthropic-strict")
    assert [find.strict, label.strict, ping.strict] == [strict, False, strict]
    text = '{"labels": {"env": "qa"}}'
    assert box.own_arguments("label", box.wire_arguments("label", text)) == text


def test_what_only_the_original_says_is_refused_at_dispatch() -> None:
    """case 20: both missing breaks the rule of the author, whatever the wire could say."""

    async def main() -> None:
        async def find(arguments: dict[str, Any]) -> str:
            return "found"

        made = rm.Tool.from_schema(
            name="find", description="Find.", parameters=BY_ID_OR_NAME, effect="read", handler=find
        )
        remit = desk([[("find", {}), ("find", {"id": 7})], "done"], [made])
        none, one = results(await remit.run("go"))
        assert none.is_error
        assert one.text == "found"

    run_virtual(main())


CIRCLE: dict[str, Any] = {"type": "object"}
CIRCLE["properties"] = {"again": CIRCLE}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


LAUGHS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/l0"}},
    "$defs": {
        f"l{n}": {
            "type": "object",
            "properties": {k: {"$ref": f"#/$defs/l{n + 1}"} for k in "abcdefgh"},
        }
        for n in range(20)
    }
    | {"l20": {"type": "string"}},
}

HOSTILE: dict[str, dict[Any, Any]] = {
    "holds itself": CIRCLE,
    "deep": deep(2_000),
    "long": {"type": "object", "description": "x" * (MOST_CHARS + 1)},
    "many": {"type": "object", "enum": list(range(30_000))},
    "key": {"type": "object", "properties": {1: {}}},
    "http": {"type": "object", "properties": {"a": {"$ref": "http://x/y.json#/a"}}},
    "dangling": {"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}}},
    "points at text": {"type": "object", "properties": {"a": {"$ref": "#/type"}}},
    "refs in a circle": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
    },
    "root in a circle": {"type": "object", "allOf": [{"$ref": "#"}]},
    "array": {"type": "array"},
    "no type": {"type": "any", "properties": {}},
    "properties": {"type": "object", "properties": []},
    "member": {"type": "object", "properties": {"a": "string"}},
    "required": {"type": "object", "required": True},
    "bound": {"type": "object", "properties": {"a": {"minimum": "3"}}},
    "union": {"type": "object", "properties": {"a": {"anyOf": []}}},
    "nan": {"type": "object", "properties": {"a": {"const": float("nan")}}},
    "set": {"type": "object", "properties": {"a": {"enum": {1, 2}}}},
    "surrogate": {"type": "object", "properties": {"\ud800": {}}},
    "impossible": {"type": "object", "allOf": [False]},
}


@pytest.mark.parametrize("dialect", [OPEN, STRICT, Dialect("anthropic-strict"), Dialect("inlined")])
@pytest.mark.parametrize("case", HOSTILE)
def test_a_tool_that_cannot_be_lowered_is_set_aside_by_name_with_the_reason(
    dialect: Dialect, case: str
) -> None:
    """case 20: one bad schema costs one tool."""
    box = Toolbox([spec("good"), spec("bad", HOSTILE[case]), spec("fine")], dialect)
    assert [tool.name for tool in box.offered] == ["good", "fine"]
    assert list(box.set_aside) == ["bad"]
    assert 0 < len(box.set_aside["bad"]) < 200


def test_references_that_multiply_are_bounded_when_they_are_written_out() -> None:
    """case 20: eight to the twentieth nodes are not made."""
    box = Toolbox([spec("bad", LAUGHS)], Dialect("inlined"))
    assert "grows beyond" in box.set_aside["bad"]
    assert Toolbox([spec("bad", LAUGHS)], OPEN).set_aside == {}


# --- bytes ---------------------------------------------------------------------------------------

STABLE = """
import json, random, sys
from remit.models.base import ToolSpec
from remit.models.wires.lowering import Dialect
from remit.models.wires.toolbox import Toolbox
import msgspec

def shuffled(value, rng):
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    if isinstance(value, list):
        return [shuffled(each, rng) for each in value]
    return value

schemas = json.loads(sys.argv[1])
rng = random.Random(int(sys.argv[2]))
tools = [ToolSpec(name, "d", shuffled(schema, rng)) for name, schema in schemas.items()]
for target in ("open", "inlined", "strict", "anthropic-strict"):
    box = Toolbox(tools, Dialect(target))
    print(msgspec.json.encode(box.offered).decode(), dict(box.set_aside))
"""


def test_the_same_tools_with_their_keys_permuted_are_the_same_bytes_in_every_process() -> None:
    """case 53: five processes with different hash seeds, each with another order of keys."""
    schemas = {
        "order": ORDER,
        "find": BY_ID_OR_NAME,
        "label": LABELS,
        "größen": {
            "type": "object",
            "properties": {"größe": {"const": {"b": 1, "a": 2}}, "z": {"enum": [1, 2]}, "a": True},
            "required": ["z", "größe"],
            "patternProperties": {"b": {}, "a": {}},
        },
    }
    said = {
        subprocess.run(
            [sys.executable, "-c", STABLE, json.dumps(schemas), str(seed)],
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(5)
    }
    assert len(said) == 1


def test_required_members_keep_their_order_and_come_first() -> None:
    """case 53: models read and write members in order; the rest goes by name."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("b", "z", "thought", "answer", "a")},
        "required": ["thought", "answer"],
    }
    (tool,) = Toolbox([spec("t", schema)], OPEN).offered
    assert list(tool.parameters["properties"]) == ["thought", "answer", "a", "b", "z"]


def test_a_schema_with_nothing_in_the_way_goes_out_as_it_stands() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "title": "Args",
        "x-order": 3,
        "properties": {
            "a": {"type": "string", "nullable": True, "default": None, "format": "made-up"},
            "b": {"$ref": "#/definitions/B"},
            "c": {"type": ["array", "null"], "items": {"type": "string"}},
        },
        "definitions": {"B": {"oneOf": [{"const": 1}, {"type": "string", "pattern": "^x"}]}},
        "additionalProperties": True,
        "required": [],
    }
    (tool,) = Toolbox([spec("t", schema)], OPEN).offered
    assert tool.parameters == schema


def test_two_thousand_tools_are_lowered_once_and_by_then_cost_nothing() -> None:
    """case 22: the work is linear, and a name is found without a search."""
    rng = random.Random(0)
    names = [f"server/{rng.random()}" for _ in range(2_000)]
    box = Toolbox([spec(name) for name in names], OPEN)
    assert [box.own_name(tool.name) for tool in box.offered] == names
