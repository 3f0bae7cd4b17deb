"""The artifacts of a store in memory: who may read them, and when nobody can any more.

What a run keeps belongs to its whole tree of runs, named here by its root. Equal data are kept once, and as
long as a run of any tree that holds them is in the store. `memory.py` above says which runs are; it holds the
lock, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from remit.artifacts import Artifact

__all__ = ["Shelf"]


@dataclass(slots=True)
class _Tree:
    """The runs that are in the store, and what they hold."""

    runs: int = 0
    ended: int = 0
    digests: set[str] = field(default_factory=set[str])

    @property
    def is_idle(self) -> bool:
        return self.runs == self.ended


@dataclass(slots=True)
class _Place:
    artifact: Artifact
    holders: int = 0
    """Trees."""
    idle: int = 0
    """Of those, the ones in which nothing goes on."""


class Shelf:
    """Artifacts by digest, and the trees that hold them."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._trees: dict[str, _Tree] = {}
        self.idle_bytes = 0
        """Of what only ended runs hold."""

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, root: str) -> None:
        """A run of this tree is opened."""
        self._change(self._trees.setdefault(root, _Tree()), runs=+1)

    def rest(self, root: str) -> None:
        """A run of this tree has ended."""
        self._change(self._trees[root], ended=+1)

    def wake(self, root: str) -> None:
        """It goes on after all."""
        self._change(self._trees[root], ended=-1)

    def leave(self, root: str) -> None:
        """A run that has ended is dropped. With the last of its tree goes what nobody else holds."""
        tree = self._trees[root]
        tree.runs -= 1
        tree.ended -= 1
        if tree.runs:
            return
        del self._trees[root]
        self._let_go(tree)

    def empty(self, root: str) -> None:
        """Let go of what a tree holds, all of whose runs have ended."""
        self._let_go(self._trees[root])

    def only_of(self, roots: Collection[str]) -> int:
        """How many artifacts nobody but these trees holds."""
        held = Counter(digest for root in roots for digest in self._trees[root].digests)
        return sum(1 for digest, holders in held.items() if holders == self._places[digest].holders)

    def put(self, root: str, artifacts: Iterable[Artifact]) -> None:
        """Keep these for a tree."""
        for artifact in artifacts:
            self._places.setdefault(artifact.digest, _Place(artifact))
            self.share(root, (artifact.digest,))

    def share(self, root: str, digests: Iterable[str]) -> None:
        """Let a tree hold, too, what is there of these."""
        tree = self._trees[root]
        for digest in digests:
            place = self._places.get(digest)
            if place is not None and digest not in tree.digests:
                tree.digests.add(digest)
                self._count(place, holders=+1, idle=int(tree.is_idle))

    def find(self, root: str, digest: str) -> Artifact | None:
        """What a tree holds under a digest, or under the first digits that only one has."""
        tree = self._trees.get(root)
        if tree is None:
            return None
        if digest in tree.digests:
            return self._places[digest].artifact
        found = [each for each in tree.digests if len(digest) >= 12 and each.startswith(digest)]
        return self._places[found[0]].artifact if len(found) == 1 else None

    def _let_go(self, tree: _Tree) -> None:
        for digest in tree.digests:
            place = self._places[digest]
            self._count(place, holders=-1, idle=-1)
            if not place.holders:
                del self._places[digest]
        tree.digests.clear()

    def _change(self, tree: _Tree, *, runs: int = 0, ended: int = 0) -> None:
        was_idle = tree.is_idle
        tree.runs += runs
        tree.ended += ended
        if tree.is_idle != was_idle:
            for digest in tree.digests:
                self._count(self._places[digest], idle=1 if tree.is_idle else -1)

    def _count(self, place: _Place, *, holders: int = 0, idle: int = 0) -> None:
        """Keep count of the bytes that only ended runs hold."""
        self.idle_bytes -= _idle_bytes(place)
        place.holders += holders
        place.idle += idle
        self.idle_bytes += _idle_bytes(place)


def _idle_bytes(place: _Place) -> int:
    return len(place.artifact.data) if 0 < place.holders == place.idle else 0
