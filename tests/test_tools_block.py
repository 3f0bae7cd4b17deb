"""The bytes in which tools go out are the same in every version of Python, from the signature to the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal

import msgspec
import pytest
from pydantic import Field

from remit import Message, ModelRequest, Settings, Text, Tool, Transcript, tool
from remit.models.wires import codec


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Line:
    """One line of an order."""

    sku: str
    count: int = 1
    size: Size | None = None


@tool(effect="read")
def find(
    query: str,
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
    sort: Literal["new", "old"] = "new",
) -> list[str]:
    """Find orders.

    Args:
        query: What to look for.
        limit: How many at most.
    """
    return [query, str(limit), sort]


@tool(effect="confirm", name="orders.change/lines")
def change(
    lines: list[Line],
    labels: dict[str, str] | None,
    amount: Decimal,
    größe: float,  # noqa: PLC2401 - a name that no wire takes as it is
) -> str:
    """Change an order: größe is in metres."""
    return str((lines, labels, amount, größe))


TOOLS: tuple[Tool[..., object], ...] = (find, change)  # pyright: ignore[reportAssignmentType] - of any result
WIRES = {
    "anthropic": "a7c4c02b39a2ff80840cd4b1b569a4fa1da6a6fd7a6ac7edbeb1f09085371619",
    "openai": "9c8e928eb4d2445e7af8e42121f01d4de7191ae799608a72b7653f9225dba27c",
    "openai-chat": "d51a08a91644f2954ddad016e370c6cdbdff0e49f8631791c4ed37d8e6b6a11b",
}
"""SHA-256 of the block of each wire. Whoever changes what goes out changes these, and every cached prefix with them."""


def block(wire: str, tools: Sequence[Tool[..., object]] = TOOLS) -> bytes:
    """The tools as they stand in a body, byte for byte."""
    said = Transcript([Message("user", (Text("hi"),))])
    specs = tuple(each.spec for each in tools)
    request = ModelRequest("", said, specs, Settings(), 100, 0.0)
    body = codec(wire).encoder("m").encode(request, stream=False).body
    return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["tools"])


@pytest.mark.parametrize("wire", WIRES)
def test_the_bytes_of_tools_are_the_same_in_every_version_of_python(wire: str) -> None:
    """X1, case 53: from signatures by way of pydantic to the wire; this runs on each version that is promised."""
    assert hashlib.sha256(block(wire)).hexdigest() == WIRES[wire]


@pytest.mark.parametrize("wire", WIRES)
def test_the_bytes_of_tools_are_those_that_another_run_sends(wire: str) -> None:
    """X1, case 53: a fresh encoder, as after a replay, writes what the first one wrote."""
    assert block(wire) == block(wire)
    assert block(wire, TOOLS[:1]) != block(wire)
