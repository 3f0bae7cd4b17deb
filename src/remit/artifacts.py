"""A full output that is kept outside the transcript, and the handle by which it is named.

A value only: who may read which artifact is the store's business, how the model reads one is `paging`'s.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

__all__ = ["BINARY", "HANDLE_PREFIX", "Artifact", "digest_of", "plain_type"]

HANDLE_PREFIX: Final = "artifact:"

BINARY: Final = "application/octet-stream"
"""What nobody said the type of."""

_DIGEST = re.compile(r"(?:artifact:)?([0-9a-f]{12,64})", re.IGNORECASE)
_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)


class Artifact(msgspec.Struct, frozen=True, gc=False):
    """A full output, named by its content."""

    handle: str
    """`artifact:` and the SHA-256 of the data in 64 hex digits."""
    media_type: str
    """IANA media type without parameters, as whoever kept it first gave it."""
    data: bytes
    """Text is kept as UTF-8."""

    @classmethod
    def of(cls, data: bytes, media_type: str) -> Artifact:
        """The artifact of these bytes. It hashes them, so large ones are made off the event loop."""
        handle = HANDLE_PREFIX + hashlib.sha256(data).hexdigest()
        return cls(handle, plain_type(media_type), data)

    @property
    def digest(self) -> str:
        """The handle without its prefix."""
        return self.handle[len(HANDLE_PREFIX) :]

    @property
    def note(self) -> str:
        """What stands for it in a text, as it stands or inside of JSON."""
        return f"({self.media_type}, {len(self.data)} bytes: {self.handle})"

    @property
    def text(self) -> str:
        """The data as text. Errors: `UnicodeDecodeError` for what is none."""
        return self.data.decode()

    def __repr__(self) -> str:
        return f"<Artifact {self.handle}: {self.media_type}, {len(self.data)} bytes>"


def plain_type(media_type: str) -> str:
    """A media type without parameters, in lower case; `BINARY` for what is none."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind if _TYPE.fullmatch(kind) else BINARY


def digest_of(handle: str) -> str | None:
    """The hex digits of a handle, or the first of them, at least 12; None for what is no handle.

    It may stand without its prefix: that is how far some models get in copying one.
    """
    found = _DIGEST.fullmatch(handle.strip())
    return None if found is None else found[1].lower()
