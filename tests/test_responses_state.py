"""Conversations over OpenAI Responses, whole runs: what the server keeps, refuses, loses and forgets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit
from loop_rig import LIMITS, runtime, watched
from remit import Message, Reason, Remit, Settings, Text, Transcript
from remit.messages import Opaque, ToolUse
from remit.models.endpoint import Endpoint
from remit.models.wires.codec import Decoder
from remit.models.wires.responses import ResponsesCodec
from remit.testing import Judge, run_virtual
from remit.transcript import Stub
from responses_rig import (
    Item,
    Provider,
    body_of,
    call,
    reasoning,
    request,
    response,
    text,
)


@remit.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at it."""
    return f"seen {at}"


def desk(provider: Provider, codec: ResponsesCodec, **options: Any) -> Remit[Any]:
    model = Endpoint("openai:gpt-x", codec, provider, base_url="https://x/v1", model="gpt-x")
    given: dict[str, Any] = {"limits": LIMITS, "runtime": runtime(), **options}
    return Remit(name="desk", model=model, tools=[look], **given)


def two_calls(n: int) -> list[Item]:
    return [
        reasoning(n),
        call(n, f'{{"at":"a{n}"}}'),
        call(n + 100, f'{{"at":"b{n}"}}'),
    ]


THREE_STEPS = (two_calls(1), two_calls(2), two_calls(3), [text(9, "Done.")])
RESULTS = ["seen a1", "seen b1", "seen a2", "seen b2", "seen a3", "seen b3"]


def outputs(bodies: Sequence[dict[str, Any]]) -> list[str]:
    return [item["output"] for body in bodies for item in body["input"] if "output" in item]


def test_under_server_state_only_what_is_new_is_sent() -> None:
    """case 61: three steps of two calls; each result goes out once, under the id that the server gave."""
    provider = Provider(*THREE_STEPS)
    outcome = run_virtual(desk(provider, ResponsesCodec(state="server")).run("Go."))
    assert outcome.reason is Reason.COMPLETED
    assert provider.refusals == []
    assert outputs(provider.bodies) == RESULTS
    assert list(provider.inputs()) == [
        ["user"],
        ["call_x1", "call_x101"],
        ["call_x2", "call_x102"],
        ["call_x3", "call_x103"],
    ]
    previous = [body.get("previous_response_id") for body in provider.bodies]
    assert previous == [None, "resp_1", "resp_2", "resp_3"]
    assert all(body["store"] is True for body in provider.bodies)


def test_what_was_lost_on_the_way_is_sent_again_as_it_was() -> None:
    """case 61, E7: the server had kept the second step when the connection broke; no id is sent twice to one
    conversation, nothing is missing and no call runs twice.
    """
    provider = Provider(two_calls(1), "lost", *THREE_STEPS[1:])
    outcome = run_virtual(desk(provider, ResponsesCodec(state="server")).run("Go."))
    assert outcome.reason is Reason.COMPLETED
    assert provider.refusals == []
    assert provider.bodies[1] == provider.bodies[2]
    assert outputs(provider.bodies[:1] + provider.bodies[2:]) == RESULTS


def test_a_server_that_forgot_gets_all_of_it_once() -> None:
    """case 59: the whole history goes out once, without ids of what is gone; then only what is new again."""
    provider = Provider(two_calls(1), two_calls(2), "forgets", two_calls(3), [text(9, "Done.")])
    codec = ResponsesCodec(state="server")
    outcome, events = run_virtual(watched(desk(provider, codec), "Go."))
    assert outcome.reason is Reason.COMPLETED
    assert provider.refusals == ["Previous response with id 'resp_2' not found."]
    previous = [body.get("previous_response_id") for body in provider.bodies]
    assert previous == [None, "resp_1", "resp_2", None, "resp_3"]
    whole = provider.bodies[3]["input"]
    assert [item.get("type") for item in whole] == [
        None,
        *["reasoning", "function_call", "function_call", *["function_call_output"] * 2] * 2,
    ]
    assert not any("id" in item for item in whole)
    assert outputs(provider.bodies[4:]) == RESULTS[4:]
    told = [event.fields["text"] for event in events if event.kind == "model_notice"]
    assert told == ["the server does not know the conversation any more: all of it was sent"]


def test_a_conversation_goes_on_from_what_the_server_keeps_in_another_process() -> None:
    """case 61: the id of the response is in the history, and so the next run sends what is new."""
    provider = Provider(two_calls(1), [text(8, "One.")], [text(9, "Two.")])
    codec = ResponsesCodec(state="server")
    first = run_virtual(desk(provider, codec).run("Go."))
    stored = Transcript.load(first.transcript.to_json())
    second = run_virtual(desk(provider, codec).run("And?", history=stored))
    assert second.text == "Two."
    assert provider.refusals == []
    assert provider.bodies[2]["input"] == [{"role": "user", "content": "And?"}]
    assert provider.bodies[2]["previous_response_id"] == "resp_2"


def test_ids_that_a_transcript_had_to_change_go_back_as_the_server_gave_them() -> None:
    """case 61, T3: the server knows its own ids; the transcript needs unique ones."""
    again = [call(n, f'{{"at":"{n}"}}', call_id="call_0") for n in (1, 2, 3)]
    provider = Provider(*[[each] for each in again], [text(9, "Done.")])
    provider.judge = Unpaired()
    outcome = run_virtual(desk(provider, ResponsesCodec(state="server")).run("Go."))
    assert outcome.reason is Reason.COMPLETED
    assert list(provider.inputs())[1:] == [["call_0"]] * 3
    stateless = Provider(*[[each] for each in again], [text(9, "Done.")])
    assert run_virtual(desk(stateless, ResponsesCodec()).run("Go.")).reason is Reason.COMPLETED
    assert stateless.refusals == []


def test_a_history_that_was_changed_is_not_gone_on_from() -> None:
    """X5: where results gave way to notes the server's copy is another one, from there on."""
    codec = ResponsesCodec(state="server")
    encoder = codec.encoder("gpt-x")
    transcript = grown(codec, 3)
    assert body_of(request(transcript), encoder)["previous_response_id"] == "resp_3"
    transcript.elide([Stub("call_x2", 0, "(elsewhere)", "h1", 9)])
    made = body_of(request(transcript), encoder)
    assert made["previous_response_id"] == "resp_2"  # which the server has as the history has it
    assert outputs([made]) == ["(elsewhere)", "seen 3"]
    extend(transcript, codec, 4)
    assert body_of(request(transcript), encoder)["previous_response_id"] == "resp_4"


def test_a_view_is_not_gone_on_from() -> None:
    """case 61: the server has more than a view shows, and would go on from all of it."""
    codec = ResponsesCodec(state="server")
    transcript = grown(codec, 2)
    transcript.say(Text("And now?"))
    extend(transcript, codec, 3)
    assert "previous_response_id" not in body_of(request(transcript.view(3)), codec.encoder("m"))


def test_a_history_that_was_edited_is_not_gone_on_from() -> None:
    """case 61: the server would answer what was said before it was edited."""
    codec = ResponsesCodec(state="server")
    first, *rest = grown(codec, 2)
    assert first.text == "Go."
    edited = Transcript([Message("user", (Text("Stop."),)), *rest])
    made = body_of(request(edited), codec.encoder("m"))
    assert "previous_response_id" not in made
    assert made["input"][0]["content"] == "Stop."


def test_a_reply_that_was_cut_is_not_gone_on_from() -> None:
    """case 61: the server keeps its half call too, which nobody answers."""
    codec = ResponsesCodec(state="server")
    transcript = grown(codec, 1)
    cut = response(
        text(7, "Half"),
        n=7,
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    )
    reply = decoder_of(codec, transcript).whole(json.dumps(cut).encode())
    transcript.add_reply(reply.message)
    transcript.say(Text("Go on."))
    made = body_of(request(transcript), codec.encoder("m"))
    assert made["previous_response_id"] == "resp_1"
    assert [item.get("type") or item["role"] for item in made["input"]] == [
        "function_call_output",
        "message",
        "user",
    ]


def test_another_providers_turns_go_along_with_what_is_new() -> None:
    """case 60, case 61: what another vendor said is new to the server; what that one sealed is not sent."""
    codec = ResponsesCodec(state="server")
    transcript = grown(codec, 1)
    transcript.add_reply(Message("assistant", (Opaque("anthropic", b"{}"), Text("Hm."))))
    transcript.say(Text("Go on."))
    made = body_of(request(transcript), codec.encoder("m"))
    assert made["input"][1:] == [
        {"role": "assistant", "content": "Hm."},
        {"role": "user", "content": "Go on."},
    ]


@given(
    st.lists(
        st.sampled_from(["step", "lost step", "forgets step", "forgets lost step"]), max_size=6
    ),
    st.sampled_from(["none", "server"]),
)
def test_whatever_a_server_loses_and_forgets_nothing_is_missing_or_sent_twice(
    story: list[str], state: Any
) -> None:
    """case 59, case 61, T1: the provider refuses nothing but a response that it forgot."""
    script: list[Any] = []
    for n, words in enumerate(story, 1):
        script += words.split()[:-1]
        script.append(two_calls(n))
    provider = Provider(*script, [text(99, "Done.")])
    outcome = run_virtual(desk(provider, ResponsesCodec(state=state)).run("Go."))
    assert outcome.reason is Reason.COMPLETED
    assert all("Previous response" in told for told in provider.refusals)
    assert len(provider.refusals) <= (script.count("forgets") if state == "server" else 0)
    seen = [result for n in range(1, len(story) + 1) for result in (f"seen a{n}", f"seen b{n}")]
    assert [r.text for m in outcome.transcript for r in m.tool_results] == seen
    if state == "none":
        assert outputs([provider.bodies[-1]]) == seen


# --- stateless ---------------------------------------------------------------------------------------


def knows_no_ids(body: Any) -> Any:
    for at, item in enumerate(body["input"]):
        if "id" in item:
            where = f"input[{at}].id"
            return complaint(f"Unknown parameter: '{where}'.", "unknown_parameter", where)
    return None


def demands_ids(body: Any) -> Any:
    for at, item in enumerate(body["input"]):
        if item.get("type") in {"reasoning", "function_call"} and not item.get("id"):
            where = f"input[{at}].id"
            return complaint(
                f"Missing required parameter: '{where}'.", "missing_required_parameter", where
            )
    return None


def keeps_nothing(body: Any) -> Any:
    for item in body["input"]:
        if "id" in item:
            return complaint(f"Item with id '{item['id']}' not found.", None, "input")
    return None


def complaint(message: str, code: str | None, param: str) -> Any:
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": param}
    return {"error": error}


@pytest.mark.parametrize(
    ("refuses", "item_ids", "refusals"),
    [
        (None, "given", 0),
        (knows_no_ids, "none", 0),
        (knows_no_ids, "given", 1),
        (keeps_nothing, "given", 1),
        (demands_ids, "given", 0),
        (demands_ids, "all", 0),
        (demands_ids, "none", 1),
    ],
)
def test_a_stateless_conversation_holds_all_that_it_needs(
    refuses: Any, item_ids: Any, refusals: int
) -> None:
    """case 59: ids go out as the endpoint wants; one that was not told is asked once more, once."""
    provider = Provider(*THREE_STEPS, refuses=refuses)
    outcome = run_virtual(desk(provider, ResponsesCodec(item_ids=item_ids)).run("Go."))
    assert outcome.reason is Reason.COMPLETED
    assert len(provider.refusals) == refusals
    last = provider.bodies[-1]
    assert last["store"] is False
    assert last["include"] == ["reasoning.encrypted_content"]
    assert outputs([last]) == RESULTS
    sealed = [item["encrypted_content"] for item in last["input"] if "encrypted_content" in item]
    assert sealed == ["sealed 1", "sealed 2", "sealed 3"]


def test_calls_of_another_vendor_get_ids_where_every_item_needs_one() -> None:
    """case 59: an id that nobody gave is made up, the same one every time."""
    codec = ResponsesCodec(item_ids="all")
    transcript = Transcript()
    transcript.say(Text("Go."))
    transcript.add_reply(
        Message(
            "assistant",
            (Text("Hm."), ToolUse("toolu_1", "look", "{}"), ToolUse("toolu_2", "look", "{}")),
        )
    )
    transcript.answering().close()
    items = body_of(request(transcript), codec.encoder("m"))["input"]
    assert [item.get("id", "")[:3] for item in items] == ["", "msg", "fc_", "fc_", "", ""]
    assert len({item["id"] for item in items if "id" in item}) == 3
    assert items == body_of(request(transcript), codec.encoder("m"))["input"]


@pytest.mark.parametrize("field", ["include", "prompt_cache_key", "store"])
def test_a_field_that_a_server_does_not_know_is_left_out(field: str) -> None:
    """case 60: what a request can do without costs one attempt, and no more in the whole run."""

    def refuses(body: Any) -> Any:
        said = complaint(f"Unknown parameter: '{field}'.", "unknown_parameter", field)
        return said if field in body else None

    provider = Provider(*THREE_STEPS, refuses=refuses)
    assert run_virtual(desk(provider, ResponsesCodec()).run("Go.")).reason is Reason.COMPLETED
    assert len(provider.refusals) == 1
    assert [field in body for body in provider.bodies] == [True, *[False] * 4]


def test_an_effort_that_a_model_does_not_know_is_left_out_unless_it_was_asked_for() -> None:
    """case 60: `thinking` is for models that have it; what stands in `extra` is meant as it stands."""

    def refuses(body: Any) -> Any:
        words = "Unsupported value: 'low' is not supported with this model."
        said = complaint(words, "unsupported_value", "reasoning.effort")
        return said if "reasoning" in body else None

    for asked, reason in (
        (Settings(thinking=100), Reason.COMPLETED),
        (Settings(extra={"reasoning": {"effort": "low"}}), Reason.MODEL_FAILED),
    ):
        provider = Provider(*THREE_STEPS, refuses=refuses)
        run = desk(provider, ResponsesCodec()).run("Go.", settings=asked)
        assert run_virtual(run).reason is reason
        assert len(provider.refusals) == 1


def test_sealed_content_that_is_refused_is_left_out_once() -> None:
    """case 60: the second body differs and passes; reasoning that comes later goes out again."""
    old: set[str] = set()

    def refuses(body: Any) -> Any:
        sealed = [
            item["encrypted_content"] for item in body["input"] if "encrypted_content" in item
        ]
        if "sealed 1" not in sealed:
            return None
        old.update(sealed)
        return complaint(
            "The encrypted content could not be verified.", "invalid_encrypted_content", ""
        )

    provider = Provider(*THREE_STEPS, refuses=refuses)
    outcome, events = run_virtual(watched(desk(provider, ResponsesCodec()), "Go."))
    assert outcome.reason is Reason.COMPLETED
    assert old == {"sealed 1"}
    assert len(provider.refusals) == 1
    last = provider.bodies[-1]["input"]
    assert [i["encrypted_content"] for i in last if "encrypted_content" in i] == [
        "sealed 2",
        "sealed 3",
    ]
    assert outputs([provider.bodies[-1]]) == RESULTS
    kept = [b for m in outcome.transcript for b in m.content if isinstance(b, Opaque)]
    assert any(b"sealed 1" in block.data for block in kept)
    assert [e.fields["what"] for e in events if e.kind == "model_notice"] == ["cut_back"]


def test_sealed_content_that_is_refused_again_ends_the_run() -> None:
    """case 60: no body is sent a third time as it was."""

    def refuses(body: Any) -> Any:
        if len(body["input"]) == 1:
            return None
        return complaint(
            "The encrypted content could not be verified.", "invalid_encrypted_content", ""
        )

    provider = Provider(*THREE_STEPS, refuses=refuses)
    outcome = run_virtual(desk(provider, ResponsesCodec()).run("Go."))
    assert outcome.reason is Reason.MODEL_FAILED
    bodies = [json.dumps(body) for body in provider.bodies]
    assert len(set(bodies)) == len(bodies) <= 4


# --- helpers -----------------------------------------------------------------------------------------


class Unpaired(Judge):
    """Takes everything: a server that gives one id again and again pairs by conversation."""

    wire = "openai"

    def request(self, body: Any, *, headers: Any = None) -> None: ...
    def _issue(self, reply: Any, request: Any) -> None: ...
    def trust(self, body: Any) -> None: ...
    def _error(self, rule: str, said: str, param: str | None) -> Any: ...


def decoder_of(codec: ResponsesCodec, transcript: Transcript) -> Decoder:
    return codec.encoder("gpt-x").encode(request(transcript), stream=True).decoder


def extend(transcript: Transcript, codec: ResponsesCodec, n: int) -> None:
    """One more step: a call and its result."""
    whole = response(reasoning(n), call(n), n=n)
    transcript.add_reply(decoder_of(codec, transcript).whole(json.dumps(whole).encode()).message)
    with transcript.answering() as answering:
        answering.slots[0].settle((Text(f"seen {n}"),))


def grown(codec: ResponsesCodec, steps: int) -> Transcript:
    transcript = Transcript()
    transcript.say(Text("Go."))
    for n in range(1, steps + 1):
        extend(transcript, codec, n)
    return transcript
