"""`remit approvals`: everything that runs wait for, and how to give it to them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

from remit.analysis.cells import cells, clip, one_line
from remit.analysis.figures import span
from remit.analysis.layout import Span, fitted
from remit.analysis.times import ago
from remit.cli import exits
from remit.cli.cases import Case, case_document, open_cases
from remit.cli.documents import VERSION, write_document
from remit.cli.locations import location_here, no_store
from remit.cli.options import StoreFlag
from remit.cli.reading import Printer
from remit.cli.stores import opened
from remit.cli.streams import complain, own_stdout

__all__ = ["approvals"]

_MOST: Final = 1_000
"""So many are listed."""
_SUMMARY_CELLS: Final = 60
_HEAD: Final = ("ID", "KIND", "TOOL", "EFFECT", "ASKED", "EXPIRES", "RUN", "SUMMARY")


def approvals(*, store: StoreFlag = None, json: bool = False) -> int:
    """List what runs wait for: decisions, answers and results; the longest first.

    Args:
        json: Answer with one JSON document.
    """
    with own_stdout() as streams:
        location, cases = location_here(store), list[Case]()
        if location.is_empty:  # nothing was run yet: that is an answer
            complain(no_store(location))
        else:
            with opened(store) as kept_in:
                cases = asyncio.run(open_cases(kept_in, count=_MOST))
        if json:
            document = {"v": VERSION, "approvals": [case_document(case) for case in cases]}
            write_document(document, streams.answer)
        elif not cases:
            print("Nothing is waited for.", file=streams.answer)
        else:
            printer = Printer(streams.answer)
            lines = _table([_HEAD, *map(_row, cases)])
            rows = [(Span(printer.glyphs.carried(line)),) for line in lines]
            columns = printer.columns
            printer.show(
                rows if columns is None else [fitted(row, columns, printer.glyphs) for row in rows]
            )
    return exits.OK


def _row(case: Case) -> tuple[str, ...]:
    pending, now = case.pending, datetime.now(UTC)
    asked = "" if case.asked_at is None else ago(case.asked_at, now)
    left = (pending.expires_at - now).total_seconds()
    return (
        one_line(pending.id),
        pending.kind,
        one_line(pending.tool),
        case.effect,
        asked,
        f"in {span(left)}" if left > 0 else "expired",
        one_line(pending.run_id),
        clip(one_line(pending.summary), _SUMMARY_CELLS),
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(cells(row[at]) for row in rows) for at in range(len(_HEAD))]
    return [
        "  ".join(
            text + " " * (width - cells(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
