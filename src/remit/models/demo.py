"""The model of the demonstrations: it plays a fixed part, whoever asks and as often as they like.

`demo:support` looks after one late order with the tools of `remit.demo`. A real model is named in its
place, and decides for itself.
"""

from __future__ import annotations

import re
from dataclasses import replace

from remit.canonical import decode
from remit.errors import ConfigurationError
from remit.messages import Status
from remit.models.base import Model, ModelRequest
from remit.models.scripted import DEMO_PROFILE, Item, ScriptedModel
from remit.transcript import Transcript

__all__ = ["demo_model"]

_PROFILE = replace(DEMO_PROFILE, context_window=200_000)
_LATENCY = 0.15
"""Seconds before each reply, so that there is something to watch."""
_HANDLE = re.compile("artifact:[0-9a-f]{64}")


def demo_model(name: str) -> Model:
    """Errors: `ConfigurationError` for another name than `support`."""
    if name != "support":
        raise ConfigurationError(
            f"model 'demo:{name}': the one part that there is to play is demo:support"
        )
    return ScriptedModel(_support, name="demo:support", profile=_PROFILE, latency=_LATENCY)


def _support(transcript: Transcript, _: ModelRequest) -> Item:
    """The next turn, counted from the last thing that the customer said."""
    turn = 0
    for message in reversed(transcript):
        if message.role == "user" and not message.tool_results:
            break
        turn += message.role == "assistant"
    return _SUPPORT[min(turn, len(_SUPPORT) - 1)]


def _search_the_log(transcript: Transcript) -> Item:
    """The log was cut: look for what matters in the part that is not shown."""
    handle = _HANDLE.search(transcript[-1].tool_results[0].text)
    if handle is None:
        return "I cannot read the carrier's log."
    return [
        "The log is long and its middle is not shown. I search it.",
        ("read_artifact", {"handle": handle[0], "search": "held"}),
    ]


def _read_around(transcript: Transcript) -> Item:
    """Turn the page to where the search found something."""
    result, use = transcript[-1].tool_results[0], transcript[-2].tool_uses[0]
    if result.status is not Status.OK or not (places := decode(result.text.encode())["places"]):
        return "I cannot find the reason in the carrier's log."
    page = {"handle": use.parsed()["handle"], "offset": places[0]["offset"] - 150, "length": 350}
    return ["There it is. I read what stands around it.", ("read_artifact", page)]


def _propose(transcript: Transcript) -> Item:
    """The way was chosen, so propose the refund."""
    way = transcript[-1].tool_results[0].text
    return [
        "It is late. I propose to refund the shipping.",
        ("refund", {"order_id": "1042", "amount": "4.90", "way": way}),
    ]


def _farewell(transcript: Transcript) -> Item:
    """The last answer, by what became of the refund."""
    results = transcript[-1].tool_results
    paid = bool(results) and results[0].status is Status.OK
    return (
        "Order 1042 is in transit. It was promised for Monday and comes on Thursday: its label was torn in "
        "Bordeaux, and a new one had to be printed. "
        + (
            "I have refunded the shipping, 4.90 EUR."
            if paid
            else "A refund of the shipping was not approved."
        )
    )


_SUPPORT: tuple[Item, ...] = (
    [
        "I look at the order and at what was paid for it.",
        ("get_order_status", {"order_id": "1042"}),
        ("get_payment_history", {"order_id": "1042"}),
    ],
    ["The carrier did not answer. I ask again.", ("get_order_status", {"order_id": "1042"})],
    ["It is late. The carrier may say why.", ("get_carrier_log", {"order_id": "1042"})],
    _search_the_log,
    _read_around,
    ["How is it to be refunded?", ("choose_refund_way", {"order_id": "1042"})],
    _propose,
    _farewell,
)
