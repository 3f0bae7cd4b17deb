"""Anthropic Messages, as a judge of requests.

Pairing is judged after consecutive messages of one side were merged, as the provider does; messages of role
`system` inside the conversation are transparent to it. An id is unique in its turn; recordings show conversations
that the assistant begins, and ids used again in a later turn, accepted. Blocks that carry a signature or encrypted content are
compared with what was issued: byte for byte, once, in their order, and on newer models behind the same
conversation.

Source: `protocol-facts` 1.1-1.10; wordings as the API gave them in public reports. Where the facts name a rule
without its words, the nearest wording of the API stands here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, cast

from remit.testing.protocol.base import Judge
from remit.testing.protocol.reading import Body, mapping, mappings, names, same, text, walk
from remit.testing.protocol.refused import Wordings
from remit.testing.protocol.schemas import strict_faults_of_anthropic

__all__ = ["AnthropicJudge"]

_UNANSWERED = (
    "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
_UNCHANGED = (
    "messages.{at}.content.{n}: `thinking` or `redacted_thinking` blocks in the latest assistant message"
    " cannot be modified. These blocks must remain as they were in the original response."
)

WORDINGS: Final = Wordings(
    {
        # the request
        "version": "anthropic-version: header is required",
        "missing_field": "{where}: Field required",
        "unknown_field": "{where}: Extra inputs are not permitted",
        "type": "{where}: Input should be {wanted}",
        "sampling": "`{name}` is not supported with this API version.",
        "no_messages": "messages: at least one message is required",
        "max_tokens": "max_tokens: Input should be greater than or equal to {least}",
        "thinking_budget": "`max_tokens` must be greater than `thinking.budget_tokens`. {more}",
        "thinking_temperature": "`temperature` may only be set to 1 when thinking is enabled. {more}",
        "thinking_forced": "Thinking may not be enabled when tool_choice forces tool use.",
        # roles and places
        "role": 'messages: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter,'
        ' not "{role}" as an input message role.',
        "wrong_place": "messages.{at}: `{kind}` blocks can only be in `{role}` messages",
        "block_type": "messages.{at}.content.{n}: Input tag '{kind}' found using 'type' does not match any of"
        " the expected tags",
        "empty_message": "messages.{at}: all messages must have non-empty content except for the optional final"
        " assistant message",
        "blank": "messages: text content blocks must be non-empty",
        "whitespace": "messages: text content blocks must contain non-whitespace text",
        "trailing_space": "messages: final assistant content cannot end with trailing whitespace",
        "prefill": "This model does not support assistant message prefill. The conversation must end with a"
        " user message.",
        "media_type": "messages.{at}.content.{n}: Input should be 'image/jpeg', 'image/png', 'image/gif' or"
        " 'image/webp'",
        # calls and results
        "unanswered": _UNANSWERED,
        "result_place": _UNANSWERED,
        "orphan_result": "messages.{at}.content.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {id}."
        " Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
        "answered_twice": "messages.{at}.content.{n}: each tool_use must have a single result. Found multiple"
        " `tool_result` blocks with id: {id}",
        "id_twice": "messages.{at}.content.{n}: `tool_use` ids must be unique",
        "id": "messages.{at}.content.{n}.{kind}.{key}: String should match pattern '{pattern}'",
        "call_name": "messages.{at}.content.{n}.tool_use.name: String should match pattern '{pattern}'",
        "call_input": "messages.{at}.content.{n}.tool_use.input: Input should be a valid dictionary",
        "server_orphan": "messages.{at}.content.{n}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. Each"
        " `{kind}` block must have a corresponding `server_tool_use` block before it.",
        "server_unanswered": "messages.{at}: `{name}` tool use with id `{id}` was found without a corresponding"
        " `{kind}` block",
        # blocks that are the provider's
        "opaque_modified": _UNCHANGED,
        "opaque_moved": _UNCHANGED,
        "signature": "messages.{at}.content.{n}: Invalid `signature` in `thinking` block",
        "redacted": "messages.{at}.content.{n}: Invalid `data` in `redacted_thinking` block",
        "thinking_unbound": "messages.{at}.content.{n}: Invalid `signature` in `thinking` block: it does not"
        " follow the conversation that it was issued for",
        "thinking_missing": "messages.{at}.content.{n}.type: Expected `thinking` or `redacted_thinking`, but found"
        " `{kind}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block"
        " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). {more}",
        "encrypted": "messages.{at}.content.{n}: Invalid `encrypted_content` in `search_result` block",
        "compaction": "messages.{at}.content.{n}: Invalid `compaction` block: it cannot be modified",
        # tools
        "tool_name": "tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        "tool_twice": "tools: Tool names must be unique.",
        "tool_schema": "tools.{at}.custom.input_schema.type: Input should be 'object'",
        "tool_root": "tools.{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the"
        " top level",
        "tool_keys": "tools.{at}.custom.input_schema.properties: Property keys should match pattern"
        " '^[a-zA-Z0-9_.-]{{1,64}}$'",
        "tool_strict": "tools.{at}.custom: {why}",
        "tool_choice": "Tool '{name}' not found in provided tools",
        "tool_choice_alone": "tool_choice may only be specified while providing tools.",
        # cache
        "cache_count": "A maximum of 4 blocks with cache_control may be provided. Found {count}.",
        "cache_place": "{where}.cache_control: Extra inputs are not permitted",
        "cache_form": "{where}.cache_control.{part}: Input should be {wanted}",
        "cache_order": "{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'"
        " cache_control block. Note that blocks are processed in the following order: `tools`, `system`,"
        " `messages`.",
    },
    of_fields=names(
        "version missing_field unknown_field type sampling max_tokens block_type media_type id tool_strict"
    ),
)

_FIELDS = names(
    "model messages max_tokens system tools tool_choice stream stop_sequences temperature top_p top_k metadata"
    " thinking service_tier container mcp_servers context_management output_config output_format cache_control"
    " diagnostics inference_geo billing_policy compaction fallback_credit_token fallbacks speed thread"
    " user_profile_id workspace_id"
)
_MESSAGE_FIELDS = frozenset({"role", "content"})
_SYSTEM_FIELDS = _MESSAGE_FIELDS | {"clear_at", "output_config"}
_TOOL_FIELDS = names(
    "name description input_schema strict cache_control defer_loading allowed_callers input_examples"
    " eager_input_streaming type"
)
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
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_MORE = "Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
_THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class _Place:
    """A block of a request and where it stands."""

    at: int
    n: int
    block: Body

    @property
    def kind(self) -> str:
        return str(self.block.get("type"))


@dataclass(slots=True)
class _Turn:
    """Consecutive messages of one side."""

    role: str
    places: list[_Place] = field(default_factory=list[_Place])

    def of(self, *kinds: str) -> list[_Place]:
        return [place for place in self.places if place.kind in kinds]


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply as it was issued."""

    marks: tuple[str, ...]
    """What its blocks are known by, in order."""
    behind: str | None
    """Digest of the conversation it was given behind; None where that is not known."""


class AnthropicJudge(Judge):
    """Refuses what the Messages API refuses."""

    wire = "anthropic"
    wordings = WORDINGS

    def __init__(self) -> None:
        self._thinking: dict[str, tuple[str, _Reply | None]] = {}
        """Signature, or redacted data, to its text and the reply that held it."""
        self._thoughts: set[str] = set()
        self._encrypted: set[str] = set()
        self._compactions: dict[str, str] = {}
        """Signature or encrypted content to the whole block."""

    # What was issued

    def _issue(self, reply: Body, request: Body) -> None:
        content = mappings(reply.get("content"))
        behind = _digest(mappings(request.get("messages"))) if request else None
        made = _Reply(tuple([_mark(block) for block in content]), behind)
        for block in content:
            self._keep(block, made)

    def trust(self, body: Body) -> None:
        for message in mappings(body.get("messages")):
            for block in mappings(message.get("content")):
                self._keep(block, None)

    def _keep(self, block: Body, reply: _Reply | None) -> None:
        match block.get("type"):
            case "thinking":
                self._thinking.setdefault(
                    str(block.get("signature")), (str(block.get("thinking")), reply)
                )
                self._thoughts.add(str(block.get("thinking")))
            case "redacted_thinking":
                self._thinking.setdefault(str(block.get("data")), ("", reply))
            case "compaction":
                seal = _seal(block)
                if seal:
                    self._compactions.setdefault(seal, _plain(block))
            case _:
                self._encrypted.update(_encrypted(block))

    # What is asked

    def request(self, body: Body, *, headers: Mapping[str, str] | None = None) -> None:
        if headers is not None:
            self._headers(body, headers)
        self._fields(body)
        messages = mappings(body["messages"])
        self._roles(messages)
        for at, message in enumerate(messages):
            self._message(at, message)
        self._tools(body)
        self._settings(body)
        self._cache(body)
        turns = _turns(messages)
        self._pairs(turns)
        self._server_pairs(turns)
        self._opaque(body, turns)
        self._end(body, messages)

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
        if block["type"] in _THINKING and "cache_control" in block:
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

    # Tools and settings

    def _tools(self, body: Body) -> None:
        known: set[str] = set()
        for at, tool in enumerate(mappings(body.get("tools"))):
            name = text(tool.get("name"))
            if name:
                if name in known:
                    self.refuse("tool_twice")
                known.add(name)
            if tool.get("type", "custom") == "custom":
                self._tool(at, tool)
        choice = mapping(body.get("tool_choice"))
        if choice and not body.get("tools") and not body.get("mcp_servers"):
            self.refuse("tool_choice_alone")
        if choice.get("type") == "tool" and text(choice.get("name")) not in known:
            self.refuse("tool_choice", name=choice.get("name"))
        kinds = {"auto", "any", "tool", "none"}
        if "tool_choice" in body and text(choice.get("type")) not in kinds:
            self.refuse("type", where="tool_choice", wanted="'auto', 'any', 'tool' or 'none'")

    def _tool(self, at: int, tool: Body) -> None:
        for name in tool:
            if name not in _TOOL_FIELDS:
                self.refuse("unknown_field", where=f"tools.{at}.custom.{name}")
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.refuse("tool_name", at=at)
        if "input_schema" not in tool:
            self.refuse("missing_field", where=f"tools.{at}.custom.input_schema")
        schema = mapping(tool["input_schema"])
        if schema.get("type") != "object":
            self.refuse("tool_schema", at=at)
        if any(key in schema for key in ("oneOf", "anyOf", "allOf")):
            self.refuse("tool_root", at=at)
        if any(not _KEY.fullmatch(key) for key in mapping(schema.get("properties"))):
            self.refuse("tool_keys", at=at)
        why = strict_faults_of_anthropic(schema) if tool.get("strict") else None
        if why is not None:
            self.refuse("tool_strict", at=at, why=why)

    def _settings(self, body: Body) -> None:
        thinking = mapping(body.get("thinking"))
        if thinking.get("type") != "enabled":
            return
        budget = thinking.get("budget_tokens")
        if type(budget) is not int or budget < 1_024:
            where = "thinking.enabled.budget_tokens"
            self.refuse("type", where=where, wanted="greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            self.refuse("thinking_budget", more=_MORE)
        if body.get("temperature", 1) != 1:
            self.refuse("thinking_temperature", more=_MORE)
        if text(mapping(body.get("tool_choice")).get("type")) in {"any", "tool"}:
            self.refuse("thinking_forced")

    def _cache(self, body: Body) -> None:
        count, short = 0, False
        for where, block in _cacheable(body):
            control = block.get("cache_control")
            if control is None:
                continue
            count += 1
            control = mapping(control)
            if control.get("type") != "ephemeral":
                self.refuse("cache_form", where=where, part="type", wanted="'ephemeral'")
            life = text(control.get("ttl", "5m"))
            if life not in {"5m", "1h"}:
                self.refuse("cache_form", where=where, part="ttl", wanted="'5m' or '1h'")
            if life == "1h" and short:
                self.refuse("cache_order", where=where)
            short = short or life == "5m"
        if count > 4:
            self.refuse("cache_count", count=count)

    # Pairs

    def _pairs(self, turns: Sequence[_Turn]) -> None:
        for turn in turns:
            seen: set[str] = set()  # a later turn may use an id again: its results are its own
            for use in turn.of("tool_use"):
                if use.block["id"] in seen:
                    self.refuse("id_twice", position=use.at, at=use.at, n=use.n)
                seen.add(use.block["id"])
        for index, turn in enumerate(turns):
            owed = {use.block["id"]: use for use in turn.of("tool_use")}
            after = turns[index + 1] if index + 1 < len(turns) else None
            results = after.of("tool_result") if after is not None else []
            given = [result.block["tool_use_id"] for result in results]
            if turn.role == "user" and index == 0:
                self._orphans({}, turn.of("tool_result"))
            if turn.role != "assistant":
                continue
            open_ids = [use for use in owed if use not in given]
            if open_ids:
                at = owed[open_ids[0]].at
                self.refuse("unanswered", position=at, at=at, ids=", ".join(open_ids))
            self._orphans(owed, results)
            if after is not None and any(
                place.kind != "tool_result" for place in after.places[: len(results)]
            ):
                at = next(iter(owed.values())).at
                self.refuse("result_place", position=at, at=at, ids=", ".join(owed))

    def _orphans(self, owed: Mapping[str, _Place], results: Sequence[_Place]) -> None:
        answered: set[str] = set()
        for result in results:
            given = result.block["tool_use_id"]
            words: dict[str, Any] = {"at": result.at, "n": result.n, "id": given}
            if given not in owed:
                self.refuse("orphan_result", position=result.at, **words)
            if given in answered:
                self.refuse("answered_twice", position=result.at, **words)
            answered.add(given)

    def _server_pairs(self, turns: Sequence[_Turn]) -> None:
        """What the provider ran itself: each result stands behind its use.

        Only the newest turn, or one that calls the client's tools, may leave one open.
        """
        asked: dict[str, _Place] = {}
        for turn in turns:
            for place in turn.places:
                kind = place.kind
                if kind in {"server_tool_use", "mcp_tool_use"}:
                    asked[str(place.block["id"])] = place
                elif kind.endswith("_tool_result") and turn.role == "assistant":
                    found = asked.pop(str(place.block.get("tool_use_id")), None)
                    if found is None:
                        words = {"id": place.block.get("tool_use_id"), "kind": kind}
                        self.refuse(
                            "server_orphan", position=place.at, at=place.at, n=place.n, **words
                        )
            if asked and turn.role == "user" and not turn.of("tool_result"):
                use, place = next(iter(asked.items()))
                name = str(place.block["name"])
                kind = "mcp_tool_result" if place.kind == "mcp_tool_use" else f"{name}_tool_result"
                self.refuse(
                    "server_unanswered",
                    position=place.at,
                    at=place.at,
                    name=name,
                    id=use,
                    kind=kind,
                )

    # What was issued must come back as it was

    def _opaque(self, body: Body, turns: Sequence[_Turn]) -> None:
        messages = mappings(body["messages"])
        known: set[str] = set()
        for turn in turns:
            for place in turn.places:
                match place.kind:
                    case "thinking" | "redacted_thinking":
                        self._thought(body, messages, place, known)
                    case "compaction":
                        seal = _seal(place.block)
                        if seal and self._compactions.get(seal) != _plain(place.block):
                            self.refuse("compaction", position=place.at, at=place.at, n=place.n)
                    case _:
                        if not _encrypted(place.block) <= self._encrypted:
                            self.refuse("encrypted", position=place.at, at=place.at, n=place.n)
        self._begins_with_thinking(body, turns)

    def _thought(
        self, body: Body, messages: Sequence[Body], place: _Place, known: set[str]
    ) -> None:
        words: dict[str, Any] = {"position": place.at, "at": place.at, "n": place.n}
        redacted = place.kind == "redacted_thinking"
        seal = str(place.block["data" if redacted else "signature"])
        if seal not in self._thinking:
            self.refuse("redacted" if redacted else "signature", **words)
        thought, reply = self._thinking[seal]
        if not redacted and place.block["thinking"] != thought:
            self.refuse("opaque_modified", **words)
        if seal in known:
            self.refuse("opaque_moved", **words)
        known.add(seal)
        if reply is None:
            return
        if not _in_place(place, reply, messages):
            self.refuse("opaque_moved", **words)
        binds = _version(body) >= (
            5,
            0,
        )  # newer models bind a thought to the conversation before it
        if binds and reply.behind not in {None, _digest(messages[: place.at])}:
            self.refuse("thinking_unbound", **words)

    def _begins_with_thinking(self, body: Body, turns: Sequence[_Turn]) -> None:
        """Models before 4.5 with manual thinking: the turn that calls tools now begins with thinking."""
        if mapping(body.get("thinking")).get("type") != "enabled" or _version(body) >= (4, 5):
            return
        first: _Turn | None = None
        for turn in reversed(turns):
            if turn.role == "assistant":
                first = turn
            elif not turn.of("tool_result"):
                break
        if first is None or not first.of("tool_use") or turns[-1].role == "assistant":
            return
        place = first.places[0]
        if place.kind not in _THINKING:
            words = {"kind": place.kind, "more": _MORE}
            self.refuse("thinking_missing", position=place.at, at=place.at, n=place.n, **words)

    def _end(self, body: Body, messages: Sequence[Body]) -> None:
        last = messages[-1]
        if last.get("role") != "assistant":
            return
        content = last.get("content")
        blocks = mappings(content)
        said = text(content) or (text(blocks[-1].get("text")) if blocks else "")
        if not said:
            return
        if said != said.rstrip():
            self.refuse("trailing_space", position=len(messages) - 1)
        served = any(str(block.get("type")).endswith("_tool_use") for block in blocks)
        if not served and _version(body) >= (4, 6):
            self.refuse("prefill", position=len(messages) - 1)

    def _error(self, rule: str, said: str, param: str | None) -> tuple[int, Body]:  # noqa: ARG002 - this provider names the place in the text
        return 400, {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": said},
            "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
        }


# Reading


def _turns(messages: Sequence[Body]) -> list[_Turn]:
    turns: list[_Turn] = []
    for at, message in enumerate(messages):
        role = str(message["role"])
        if role == "system":
            continue
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role))
        turns[-1].places += [_Place(at, n, block) for n, block in enumerate(_blocks(message))]
    return turns


def _blocks(message: Body) -> list[Body]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else mappings(content)


def _in_place(place: _Place, reply: _Reply, messages: Sequence[Body]) -> bool:
    """Whether a thought stands among the blocks that it was issued with, in their order.

    Blocks of the reply may have been left out. Those that it holds twice tell nothing.
    """
    own = reply.marks.index(_mark(place.block))
    told = {mark for mark in reply.marks if reply.marks.count(mark) == 1} - {reply.marks[own]}
    here = [_mark(block) for block in _blocks(messages[place.at])]
    before, after = told & set(here[: place.n]), told & set(here[place.n + 1 :])
    if before & set(reply.marks[own + 1 :]) or after & set(reply.marks[:own]):
        return False
    if before or after:
        return True
    return not any(
        _mark(block) in told
        for message in messages
        if message.get("role") == "assistant"
        for block in _blocks(message)
    )


def _mark(block: Body) -> str:
    """What a block is known by, whatever a client may leave out of it or add."""
    match block.get("type"):
        case "thinking":
            return f"thinking {block.get('signature')}"
        case "redacted_thinking":
            return f"redacted {block.get('data')}"
        case "text":
            return f"text {block.get('text')}"
        case kind:
            name = block.get("id") or block.get("tool_use_id")
            return f"{kind} {name or _plain(block)}"


def _plain(block: Body) -> str:
    return same({key: value for key, value in block.items() if key != "cache_control"})


def _seal(block: Body) -> str | None:
    found = block.get("signature") or block.get("encrypted_content")
    return str(found) if found else None


def _encrypted(block: Body) -> set[str]:
    """Encrypted parts of one of the provider's own blocks, however deep."""
    if block.get("type") in {"tool_use", "tool_result"}:
        return set()  # what a client's tool is given, or gives, is no business of the provider
    return {
        str(value)
        for inner in walk(block)
        for key, value in inner.items()
        if key in {"encrypted_content", "encrypted_stdout", "encrypted_index"} and value
    }


def _digest(messages: Sequence[Body]) -> str:
    """What a conversation is bound by: everything but cache markers, whatever the form of a text."""
    total = blake2b(digest_size=16)
    for message in messages:
        bare = [message.get("role"), [_bare(block) for block in _blocks(message)]]
        total.update(same(bare).encode())
    return total.hexdigest()


def _bare(value: object) -> object:
    """Without cache markers, empty fields and what a client may leave out of a call."""
    if isinstance(value, Mapping):
        given = cast("Body", value)
        return {
            key: _bare(each)
            for key, each in given.items()
            if key not in {"cache_control", "caller"} and each is not None
        }
    if isinstance(value, list | tuple):
        return [_bare(each) for each in cast("Sequence[object]", value)]
    return value


def _cacheable(body: Body) -> Iterator[tuple[str, Body]]:
    """Everything that may carry a cache marker, in the order of the prefix."""
    for at, tool in enumerate(mappings(body.get("tools"))):
        yield f"tools.{at}", tool
    for at, block in enumerate(mappings(body.get("system"))):
        yield f"system.{at}", block
    for at, message in enumerate(mappings(body.get("messages"))):
        for n, block in enumerate(mappings(message.get("content"))):
            for m, part in enumerate(mappings(block.get("content"))):
                yield f"messages.{at}.content.{n}.content.{m}", part
            yield f"messages.{at}.content.{n}", block
    yield "body", {"cache_control": body.get("cache_control")}


_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")


def _version(body: Body) -> tuple[int, int]:
    """Of the model; the newest for a name that says none."""
    found = _VERSION.search(str(body["model"]))
    return (int(found[1]), int(found[2] or 0)) if found else (99, 0)
