"""Fields, roles, and blocks in their places: what the API reads before it reads what is said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from remit.testing.protocol.anthropic.turns import THINKING
from remit.testing.protocol.base import Refuse
from remit.testing.protocol.reading import Body, mapping, mappings, names, text

__all__ = ["Form"]

_FIELDS = names(
    "model messages max_tokens system tools tool_choice stream stop_sequences temperature top_p top_k metadata"
    " thinking service_tier container mcp_servers context_management output_config output_format cache_control"
    " diagnostics inference_geo billing_policy compaction fallback_credit_token fallbacks speed thread"
    " user_profile_id workspace_id"
)
_MESSAGE_FIELDS = frozenset({"role", "content"})
_SYSTEM_FIELDS = _MESSAGE_FIELDS | {"clear_at", "output_config"}
_BLOCK_FIELDS: Final[Mapping[str, tuple[str, frozenset[str], frozenset[str]]]] = {
    # type: the side that may hold it ("" for either), the fields it needs, those it may have besides
    "text": ("", frozenset({"text"}), frozenset({"citations", "cache_control"})),
    "image": ("user", frozenset({"source"}), frozenset({"cache_control", "transformations"})),
    "tool_use": (
        "assistant",
        frozenset({"id", "name", "input"}),
        frozenset({"cache_control", "caller", "toolset_name"}),
    ),
    "tool_result": (
        "user",
        frozenset({"tool_use_id"}),
        frozenset({"content", "is_error", "cache_control", "toolset_name"}),
    ),
    "thinking": ("assistant", frozenset({"thinking", "signature"}), frozenset()),
    "redacted_thinking": ("assistant", frozenset({"data"}), frozenset()),
    "server_tool_use": (
        "assistant",
        frozenset({"id", "name", "input"}),
        frozenset({"cache_control", "caller"}),
    ),
    "mcp_tool_use": (
        "assistant",
        frozenset({"id", "name", "input", "server_name"}),
        frozenset({"cache_control"}),
    ),
}
_OTHER_BLOCKS: Final[Mapping[str, str]] = {
    "document": "user",
    "search_result": "user",
    "container_upload": "user",
    "browser_state": "user",
    "tool_addition": "system",
    "tool_removal": "system",
    "compaction": "",
    "fallback": "assistant",
    "mcp_tool_listing": "assistant",
}
"""Blocks whose fields are not looked at: type to the side that may hold it."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
MORE = "Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"


class Form:
    """The form of a body."""

    def __init__(self, refuse: Refuse) -> None:
        self.refuse = refuse

    def check(self, body: Body, headers: Mapping[str, str] | None) -> None:
        """Errors: `Refused`."""
        if headers is not None:
            self._headers(body, headers)
        self._fields(body)
        messages = mappings(body["messages"])
        self._roles(messages)
        for at, message in enumerate(messages):
            self._message(at, message)

    def _headers(self, body: Body, headers: Mapping[str, str]) -> None:
        version = headers.get("anthropic-version")
        if version is None:
            self.refuse("version")
        if version >= "2026-10-21":
            for name in ("temperature", "top_p", "top_k"):
                if name in body:
                    self.refuse("sampling", name=name)

    def _fields(self, body: Body) -> None:
        for name in ("model", "messages", "max_tokens"):
            if name not in body:
                self.refuse("missing_field", where=name)
        for name in body:
            if name not in _FIELDS:
                self.refuse("unknown_field", where=name)
        if not isinstance(body["messages"], list | tuple):
            self.refuse("type", where="messages", wanted="a valid list")
        if not body["messages"]:
            self.refuse("no_messages")
        most = body["max_tokens"]
        if type(most) is not int:
            self.refuse("type", where="max_tokens", wanted="a valid integer")
        if most < 0:  # 0 warms the cache
            self.refuse("max_tokens", least=1)

    def _roles(self, messages: Sequence[Body]) -> None:
        for at, message in enumerate(messages):
            role = text(message.get("role"))
            if role not in {"user", "assistant", "system"}:
                self.refuse("role", position=at, role=role)
            allowed = _SYSTEM_FIELDS if role == "system" else _MESSAGE_FIELDS
            for name in message:
                if name not in allowed:
                    self.refuse("unknown_field", position=at, where=f"messages.{at}.{name}")

    def _message(self, at: int, message: Body) -> None:
        content = message.get("content")
        if isinstance(content, str):
            if not content:
                self.refuse("empty_message", position=at, at=at)
            self._text(at, content)
            return
        if not isinstance(content, list | tuple):
            self.refuse("type", position=at, where=f"messages.{at}.content", wanted="a valid list")
        blocks = mappings(cast("object", content))
        if not blocks:
            self.refuse("empty_message", position=at, at=at)
        calls = any(block.get("type") == "tool_use" for block in blocks)
        for n, block in enumerate(blocks):
            self._block(at, n, str(message["role"]), block, calls=calls)

    def _block(self, at: int, n: int, role: str, block: Body, *, calls: bool) -> None:
        """`calls`: the message calls tools."""
        kind = str(block.get("type"))
        if kind in _BLOCK_FIELDS:
            side = _BLOCK_FIELDS[kind][0]
        elif kind in _OTHER_BLOCKS or kind.endswith("_tool_result"):
            side = _OTHER_BLOCKS.get(kind, "assistant")
        else:
            self.refuse("block_type", position=at, at=at, n=n, kind=kind)
        if side and side != role:
            self.refuse("wrong_place", position=at, at=at, kind=kind, role=side)
        if kind in _BLOCK_FIELDS:
            self._block_fields(at, f"messages.{at}.content.{n}.{kind}", block)
        match kind:
            case "text":
                self._text(at, block["text"], calls=calls)
            case "image":
                self._image(at, n, block)
            case "tool_use":
                self._call(at, n, block)
            case "tool_result":
                self._id(at, n, kind, "tool_use_id", block["tool_use_id"])
                self._result(at, n, block)
            case _:
                pass

    def _block_fields(self, at: int, where: str, block: Body) -> None:
        _, needed, besides = _BLOCK_FIELDS[block["type"]]
        if block["type"] in THINKING and "cache_control" in block:
            self.refuse("cache_place", position=at, where=where)
        for name in sorted(needed):
            if name not in block:
                self.refuse("missing_field", position=at, where=f"{where}.{name}")
        for name in block:
            if name != "type" and name not in needed and name not in besides:
                self.refuse("unknown_field", position=at, where=f"{where}.{name}")

    def _text(self, at: int, said: object, *, calls: bool = False) -> None:
        """Blanks alone are refused, except beside calls (recorded)."""
        if not isinstance(said, str):
            self.refuse(
                "type", position=at, where=f"messages.{at}.content", wanted="a valid string"
            )
        if not said:
            self.refuse("blank", position=at)
        if said.isspace() and not calls:
            self.refuse("whitespace", position=at)

    def _image(self, at: int, n: int, block: Body) -> None:
        source = mapping(block.get("source"))
        if source.get("type") == "base64" and text(source.get("media_type")) not in _IMAGES:
            self.refuse("media_type", position=at, at=at, n=n)

    def _id(self, at: int, n: int, kind: str, key: str, value: object) -> None:
        if not isinstance(value, str) or not _ID.fullmatch(value):
            pattern = "^[a-zA-Z0-9_-]+$"
            self.refuse("id", position=at, at=at, n=n, kind=kind, key=key, pattern=pattern)

    def _call(self, at: int, n: int, block: Body) -> None:
        self._id(at, n, "tool_use", "id", block["id"])
        name = block["name"]
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            pattern = "^[a-zA-Z0-9_-]{1,128}$"
            self.refuse("call_name", position=at, at=at, n=n, pattern=pattern)
        if not isinstance(block["input"], dict):
            self.refuse("call_input", position=at, at=at, n=n)

    def _result(self, at: int, n: int, block: Body) -> None:
        content = block.get("content")
        if content is None or isinstance(content, str):
            return
        for part in mappings(content):
            match part.get("type"):
                case "text":
                    self._text(at, part.get("text"))
                case "image":
                    self._image(at, n, part)
                case "document" | "search_result" | "tool_reference" | "browser_state":
                    pass
                case kind:
                    self.refuse("block_type", position=at, at=at, n=n, kind=kind)
