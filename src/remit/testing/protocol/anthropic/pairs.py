"""Calls and their results, of the client's tools and of the provider's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.testing.protocol.anthropic.turns import Place, Turn
from remit.testing.protocol.base import Refuse

__all__ = ["Pairs"]


class Pairs:
    """Every call has its result in the next turn, and every result its call in the one before."""

    def __init__(self, refuse: Refuse) -> None:
        self.refuse = refuse

    def check(self, turns: Sequence[Turn]) -> None:
        """Errors: `Refused`."""
        self._pairs(turns)
        self._server_pairs(turns)

    def _pairs(self, turns: Sequence[Turn]) -> None:
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

    def _orphans(self, owed: Mapping[str, Place], results: Sequence[Place]) -> None:
        answered: set[str] = set()
        for result in results:
            given = result.block["tool_use_id"]
            words: dict[str, Any] = {"at": result.at, "n": result.n, "id": given}
            if given not in owed:
                self.refuse("orphan_result", position=result.at, **words)
            if given in answered:
                self.refuse("answered_twice", position=result.at, **words)
            answered.add(given)

    def _server_pairs(self, turns: Sequence[Turn]) -> None:
        """What the provider ran itself: each result stands behind its use.

        Only the newest turn, or one that calls the client's tools, may leave one open.
        """
        asked: dict[str, Place] = {}
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
