"""Recorded exchanges: where they are, and what a plain reading of them says. No codec is asked here.

A folder of recordings holds a folder for each kind of wire, with one JSON file for each conversation:
`exchanges[].request.{method,host,path,body}` and `exchanges[].response.{status,headers,body | sse}`. What a file
is about is told by what stands in it, never by its name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.testing.protocol import Judge, dialect_of, judge
from remit.testing.protocol.reading import assembled, events_of

FOLDER = Path(os.environ.get("REMIT_WIRE_DIR") or Path(__file__).parents[2] / "shared" / "wire")

NOT_BUILT = frozenset({"gemini", "bedrock-converse"})
"""Wires that have no codec yet: they are skipped by these names."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response."""

    file: str
    index: int
    request: Mapping[str, Any]
    response: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.file}#{self.index}"

    @property
    def wire(self) -> str:
        return wire_of(self.request["path"])

    @property
    def dialect(self) -> str:
        return dialect_of(self.request["host"])

    @property
    def asks(self) -> bool:
        """It asks for a reply; others look at what is being done in the background, or count."""
        path = self.request["path"].partition("?")[0]
        ends = [match.end() for match in _ENDPOINTS[self.wire].finditer(path)]
        return isinstance(self.request.get("body"), dict) and ends[-1] == len(path)

    @property
    def looks(self) -> bool:
        """It looks at a reply that is made in the background."""
        return self.wire == "openai" and self.request["method"] == "GET"

    @property
    def body(self) -> dict[str, Any]:
        return self.request["body"]

    @property
    def accepted(self) -> bool:
        return self.response["status"] == 200

    @property
    def raw(self) -> bytes:
        """The response as it came over the socket, as far as it was kept."""
        for key in ("sse", "text"):
            if isinstance(self.response.get(key), str):
                return self.response[key].encode()
        return json.dumps(self.response.get("body"), ensure_ascii=False).encode()

    @property
    def streamed(self) -> bool:
        return "sse" in self.response

    @property
    def reply(self) -> dict[str, Any]:
        """The response in one piece."""
        if self.streamed:
            return assembled(events_of(self.response["sse"]))
        body = self.response.get("body")
        return body if isinstance(body, dict) else {}


_ENDPOINTS = {
    "anthropic": re.compile(r"/v1/messages"),
    "openai-chat": re.compile(r"/chat/completions"),
    "openai": re.compile(r"/responses"),
    "gemini": re.compile(r":(stream)?[gG]enerateContent"),
    "bedrock-converse": re.compile(r"/converse(-stream)?"),
}
"""How the path of a request for a reply ends; of what is asked beside replies, it is a part."""


def wire_of(path: str) -> str:
    """The wire that a path belongs to. Errors: `ValueError` for a path of none."""
    for wire, endpoint in _ENDPOINTS.items():
        if endpoint.search(path.partition("?")[0]):
            return wire
    raise ValueError(f"{path!r} is the path of no known wire")


def read(path: Path) -> list[Exchange]:
    """The exchanges of a file, in order."""
    held = json.loads(path.read_text())
    return [
        Exchange(f"{path.parent.name}/{path.name}", index, each["request"], each["response"])
        for index, each in enumerate(held["exchanges"])
    ]


def files(folder: Path = FOLDER) -> list[Path]:
    return sorted(folder.glob("*/*.json"))


def faults_of(folder: Path) -> list[str]:
    """What is wrong with a folder of recordings: nothing in it may be passed over in silence."""
    if not folder.is_dir():
        return [f"{folder} is no folder"]
    folders = sorted(each for each in folder.iterdir() if each.is_dir())
    faults = [] if folders else [f"{folder} holds no folder of recordings"]
    for each in folders:
        held = sorted(each.glob("*.json"))
        faults += [] if held else [f"{each.name} holds no recordings"]
        for path in held:
            try:
                kept = read(path)
                faults += [] if kept else [f"{each.name}/{path.name} holds no exchanges"]
                _ = [exchange.wire for exchange in kept]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                faults.append(f"{each.name}/{path.name} cannot be read: {error!r}")
    return faults


def judged(exchanges: list[Exchange]) -> Iterator[tuple[Exchange, Judge]]:
    """Each exchange with the judge that stands for its server, who has seen those before it.

    What an accepted request holds that no exchange of the file has issued was issued before: it is trusted.
    """
    judges: dict[tuple[str, str], Judge] = {}
    for exchange in exchanges:
        key = exchange.wire, exchange.request["host"]
        if exchange.wire in NOT_BUILT:
            continue
        if key not in judges:
            judges[key] = judge(exchange.wire, dialect=exchange.dialect)
        if exchange.asks and exchange.accepted:
            judges[key].trust(exchange.body)
        yield exchange, judges[key]
        if exchange.accepted and (exchange.asks or exchange.looks):
            judges[key].response(exchange.reply, exchange.body if exchange.asks else None)
