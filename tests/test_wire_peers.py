"""Two mock servers that other people wrote, over real sockets: an independent reading of the same documents.

`llmock` also judges the client: did it wait, did it retry what cannot succeed, did it take half a stream for whole.
Real time, since that is what it measures.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import remit as rm
from loop_rig import is_sendable, said
from peers import aimock, get, llmock, post
from remit import Outcome, Reason
from remit.models.names import model as named
from wire_rig import SPEED, both_ways, hurried, look_up, on_every_wire, remit_of

BASES = {
    "llmock": {"anthropic": "/anthropic", "openai": "/v1", "openai-chat": "/v1"},
    "aimock": {"anthropic": "", "openai": "/v1", "openai-chat": "/v1"},
}
MODELS = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-6-sol", "openai-chat": "gpt-6-sol"}


def run(
    url: str,
    peer: str,
    wire: str,
    tools: Any = (),
    *,
    prompt: str = "Where is order 7?",
    streams: bool = True,
    speed: float = 1,
    **options: Any,
) -> Outcome[Any]:
    """One run against a server, bounded."""
    model = named(
        f"{wire}:{MODELS[wire]}",
        base_url=url + BASES[peer][wire],
        api_key="test-key",
        streams=streams,
        **options,
    )

    outcome = hurried(lambda: remit_of(model, tools).run(prompt), speed=speed)
    assert is_sendable(outcome.transcript)
    return outcome


# llmock


@pytest.fixture(scope="module")
def mock() -> Generator[str]:
    with llmock("--stream-chunk-delay-ms", "10") as url:
        yield url


class Verdicts:
    """What the server thinks of its client, from here on."""

    def __init__(self, url: str) -> None:
        self._url = url
        post(f"{url}/_llmock/reset", {})

    def script(self, *behaviours: dict[str, Any]) -> None:
        post(f"{self._url}/_llmock/scenario", {"behaviors": list(behaviours)})

    @property
    def requests(self) -> list[dict[str, Any]]:
        return get(f"{self._url}/_llmock/requests")["requests"]

    def clean(self) -> None:
        """It found nothing, not so much as a warning, and everything that was scripted came to pass."""
        assert get(f"{self._url}/_llmock/scenario")["pending"] == []
        verdict = get(f"{self._url}/_llmock/verdict")
        assert verdict["findings"] == []
        assert verdict["passed"]


@pytest.fixture
def verdicts(mock: str) -> Verdicts:
    return Verdicts(mock)


@on_every_wire
@both_ways
def test_llmock_is_asked_calls_and_is_answered(
    mock: str, verdicts: Verdicts, wire: str, streams: bool
) -> None:
    """T1: parallel calls and their results, to the answer, by somebody else's reading of the wire."""
    calls = [{"name": "look_up", "arguments": {"order": order}} for order in (7, 8)]
    verdicts.script(
        {"type": "reply", "tool_calls": calls},
        {"type": "reply", "tool_calls": calls[:1]},
        {"type": "reply", "text": "All is packed."},
    )
    outcome = run(mock, "llmock", wire, [look_up], streams=streams)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    assert said(outcome) == ["order 7 is packed", "order 8 is packed", "order 7 is packed"]
    assert outcome.text == "All is packed."
    assert len(verdicts.requests) == 3
    verdicts.clean()


@on_every_wire
@pytest.mark.parametrize(
    "fault",
    [
        {"type": "fail", "status": 429, "retry_after": 1},
        {"type": "fail", "status": 500},
        {"type": "fail", "status": 503, "retry_after": 0.7},
        {"type": "fail", "status": 529},
        {"type": "stream_fault", "kind": "disconnect", "after_chunks": 2},
        {"type": "stream_fault", "kind": "truncate", "after_chunks": 2},
        {"type": "stream_fault", "kind": "malformed", "after_chunks": 2},
        {"type": "stream_fault", "kind": "disconnect", "after_chunks": 0},
    ],
    ids=["429", "500", "503", "529", "disconnect", "truncate", "malformed", "at once"],
)
def test_llmock_sees_its_faults_borne(
    mock: str, verdicts: Verdicts, wire: str, fault: dict[str, Any]
) -> None:
    """E7: one further attempt after the wait that was asked for, and the call of the step before stays run once."""
    ran: list[int] = []

    @rm.tool(effect="idempotent", resource=())
    def act(number: int) -> str:
        """Act."""
        ran.append(number)
        lost = (
            []
            if fault["type"] == "fail"
            else [{"type": "reply", "text": "This never arrives in full. " * 6}]
        )
        verdicts.script(fault, *lost, {"type": "reply", "text": "Done."})
        return "acted"

    verdicts.script({"type": "reply", "tool_calls": [{"name": "act", "arguments": {"number": 1}}]})
    outcome = run(mock, "llmock", wire, [act])
    assert outcome.reason is Reason.COMPLETED, outcome.error
    assert outcome.text == "Done."
    assert ran == [1]
    assert len(verdicts.requests) == 3
    verdicts.clean()


@on_every_wire
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_llmock_is_not_asked_again_what_cannot_succeed(
    mock: str, verdicts: Verdicts, wire: str, status: int
) -> None:
    """E7: one request, and a typed end."""
    verdicts.script({"type": "fail", "status": status})
    outcome = run(mock, "llmock", wire, [look_up])
    assert outcome.reason is Reason.MODEL_FAILED
    assert len(verdicts.requests) == 1
    verdicts.clean()


@on_every_wire
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
def test_llmock_spoils_a_call_and_the_model_is_told(
    mock: str, verdicts: Verdicts, wire: str, kind: str
) -> None:
    """C1: what cannot run is an error result, the run goes on."""
    verdicts.script({"type": "tool_fault", "kind": kind})
    outcome = run(mock, "llmock", wire, [look_up])
    assert outcome.reason is Reason.COMPLETED, outcome.error
    verdicts.clean()


@on_every_wire
def test_llmock_stalls_and_is_given_up(mock: str, verdicts: Verdicts, wire: str) -> None:
    """E7: silence in the middle of a stream is not sat through."""
    verdicts.script(
        {"type": "stream_fault", "kind": "stall", "after_chunks": 1, "stall_seconds": 5}
    )
    outcome = run(mock, "llmock", wire, [look_up], idle_seconds=0.5)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    verdicts.clean()


# aimock


FIXTURES: list[dict[str, Any]] = [
    {"match": {"toolCallId": "call_c"}, "response": {"content": "All three are packed."}},
    {
        "match": {"toolCallId": "call_b"},
        "response": {
            "toolCalls": [{"id": "call_c", "name": "look_up", "arguments": '{"order":9}'}]
        },
    },
    {
        "match": {"userMessage": "order 7"},
        "response": {
            "content": "I shall see.",
            "toolCalls": [
                {"id": "call_a", "name": "look_up", "arguments": '{"order":7}'},
                {"id": "call_b", "name": "look_up", "arguments": '{"order":8}'},
            ],
        },
    },
    {"match": {"userMessage": "hello"}, "response": {"content": "Größe → 好. " * 20}},
    {
        "match": {"userMessage": "forbidden"},
        "response": {"error": {"message": "No", "type": "permission_error"}, "status": 403},
    },
]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder: Path = tmp_path_factory.mktemp("aimock")
    with aimock(FIXTURES, folder, "--chunk-size", "3") as url:
        yield url


@on_every_wire
@both_ways
def test_aimock_is_asked_calls_and_is_answered(other: str, wire: str, streams: bool) -> None:
    """T1: it finds its next line by the id of the result that it was sent."""
    outcome = run(other, "aimock", wire, [look_up], streams=streams)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    assert said(outcome) == ["order 7 is packed", "order 8 is packed", "order 9 is packed"]
    assert outcome.text == "All three are packed."


@on_every_wire
@both_ways
def test_aimock_says_something_long_in_small_pieces(other: str, wire: str, streams: bool) -> None:
    """case 15: letters of several bytes, three characters at a time."""
    outcome = run(other, "aimock", wire, prompt="hello", streams=streams)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    assert outcome.text.strip() == ("Größe → 好. " * 20).strip()


@on_every_wire
def test_aimock_refuses_and_that_is_the_end(other: str, wire: str) -> None:
    """E7: an error of its making is told in its words."""
    outcome = run(other, "aimock", wire, prompt="forbidden")
    assert outcome.reason is Reason.MODEL_FAILED
    assert "403" in (outcome.error or "")


@on_every_wire
def test_aimock_breaks_off_every_answer(tmp_path: Path, wire: str) -> None:
    """E7: a connection that is destroyed every time is a bounded number of attempts."""
    with aimock(FIXTURES, tmp_path, "--chaos-disconnect", "1.0") as url:
        outcome = run(url, "aimock", wire, prompt="hello", speed=SPEED)
        assert outcome.reason is Reason.MODEL_FAILED
        asked = [entry for entry in get(f"{url}/__aimock/journal") if entry["method"] == "POST"]
    assert 1 <= len(asked) <= 5
