"""What a function sees of its call."""

import logging
from decimal import Decimal
from typing import Any

import pytest

from remit.tools import Call


class Listener:
    def __init__(self) -> None:
        self.now = 4.0
        self.progress: list[tuple[str | None, float | None]] = []
        self.charges: list[tuple[Decimal, int]] = []
        self.asked: list[tuple[object, str]] = []

    def call(self) -> Call[str]:
        return Call(
            key="r:1:t:0:0",
            run_id="r",
            step=1,
            deadline=10.0,
            deps="deps",
            clock=lambda: self.now,
            on_progress=lambda message, fraction: self.progress.append((message, fraction)),
            on_charge=lambda usd, tokens: self.charges.append((usd, tokens)),
            on_ask=lambda schema, question: self.asked.append((schema, question)),
        )


def test_the_time_that_remains_is_read_from_the_clock_and_never_negative() -> None:
    """C7: seconds until the call is cut."""
    listener = Listener()
    call = listener.call()
    assert call.remaining == 6.0
    listener.now = 11.0
    assert call.remaining == 0.0


def test_progress_is_told_and_a_wrong_fraction_does_not_fail_the_work() -> None:
    listener = Listener()
    call = listener.call()
    call.progress("half", fraction=0.5)
    call.progress()
    for fraction in (1.0000001, -1.0, float("nan")):
        call.progress(fraction=fraction)
    assert listener.progress == [("half", 0.5), (None, None), (None, 1.0), (None, 0.0), (None, 0.0)]


def test_a_charge_keeps_its_digits_and_cannot_be_negative() -> None:
    listener = Listener()
    call = listener.call()
    call.charge(usd=0.1)
    call.charge(usd=Decimal("0.10"), tokens=5)
    call.charge(usd="2", tokens=0)
    assert [(str(usd), tokens) for usd, tokens in listener.charges] == [
        ("0.1", 0),
        ("0.10", 5),
        ("2", 0),
    ]
    wrong: list[dict[str, Any]] = [{"usd": -1}, {"usd": float("nan")}, {"tokens": -1}]
    for charge in wrong:
        with pytest.raises(ValueError, match="charge"):
            call.charge(**charge)


def test_the_logger_names_the_run_and_keeps_what_the_author_adds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="remit.tool"):
        Listener().call().logger.info("moved %d", 3, extra={"shelf": "a"})
    [record] = caplog.records
    assert record.getMessage() == "moved 3"
    assert {"run_id": "r", "call_key": "r:1:t:0:0", "shelf": "a"}.items() <= vars(record).items()


def test_a_call_tells_its_key_and_neither_deps_nor_callables() -> None:
    assert repr(Listener().call()) == "Call(key='r:1:t:0:0')"
