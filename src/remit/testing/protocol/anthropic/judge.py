"""The judge of Anthropic Messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remit.testing.protocol.anthropic.form import Form
from remit.testing.protocol.anthropic.issued import Issued
from remit.testing.protocol.anthropic.offers import Offers
from remit.testing.protocol.anthropic.pairs import Pairs
from remit.testing.protocol.anthropic.turns import turns_of, version_of
from remit.testing.protocol.anthropic.wordings import WORDINGS
from remit.testing.protocol.base import Judge
from remit.testing.protocol.reading import Body, body_of, mappings, text

__all__ = ["AnthropicJudge"]


class AnthropicJudge(Judge):
    """Refuses what the Messages API refuses."""

    wire = "anthropic"
    wordings = WORDINGS

    def __init__(self) -> None:
        self._form = Form(self.refuse)
        self._offers = Offers(self.refuse)
        self._pairs = Pairs(self.refuse)
        self._issued = Issued(self.refuse)

    def _issue(self, reply: Body, request: Body) -> None:
        self._issued.reply(reply, request)

    def trust(self, body: Body) -> None:
        for message in mappings(body.get("messages")):
            for block in mappings(message.get("content")):
                self._issued.keep(block, None)

    def request(
        self, body: Body | str | bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        body = body_of(body)
        self._form.check(body, headers)
        self._offers.check(body)
        messages = mappings(body["messages"])
        turns = turns_of(messages)
        self._pairs.check(turns)
        self._issued.check(body, turns)
        self._end(body, messages)

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
        if not served and version_of(body) >= (4, 6):
            self.refuse("prefill", position=len(messages) - 1)

    def _error(self, rule: str, said: str, param: str | None) -> tuple[int, Body]:  # noqa: ARG002 - this provider names the place in the text
        return 400, {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": said},
            "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
        }
