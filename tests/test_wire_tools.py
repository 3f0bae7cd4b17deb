"""Tools that a wire cannot say as they are: what goes out is taken by the provider, what comes back is what was meant.

The provider of tests calls what it is offered, under the names that it is offered, and judges every request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

import remit as rm
from loop_rig import results, said
from remit import Reason, Tool
from remit.models.base import ModelRequest, ToolSpec
from remit.transcript import Transcript
from wire_rig import WIRES, Played, on_every_wire, play

Call = tuple[str, dict[str, Any]]


def offered(
    calls: Callable[[Mapping[str, ToolSpec]], list[Call]],
) -> Callable[[Transcript, ModelRequest], Any]:
    """A script that makes these calls once, from the tools as the provider sees them; by their description."""

    def say(transcript: Transcript, request: ModelRequest) -> Any:
        if results(transcript):
            return "Done."
        return calls({spec.description.split(".")[0]: spec for spec in request.tools})

    return say


def own(
    name: str, description: str, schema: dict[str, Any], handler: Callable[[dict[str, Any]], Any]
) -> Tool[..., Any]:
    """A read with a schema of its own."""
    return Tool.from_schema(
        name=name, description=description, parameters=schema, handler=handler, effect="read"
    )


def names_of(spec: ToolSpec) -> list[str]:
    return list(spec.parameters["properties"])


def completed(played: Played) -> list[str]:
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    return said(played.outcome)


@on_every_wire
def test_names_and_parameters_of_another_alphabet_arrive_as_they_were(wire: str) -> None:
    """case 21, case 22: what a wire cannot spell is spelt otherwise there, and only there."""
    seen: list[dict[str, Any]] = []

    async def measure(given: dict[str, Any]) -> str:
        seen.append(given)
        return "measured"

    keys = ["größe", "filter[id]", "filter_id_", "ключ"]
    schema = {
        "type": "object",
        "properties": {
            **{key: {"type": "integer"} for key in keys},
            "näh": {
                "type": "array",
                "items": {"type": "object", "properties": {"größe": {"type": "string"}}},
            },
        },
        "required": keys,
    }
    tool = own("messen.größe/ключ", "Measure.", schema, measure)

    def calls(tools: Mapping[str, ToolSpec]) -> list[Call]:
        spec = tools["Measure"]
        names = names_of(spec)
        assert all(name.isascii() for name in (spec.name, *names))
        assert len(set(names)) == 5
        inner = list(spec.parameters["properties"][names[4]]["items"]["properties"])
        arguments: dict[str, Any] = dict(zip(names, range(4), strict=False))
        return [(spec.name, arguments | {names[4]: [{inner[0]: "x"}, {inner[0]: "y"}]})]

    played = play(offered(calls), wire, [tool])
    assert completed(played) == ["measured"]
    assert seen == [
        dict(zip(keys, range(4), strict=True)) | {"näh": [{"größe": "x"}, {"größe": "y"}]}
    ]


@on_every_wire
def test_tools_with_names_that_no_wire_takes_are_told_apart(wire: str) -> None:
    """case 22: too long, equal in their first sixty letters, with dots and slashes; each call meets its own tool."""
    server = "s" * 50
    names = [f"{server}_{'t' * 20}_{end}" for end in ("first", "second")] + ["a.b", "a/b", "a_b"]

    def tool(name: str) -> Tool[..., Any]:
        async def act(given: dict[str, Any]) -> str:
            return f"this was {name}"

        return own(name, f"{name}!", {"type": "object"}, act)

    def say(transcript: Transcript, request: ModelRequest) -> Any:
        if results(transcript):
            return "Done."
        found = [spec.name for spec in request.tools if "!" in spec.description]
        assert len(set(found)) == 5
        assert all(len(name) <= 64 for name in found)
        return [(name, {}) for name in found]

    played = play(say, wire, [tool(name) for name in names])
    assert completed(played) == [f"this was {name}" for name in names]
    used = [use.name for message in played.outcome.transcript for use in message.tool_uses]
    assert used == names


@on_every_wire
def test_a_union_at_the_root_a_free_map_and_a_plain_tool_go_out_together(wire: str) -> None:
    """case 20: none of them makes the request fail; what the wire cannot say is still checked here."""
    seen: list[Any] = []

    async def find(given: dict[str, Any]) -> str:
        seen.append(given)
        return "found"

    either = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
    }

    @rm.tool(effect="read")
    async def label(labels: dict[str, str]) -> str:
        """Label."""
        seen.append(labels)
        return "labelled"

    @rm.tool(effect="read")
    async def ping() -> str:
        """Ping."""
        return "pong"

    def calls(tools: Mapping[str, ToolSpec]) -> list[Call]:
        return [
            (tools["Find"].name, {"id": 7}),
            (tools["Find"].name, {}),
            (tools["Label"].name, {"labels": {"env": "qa"}}),
            (tools["Ping"].name, {}),
        ]

    tools = [own("find", "Find.", either, find), label, ping]
    found, refused, labelled, pong = completed(play(offered(calls), wire, tools))
    assert [found, labelled, pong] == ["found", "labelled", "pong"]
    assert "Not run" in refused
    assert seen == [{"id": 7}, {"env": "qa"}]


@dataclass
class Position:
    shelf: int
    row: str = "a"


@dataclass
class Line:
    sku: str
    at: Position
    instead: Line | None = None


@dataclass
class Order:
    lines: list[Line]
    last: Position | None = None


@on_every_wire
def test_shared_and_recursive_definitions_keep_their_types(wire: str) -> None:
    """case 17: by reference or written out, the call is read into the same values."""
    seen: list[Order] = []

    @rm.tool(effect="read")
    async def place(order: Order) -> str:
        """Place."""
        seen.append(order)
        return "placed"

    order = {
        "lines": [
            {
                "sku": "x",
                "at": {"shelf": 1, "row": "b"},
                "instead": {"sku": "y", "at": {"shelf": 2, "row": "a"}, "instead": None},
            }
        ],
        "last": {"shelf": 3, "row": "c"},
    }
    wrong = {"lines": [{"sku": "x", "at": {"shelf": "one"}}]}

    def calls(tools: Mapping[str, ToolSpec]) -> list[Call]:
        name = tools["Place"].name
        return [(name, {"order": order}), (name, {"order": wrong})]

    placed, refused = completed(play(offered(calls), wire, [place]))
    assert placed == "placed"
    assert "Not run" in refused
    inner = Line("y", Position(2, "a"), None)
    assert seen == [Order([Line("x", Position(1, "b"), inner)], Position(3, "c"))]


@on_every_wire
def test_a_tool_that_is_forced_is_forced_under_its_name_on_the_wire(wire: str) -> None:
    """case 22: the choice names what the provider was offered; it is for the first step only."""

    async def act(given: dict[str, Any]) -> str:
        return "acted"

    tool = own("do.it", "Act.", {"type": "object"}, act)
    script = offered(lambda tools: [(tools["Act"].name, {})])
    played = play(script, wire, [tool], settings=rm.Settings(tool_choice="do.it"))
    assert completed(played) == ["acted"]
    first, second = (json.loads(request.body) for request in played.provider.requests)
    names = [json.dumps(tool) for tool in first["tools"]]
    assert "do.it" not in json.dumps(first["tool_choice"])
    assert any(json.dumps(first["tool_choice"]).split('"')[-2] in name for name in names)
    assert second.get("tool_choice") != first["tool_choice"]


@pytest.mark.parametrize("wire", WIRES)
def test_two_thousand_tools_go_out_and_are_found(wire: str) -> None:
    """case 22: the tools array is the same bytes in every request, however many there are."""

    def tool(number: int) -> Tool[..., Any]:
        async def act(given: dict[str, Any]) -> str:
            return f"number {given['n']} of {number}"

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return own(f"server{number % 7}.tool{number}", f"T{number}.", schema, act)

    tools = [tool(number) for number in range(2_000)]
    if wire == "openai-chat":
        tools = tools[:128]  # no more are taken there

    def calls(found: Mapping[str, ToolSpec]) -> list[Call]:
        return [(found[f"T{number}"].name, {"n": number}) for number in (0, 77, len(tools) - 1)]

    played = play(offered(calls), wire, tools)
    assert completed(played) == [f"number {n} of {n}" for n in (0, 77, len(tools) - 1)]
    first, second = (request.body for request in played.provider.requests)
    array = json.dumps(json.loads(first)["tools"])
    assert json.dumps(json.loads(second)["tools"]) == array
