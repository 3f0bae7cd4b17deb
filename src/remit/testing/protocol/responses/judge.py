"""The judge of Responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from remit.testing.protocol.base import Judge
from remit.testing.protocol.reading import (
    Body,
    body_of,
    kind_of,
    mapping,
    mappings,
    names,
    same,
    text,
)
from remit.testing.protocol.responses.wordings import DEEPSEEK, WORDINGS
from remit.testing.protocol.schemas import openai_strict

__all__ = ["ResponsesJudge"]

_FIELDS = names(
    "model input instructions tools tool_choice parallel_tool_calls max_tool_calls max_output_tokens stream"
    " stream_options store include reasoning text temperature top_p top_logprobs truncation metadata user"
    " previous_response_id conversation background background_options context_management prompt prompt_cache_key"
    " prompt_cache_options prompt_cache_retention safety_identifier service_tier moderation access_programs image"
)
_ITEM_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "message": frozenset({"role", "content", "id", "status", "phase"}),
    "function_call": frozenset(
        {"call_id", "name", "arguments", "id", "status", "caller", "namespace", "async"}
    ),
    "function_call_output": frozenset(
        {"call_id", "output", "id", "status", "caller", "name", "namespace"}
    ),
    "custom_tool_call": frozenset(
        {"call_id", "name", "input", "id", "caller", "namespace", "status"}
    ),
    "custom_tool_call_output": frozenset({"call_id", "output", "id", "caller", "status"}),
    "reasoning": frozenset({"id", "summary", "content", "encrypted_content", "status"}),
}
"""Items whose fields are looked at; the others are taken as they are."""

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "reasoning": ("summary",),
}
_OUTPUT_OF: Final[Mapping[str, str]] = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "computer_call_output": "computer_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "local_shell_call_output": "local_shell_call",
    "tool_search_output": "tool_search_call",
}
_ANY_OUTPUT = "function_call_output"
"""It may answer a search for tools as well (recorded)."""
_CALLS = frozenset(_OUTPUT_OF.values())
_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "assistant": ("output_text", "refusal"),
    "user": ("input_text", "input_image", "input_file", "input_audio"),
    "system": ("input_text", "input_image", "input_file"),
    "developer": ("input_text", "input_image", "input_file"),
    "output": ("input_text", "input_image", "input_file"),
}
_FILES = ("application/", "text/", "image/")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(slots=True)
class _Known:
    """What the server holds of a conversation at the end of a response."""

    ids: set[str] = field(default_factory=set[str])
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """call_id to the kind of its call."""
    answered: set[str] = field(default_factory=set[str])

    def copy(self) -> _Known:
        return _Known(set(self.ids), dict(self.calls), set(self.answered))

    def take(self, items: Sequence[Body]) -> None:
        for item in items:
            kind = text(item.get("type", "message"))
            if item.get("id"):
                self.ids.add(str(item["id"]))
            if _is_call(item):
                self.calls[str(item["call_id"])] = kind
            elif kind in _OUTPUT_OF:
                self.answered.add(str(item.get("call_id")))


class ResponsesJudge(Judge):
    """Refuses what the Responses API refuses."""

    wire = "openai"

    def __init__(self, *, dialect: str = "openai") -> None:
        self._adjacent = dialect == "deepseek"
        self._own_ids = dialect in {"openai", "azure"}
        self.wordings = DEEPSEEK if self._adjacent else WORDINGS
        self._encrypted: dict[str, str] = {}
        """Encrypted content to the id of its item."""
        self._stored: set[str] = set()
        self._items: dict[str, Body] = {}
        self._follower: dict[str, Body] = {}
        """Id of a reasoning item to the item that followed it."""
        self._leader: dict[str, str] = {}
        """Id of an item to that of the reasoning it followed."""
        self._responses: dict[str, _Known] = {}

    # What was issued

    def _issue(self, reply: Body, request: Body) -> None:
        output = mappings(reply.get("output"))
        stored = reply.get("store", request.get("store", True)) is not False
        self._keep(output, stored=stored)
        for item, after in pairwise(output):
            if item.get("type") == "reasoning":
                self._follower[str(item.get("id"))] = after
                if after.get("type") != "reasoning" and after.get("id"):
                    self._leader[str(after["id"])] = str(item.get("id"))
        if stored and reply.get("id"):
            before = self._responses.get(str(request.get("previous_response_id")), _Known())
            known = before.copy()
            known.take(_items(request))
            known.take(output)
            self._responses[str(reply["id"])] = known

    def _keep(self, items: Sequence[Body], *, stored: bool) -> None:
        for item in items:
            name = str(item.get("id"))
            if item.get("encrypted_content"):
                self._encrypted[str(item["encrypted_content"])] = name
            if item.get("id"):
                self._items.setdefault(name, item)
                if stored:
                    self._stored.add(name)

    def trust(self, body: Body) -> None:
        self._keep([item for item in _items(body) if item.get("id")], stored=True)
        previous = body.get("previous_response_id")
        if previous and previous not in self._responses:
            known = _Known()
            for item in _items(body):
                if text(item.get("type")) in _OUTPUT_OF:
                    known.calls[str(item.get("call_id"))] = _OUTPUT_OF[str(item["type"])]
            self._responses[str(previous)] = known

    # What is asked

    def request(
        self,
        body: Body | str | bytes,
        *,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002 - none matters here
    ) -> None:
        body = body_of(body)
        self._fields(body)
        items = _items(body)
        for at, item in enumerate(items):
            self._item(at, item)
        self._tools(body, items)
        self._settings(body)
        known = self._previous(body)
        self._twice(items, known)
        if not body.get("conversation"):  # what that holds is not known here
            self._pairs(items, known)
        if self._adjacent:
            self._groups(items)  # that server reads reasoning as text, and takes it or leaves it
        else:
            self._reasoning(items)

    def _fields(self, body: Body) -> None:
        if "model" not in body and not body.get("prompt"):
            self.refuse("missing_field", param="model", where="model")
        for name in body:
            if name not in _FIELDS and self._own_ids:
                self.refuse("unknown_field", param=name, where=name)
        asked = ("input", "previous_response_id", "prompt", "conversation", "instructions")
        if not any(body.get(name) for name in asked):
            self.refuse("no_messages")
        given: object = body.get("input", [])
        if not isinstance(given, str | list | tuple):
            kind = kind_of(given)
            self.refuse(
                "type", param="input", where="input", wanted="an array or a string", given=kind
            )

    def _item(self, at: int, item: Body) -> None:
        kind = text(item.get("type", "message"))
        place = f"input[{at}]"
        for name in _NEEDED.get(kind, ()):
            if name not in item:
                param = f"{place}.{name}"
                self.refuse("missing_field", position=at, param=param, where=param)
        for name in item:
            if name != "type" and name not in _ITEM_FIELDS.get(kind, item) and self._own_ids:
                param = f"{place}.{name}"
                self.refuse("unknown_field", position=at, param=param, where=param)
        self._ids(at, kind, item)
        match kind:
            case "message":
                self._content(at, f"{place}.content", str(item["role"]), item["content"])
            case "function_call" | "custom_tool_call":
                self._strings(
                    at, place, item, ("name", "arguments" if kind == "function_call" else "input")
                )
                if not _NAME.fullmatch(item["name"]):
                    self.refuse(
                        "tool_name", position=at, param=f"{place}.name", where=f"{place}.name"
                    )
            case "function_call_output" | "custom_tool_call_output":
                if not isinstance(item["output"], str):
                    self._content(at, f"{place}.output", "output", item["output"])
            case _:
                pass

    def _strings(self, at: int, place: str, item: Body, keys: Sequence[str]) -> None:
        for name in keys:
            if not isinstance(item[name], str):
                param = f"{place}.{name}"
                given = kind_of(item[name])
                self.refuse(
                    "type", position=at, param=param, where=param, wanted="a string", given=given
                )

    def _ids(self, at: int, kind: str, item: Body) -> None:
        if "call_id" in item and (kind in _CALLS or kind in _OUTPUT_OF):
            name, where = item["call_id"], f"input[{at}].call_id"
            if name == "":
                self.refuse("empty_id", position=at, param=where, where=where)
            if isinstance(name, str) and len(name) > 64 and self._own_ids:
                words = {"most": 64, "length": len(name), "where": where}
                self.refuse("id", position=at, param=where, **words)
        name, prefix = item.get("id"), _PREFIXES.get(kind)
        if prefix and self._own_ids and isinstance(name, str) and not name.startswith(prefix):
            where = f"input[{at}].id"
            self.refuse("item_id", position=at, param=where, where=where, id=name, prefix=prefix)

    def _content(self, at: int, where: str, role: str, content: object) -> None:
        if role not in _PARTS:
            wanted = "'assistant', 'system', 'developer', and 'user'"
            self.refuse("value", position=at, param=f"input[{at}]", given=role, wanted=wanted)
        if isinstance(content, str):
            return
        if not isinstance(content, list | tuple):
            given = kind_of(content)
            self.refuse(
                "type",
                position=at,
                param=where,
                where=where,
                wanted="a string or an array",
                given=given,
            )
        for n, part in enumerate(mappings(content)):  # pyright: ignore[reportUnknownArgumentType] - JSON
            kind, place = text(part.get("type")), f"{where}[{n}]"
            if kind not in _PARTS[role]:
                wanted = " and ".join(f"'{each}'" for each in _PARTS[role])
                self.refuse("value", position=at, param=place, given=kind, wanted=wanted)
            if kind in {"input_text", "output_text"} and not isinstance(part.get("text"), str):
                param = f"{place}.text"
                self.refuse("missing_field", position=at, param=param, where=param)
            if kind == "input_file" and isinstance(part.get("file_data"), str):
                self._file(at, f"{place}.file_data", part["file_data"])

    def _file(self, at: int, where: str, data: str) -> None:
        media = data.removeprefix("data:").partition(";")[0] if data.startswith("data:") else ""
        if media and not media.startswith(_FILES):
            self.refuse("file", position=at, param=where, where=where, given=media)

    # Tools and settings

    def _tools(self, body: Body, items: Sequence[Body]) -> None:
        known: set[str] = set()
        for at, tool in enumerate(mappings(body.get("tools"))):
            self._tool(f"tools[{at}]", tool, known)
        for at, item in enumerate(items):
            if text(item.get("type")) in {"additional_tools", "tool_search_output"}:
                for n, tool in enumerate(mappings(item.get("tools"))):
                    self._tool(f"input[{at}].tools[{n}]", tool, set())
                    known.add(str(tool.get("name")))
        choice = mapping(body.get("tool_choice"))
        if (
            text(choice.get("type")) in {"function", "custom"}
            and text(choice.get("name")) not in known
        ):
            self.refuse("tool_choice", param="tool_choice", name=choice.get("name"))
        if body.get("tool_choice") == "required" and not known and not body.get("tools"):
            self.refuse("tool_choice", param="tool_choice", name="required")

    def _tool(self, where: str, tool: Body, known: set[str]) -> None:
        if tool.get("type") == "namespace":
            for n, inner in enumerate(mappings(tool.get("tools"))):
                self._tool(f"{where}.tools[{n}]", inner, set())
            return
        if tool.get("type") != "function":
            return
        name, param = tool.get("name"), f"{where}.name"
        if not isinstance(name, str):
            self.refuse("missing_field", param=param, where=param)
        if not _NAME.fullmatch(name):
            self.refuse("tool_name", param=param, where=param)
        if len(name) > 64:
            self.refuse("tool_name_long", param=param, where=param, most=64, length=len(name))
        if name in known:
            self.refuse("tool_twice", param=where, name=name)
        known.add(name)
        schema, param = mapping(tool.get("parameters")), f"{where}.parameters"
        if schema.get("type") != "object" and tool.get("parameters") is not None:
            given = same(schema["type"]) if "type" in schema else '"None"'
            self.refuse("tool_schema", param=param, name=name, given=given)
        why = openai_strict(schema) if tool.get("strict") and self._own_ids else None
        if why is not None:
            self.refuse("tool_strict", param=param, name=name, why=why)

    def _settings(self, body: Body) -> None:
        model = re.search(r"gpt-(\d+)", str(body.get("model")))
        effort = mapping(body.get("reasoning")).get("effort")
        for name in ("temperature", "top_p"):
            if name in body and model and int(model[1]) >= 6 and effort != "none":
                self.refuse("sampling", param=name, name=name)
        form = mapping(mapping(body.get("text")).get("format"))
        if form.get("type") == "json_schema" and form.get("strict"):
            why = openai_strict(mapping(form.get("schema")))
            if why is not None:
                self.refuse(
                    "output_strict", param="text.format.schema", name=form.get("name"), why=why
                )

    # Pairs

    def _previous(self, body: Body) -> _Known:
        name = body.get("previous_response_id")
        if not name:
            return _Known()
        if text(name) not in self._responses:
            self.refuse("previous", param="previous_response_id", id=name)
        return self._responses[text(name)]

    def _twice(self, items: Sequence[Body], known: _Known) -> None:
        ids, calls = set(known.ids), set(known.calls)
        answered = set(known.answered)
        for at, item in enumerate(items):
            name, call = text(item.get("id")), text(item.get("call_id"))
            if name and item.get("type") != "item_reference":
                if name in ids:
                    self.refuse("id_twice", position=at, param="input", id=name)
                ids.add(name)
            if _is_call(item):
                if call in calls:
                    self.refuse("id_twice", position=at, param="input", id=call)
                calls.add(call)
            elif text(item.get("type")) in _OUTPUT_OF:
                if call in answered:
                    self.refuse("id_twice", position=at, param="input", id=call)
                answered.add(call)

    def _pairs(self, items: Sequence[Body], known: _Known) -> None:
        calls: dict[str, int | None] = {
            call: None for call in known.calls if call not in known.answered
        }
        kinds = dict(known.calls)
        for at, item in enumerate(items):
            kind, call = text(item.get("type", "message")), str(item.get("call_id"))
            if _is_call(item):
                calls[call] = at
                kinds[call] = kind
            elif kind in _OUTPUT_OF and item.get("execution") != "server":
                found = kinds.get(call)
                searched = kind == _ANY_OUTPUT and found == "tool_search_call"
                if found != _OUTPUT_OF[kind] and not searched:
                    words = _words(_OUTPUT_OF[kind])
                    self.refuse("orphan_result", position=at, param="input", kind=words, id=call)
                calls.pop(call, None)
        for call, at in calls.items():
            words = {"kind": _words(kinds[call]), "id": call}
            self.refuse(
                "unanswered", position=at, param=None if self._adjacent else "input", **words
            )

    def _groups(self, items: Sequence[Body]) -> None:
        """The outputs of a group of calls stand right behind it."""
        group: list[tuple[int, str]] = []
        for at, item in enumerate(items):
            if _is_call(item):
                group.append((at, str(item["call_id"])))
            elif text(item.get("type")) in _OUTPUT_OF:
                group = [each for each in group if each[1] != item.get("call_id")]
            elif item.get("type") != "reasoning" and group:
                break
        for at, call in group:
            self.refuse("unanswered", position=at, id=call)

    # What was issued must come back as it was

    def _reasoning(self, items: Sequence[Body]) -> None:
        present = {str(item.get("id")) for item in items}
        for at, item in enumerate(items):
            name = str(item.get("id"))
            if item.get("type") == "reasoning":
                self._sealed(at, item, name)
                after = items[at + 1] if at + 1 < len(items) else None
                if item.get("id") and not self._follows(name, after):
                    self.refuse("follower", position=at, param="input", id=name)
            elif item.get("type") == "compaction":
                self._sealed(at, item, name)
            elif item.get("type") == "item_reference":
                if name not in self._stored:
                    self.refuse("not_persisted", position=at, param="input", id=name)
            elif name in self._leader and self._leader[name] not in present:
                words = {"id": name, "kind": item.get("type"), "of": self._leader[name]}
                self.refuse("required_reasoning", position=at, param="input", **words)

    def _sealed(self, at: int, item: Body, name: str) -> None:
        sealed = text(item.get("encrypted_content"))
        if not sealed:
            if name not in self._stored and item.get("id"):
                self.refuse("not_persisted", position=at, param="input", id=name)
            return
        if sealed not in self._encrypted or (item.get("id") and self._encrypted[sealed] != name):
            short = f"{sealed[:4]}...{sealed[-4:]}"
            self.refuse("encrypted", position=at, short=short)

    def _follows(self, name: str, after: Body | None) -> bool:
        """Whether an item is the one that followed a reasoning item, which may have lost its id."""
        if after is None:
            return False
        issued = self._follower.get(name)
        if issued is None:  # from elsewhere: anything of the model's that has an id or is a call
            return bool(after.get("id")) or text(after.get("type")) in {"reasoning", *_CALLS}
        if after.get("id"):
            return after["id"] == issued.get("id")
        return _is_call(after) and after.get("call_id") == issued.get("call_id")

    def _error(self, rule: str, said: str, param: str | None) -> tuple[int, Body]:
        codes = {
            "missing_field": "missing_required_parameter",
            "unknown_field": "unknown_parameter",
            "type": "invalid_type",
            "value": "invalid_value",
            "file": "invalid_value",
            "item_id": "invalid_value",
            "tool_name": "invalid_value",
            "empty_id": "string_below_min_length",
            "id": "string_above_max_length",
            "tool_name_long": "string_above_max_length",
            "tool_schema": "invalid_function_parameters",
            "tool_strict": "invalid_function_parameters",
            "output_strict": "invalid_json_schema",
            "encrypted": "invalid_encrypted_content",
            "previous": "previous_response_not_found",
            "sampling": "unsupported_parameter",
        }
        code = "invalid_request_error" if self._adjacent else codes.get(rule)
        error = {"message": said, "type": "invalid_request_error", "param": param, "code": code}
        return (404 if rule == "not_persisted" else 400), {"error": error}


def _items(body: Body) -> list[Body]:
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else mappings(given)


def _is_call(item: Body) -> bool:
    """A call that the client answers."""
    return (
        text(item.get("type")) in _CALLS
        and bool(item.get("call_id"))
        and item.get("execution") != "server"
    )


def _words(kind: str) -> str:
    """`function_call` as the provider's sentences say it."""
    return kind.removesuffix("_call").replace("_", " ")
