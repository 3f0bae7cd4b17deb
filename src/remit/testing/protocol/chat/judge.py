"""The judge of Chat Completions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from remit.testing.protocol.base import Judge
from remit.testing.protocol.chat.servers import SERVERS, Server
from remit.testing.protocol.chat.wordings import WORDINGS
from remit.testing.protocol.reading import (
    Body,
    body_of,
    kind_of,
    mapping,
    mappings,
    names,
    same,
    text,
    walk,
)
from remit.testing.protocol.schemas import openai_strict

__all__ = ["ChatJudge"]


_FIELDS = names(
    "model messages tools tool_choice parallel_tool_calls functions function_call max_tokens max_completion_tokens"
    " stream stream_options temperature top_p n stop presence_penalty frequency_penalty logit_bias logprobs"
    " top_logprobs user seed response_format reasoning_effort verbosity metadata modalities moderation audio"
    " prediction prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier service_tier store"
    " web_search_options"
)
_MESSAGE_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset(
        # `annotations` stands in replies, and is taken back
        {
            "role",
            "content",
            "name",
            "tool_calls",
            "refusal",
            "audio",
            "function_call",
            "annotations",
        }
    ),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "function": frozenset({"role", "content", "name"}),
}
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_REASONS = re.compile(r"(?:^|/)(?:o\d|gpt-(?:[5-9]|\d\d))")


class ChatJudge(Judge):
    """Refuses what Chat Completions refuses, at OpenAI or at the server that is named."""

    wire = "openai-chat"
    wordings = WORDINGS

    def __init__(self, *, dialect: str = "openai") -> None:
        self._server = SERVERS.get(dialect, Server())
        self._dialect = dialect
        self._reasoning: dict[str, str] = {}
        """Id of a call to the `reasoning_content` that it was issued with."""
        self._signatures: set[str] = set()

    # What was issued

    def _issue(self, reply: Body, request: Body) -> None:  # noqa: ARG002 - nothing here is tied to its request
        for choice in mappings(reply.get("choices")):
            self._keep(mapping(choice.get("message")))

    def trust(self, body: Body) -> None:
        for message in mappings(body.get("messages")):
            self._keep(message)

    def _keep(self, message: Body) -> None:
        self._signatures.update(_signatures(message))
        reasoning = message.get("reasoning_content")
        if isinstance(reasoning, str):
            for call in mappings(message.get("tool_calls")):
                self._reasoning.setdefault(str(call.get("id")), reasoning)

    # What is asked

    def request(
        self,
        body: Body | str | bytes,
        *,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002 - none matters here
    ) -> None:
        body = body_of(body)
        self._fields(body)
        messages = mappings(body["messages"])
        for at, message in enumerate(messages):
            self._message(body, at, message)
        self._tools(body)
        self._settings(body)
        self._pairs(messages)
        self._order(messages)
        self._issued(messages)

    def _fields(self, body: Body) -> None:
        for name in ("model", "messages"):
            if name not in body:
                self.refuse("missing_field", param=name, where=name)
        if not isinstance(body["messages"], list | tuple):
            given = kind_of(body["messages"])
            self.refuse(
                "type",
                param="messages",
                where="messages",
                wanted="an array of objects",
                given=given,
            )
        if not body["messages"]:
            self.refuse("no_messages", param="messages")
        if self._server.strict:
            for name in body:
                if name not in _FIELDS:
                    self.refuse("unknown_field", name=name)

    def _message(self, body: Body, at: int, message: Body) -> None:
        role, place = text(message.get("role")), f"messages[{at}]"
        if role not in _MESSAGE_FIELDS:
            self.refuse("role", position=at, param=f"{place}.role", role=role)
        if self._server.strict:
            for name in message:
                if name not in _MESSAGE_FIELDS[role]:
                    where = f"{place}.{name}"
                    self.refuse("unknown_part", position=at, param=where, where=where)
        content = message.get("content")
        if content is None and not (role == "assistant" and _says_otherwise(message)):
            self.refuse("blank", position=at, param=f"messages.[{at}].content")
        if isinstance(content, Mapping | int | float):
            where, given = f"{place}.content", kind_of(content)  # pyright: ignore[reportUnknownArgumentType] - JSON
            wanted = "one of a string or array of objects"
            self.refuse("type", position=at, param=where, where=where, wanted=wanted, given=given)
        self._parts(body, at, role, mappings(content))
        if role == "assistant" and "tool_calls" in message:
            self._calls(at, message)
        if role == "tool" and not self._server.refuses_ids and "tool_call_id" not in message:
            where = f"{place}.tool_call_id"
            self.refuse("missing_field", position=at, param=where, where=where)

    def _parts(self, body: Body, at: int, role: str, parts: Sequence[Body]) -> None:
        hears = "audio" in str(body["model"])
        for part in parts:
            kind = text(part.get("type"))
            if kind == "image_url" and role != "user":
                self.refuse("tool_image", position=at, param=f"messages[{at}]", at=at, role=role)
            read = {"text", "refusal"} if role == "assistant" else {"text", "image_url", "file"}
            if hears:
                read.add("input_audio")
            if kind not in read and self._server.strict:
                self.refuse("part", position=at, param=f"messages[{at}]", at=at)

    def _calls(self, at: int, message: Body) -> None:
        calls = message["tool_calls"]
        place = f"messages[{at}].tool_calls"
        if calls is None and not self._server.strict:
            return
        if not isinstance(calls, list | tuple):
            words = {"where": place, "wanted": "an array of objects", "given": kind_of(calls)}
            self.refuse("type", position=at, param=place, **words)
        if not calls and not self._server.nine:  # that server takes it for none
            self.refuse("empty_calls", position=at, param=place, where=place)
        for n, call in enumerate(mappings(calls)):  # pyright: ignore[reportUnknownArgumentType] - JSON
            self._call(at, f"{place}[{n}]", call)

    def _call(self, at: int, place: str, call: Body) -> None:
        if call.get("type", "function") == "custom":
            return
        function = mapping(call.get("function"))
        for inside, name in ((call, "function"), (function, "name"), (function, "arguments")):
            if name not in inside:
                where = f"{place}.{name}" if inside is call else f"{place}.function.{name}"
                self.refuse("missing_field", position=at, param=where, where=where)
        if self._server.strict:
            for name in call:
                if name not in {"id", "type", "function"}:
                    where = f"{place}.{name}"
                    self.refuse("unknown_part", position=at, param=where, where=where)
            if "type" not in call:
                where = f"{place}.type"
                self.refuse("missing_field", position=at, param=where, where=where)
        where = f"{place}.function.arguments"
        objects = self._server.nine  # that server takes them as objects too
        if not isinstance(function["arguments"], str) and not (
            objects and isinstance(function["arguments"], dict)
        ):
            words = {"where": where, "wanted": "a string", "given": kind_of(function["arguments"])}
            self.refuse("type", position=at, param=where, **words)
        where = f"{place}.function.name"
        if not _NAME.fullmatch(str(function["name"])):
            self.refuse("call_name", position=at, param=where, where=where)
        self._id(at, place, call)

    def _id(self, at: int, place: str, call: Body) -> None:
        name, where, server = call.get("id"), f"{place}.id", self._server
        if server.refuses_ids:
            if name is not None:
                self.refuse("refuses_ids", position=at, key="id", at=at)
            return
        if not isinstance(name, str):
            self.refuse("missing_field", position=at, param=where, where=where)
        if server.nine and not _NINE.fullmatch(name):
            self.refuse("nine", position=at, id=name)
        if server.longest_id is not None and len(name) > server.longest_id:
            words = {"where": where, "most": server.longest_id, "length": len(name)}
            self.refuse("id", position=at, param=where, **words)

    # Tools and settings

    def _tools(self, body: Body) -> None:
        known: set[str] = set()
        for at, tool in enumerate(mappings(body.get("tools"))):
            function = mapping(tool.get("function"))
            if tool.get("type", "function") == "function":
                self._tool(f"tools[{at}]", function, known)
        choice = body.get("tool_choice")
        named = mapping(mapping(choice).get("function")).get("name")
        if choice is not None and not body.get("tools"):
            self.refuse("tool_choice_alone", param="tool_choice")
        if named is not None and text(named) not in known:
            self.refuse("tool_choice", param="tool_choice", name=named)
        if body.get("parallel_tool_calls") is not None and not body.get("tools"):
            self.refuse("parallel_alone", param="parallel_tool_calls")

    def _tool(self, where: str, function: Body, known: set[str]) -> None:
        name, param = function.get("name"), f"{where}.function.name"
        if not isinstance(name, str):
            self.refuse("missing_field", param=param, where=param)
        if not _NAME.fullmatch(name):
            self.refuse("tool_name", param=param, where=param)
        if len(name) > 64:
            self.refuse("tool_name_long", param=param, where=param, most=64, length=len(name))
        if name in known:
            self.refuse("tool_twice", param="tools", name=name)
        known.add(name)
        schema, param = mapping(function.get("parameters")), f"{where}.function.parameters"
        if schema.get("type") != "object" and function.get("parameters") is not None:
            given = same(schema["type"]) if "type" in schema else '"None"'
            self.refuse("tool_schema", param=param, name=name, given=given)
        held = function.get("strict") and self._server.strict  # others do not look at it
        why = openai_strict(schema) if held else None
        if why is not None:
            self.refuse("tool_strict", param=param, name=name, why=why)

    def _settings(self, body: Body) -> None:
        if not self._server.strict:
            return
        if "max_tokens" in body and "max_completion_tokens" in body:
            self.refuse("max_tokens_twice")
        if "max_tokens" in body and _REASONS.search(str(body["model"])):
            self.refuse("max_tokens", param="max_tokens")
        form = mapping(body.get("response_format"))
        schema = mapping(form.get("json_schema"))
        if form.get("type") == "json_schema" and schema.get("strict"):
            why = openai_strict(mapping(schema.get("schema")))
            if why is not None:
                self.refuse(
                    "output_strict", param="response_format", name=schema.get("name"), why=why
                )

    # Pairs

    def _pairs(self, messages: Sequence[Body]) -> None:
        if self._server.refuses_ids:
            self._counts(messages)
            return
        owed: dict[str, int] = {}
        given: dict[str, int] = {}
        """Of the newest message with calls: those that are open, and those that were answered, by id."""
        for at, message in enumerate(messages):
            if message["role"] == "tool":
                self._result(at, str(message["tool_call_id"]), owed, given)
                continue
            self._closed(owed, at)
            given.clear()
            for call in mappings(message.get("tool_calls")):
                name = str(call.get("id"))
                if name in owed:
                    self.refuse(
                        "id_twice", position=at, param=f"messages.[{at}].tool_calls", id=name, at=at
                    )
                owed[name] = at
        self._closed(owed, len(messages))

    def _result(self, at: int, name: str, owed: dict[str, int], given: dict[str, int]) -> None:
        param = f"messages.[{at}].tool_call_id"
        if name in given:
            words = {"id": name, "before": given[name], "at": at}
            self.refuse("answered_twice", position=at, param=param, **words)
        if not owed and not given:
            self.refuse("orphan_result", position=at, param=f"messages.[{at}].role")
        if name not in owed:
            self.refuse("other_result", position=at, param=param, id=name)
        given[name] = at
        del owed[name]

    def _closed(self, owed: dict[str, int], at: int) -> None:
        if owed:
            first = next(iter(owed.values()))
            if self._server.nine:
                self.refuse("count", position=first)
            self.refuse(
                "unanswered", position=first, param=f"messages.[{at}].role", ids=", ".join(owed)
            )

    def _counts(self, messages: Sequence[Body]) -> None:
        """Without ids, the results of a message are those that follow it, in order."""
        open_calls, since = 0, 0
        for at, message in enumerate([*messages, {"role": "end"}]):
            if message["role"] == "tool":
                if not open_calls:
                    self.refuse("orphan_result", position=at, param=f"messages.[{at}].role")
                open_calls -= 1
                continue
            if open_calls:
                self.refuse("count", position=since)
            open_calls, since = len(mappings(message.get("tool_calls"))), at

    def _order(self, messages: Sequence[Body]) -> None:
        if not self._server.role_before_user:
            return
        for at, message in enumerate(messages):
            before = messages[at - 1]["role"] if at else None
            if message["role"] == "user" and before == "tool":
                self.refuse("role_behind", position=at, role="user", before="tool")
        last = messages[-1]
        if last["role"] == "assistant" and not last.get("prefix"):
            self.refuse("role_order", position=len(messages) - 1, role="assistant")

    # What was issued must come back as it was

    def _issued(self, messages: Sequence[Body]) -> None:
        users = [at for at, message in enumerate(messages) if message["role"] == "user"]
        for at, message in enumerate(messages):
            if not _signatures(message) <= self._signatures:
                self.refuse("signature", position=at)
            calls = [str(call.get("id")) for call in mappings(message.get("tool_calls"))]
            issued = next(
                (self._reasoning[call] for call in calls if call in self._reasoning), None
            )
            if not self._server.reasoning_back or issued is None or (users and at < users[-1]):
                continue
            if "reasoning_content" not in message:
                self.refuse("reasoning_missing", position=at, at=at)
            if message["reasoning_content"] != issued:
                self.refuse("reasoning_modified", position=at, at=at)

    def _error(self, rule: str, said: str, param: str | None) -> tuple[int, Body]:
        if self._server.nine:
            kind, code = {
                "nine": ("invalid_function_call", "3280"),
                "role_behind": ("invalid_request_message_order", "3230"),
                "role_order": ("invalid_request_message_order", "3230"),
                "count": ("invalid_request_message_order", "3230"),
            }.get(rule, ("invalid_request_error", None))
            return 400, {
                "object": "error",
                "message": said,
                "type": kind,
                "param": None,
                "code": code,
            }
        codes = {
            "missing_field": "missing_required_parameter",
            "unknown_part": "unknown_parameter",
            "type": "invalid_type",
            "role": "invalid_value",
            "part": "invalid_value",
            "tool_image": "invalid_value",
            "call_name": "invalid_value",
            "tool_name": "invalid_value",
            "empty_calls": "empty_array",
            "no_messages": "empty_array",
            "id": "string_above_max_length",
            "tool_name_long": "string_above_max_length",
            "tool_schema": "invalid_function_parameters",
            "tool_strict": "invalid_function_parameters",
            "max_tokens": "unsupported_parameter",
        }
        error = {
            "message": said,
            "type": "invalid_request_error",
            "param": param,
            "code": codes.get(rule),
        }
        return 400, {"error": error}


def _says_otherwise(message: Body) -> bool:
    """Whether an assistant message without content holds something else."""
    return any(
        message.get(key) is not None for key in ("tool_calls", "refusal", "audio", "function_call")
    )


def _signatures(message: Body) -> set[str]:
    """Signatures of thoughts, which some compatible servers put beside calls and messages."""
    return {
        str(inner["thought_signature"])
        for inner in walk({key: value for key, value in message.items() if key != "content"})
        if inner.get("thought_signature")
    }
