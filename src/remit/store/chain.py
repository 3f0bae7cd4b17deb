"""The chain over the rows of a run: whoever changes, drops or adds one in the middle is found out (J2).

A link is made over the *digest* of a row's payload, not over the payload: digests are salted, so that a payload
can be erased, with its salt, and the chain still verifies while nobody can try out what it was. With a key the
chain is an HMAC, which only its holder can continue or forge.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

__all__ = ["SEED_BYTES", "START", "Chain", "salt_of"]

SEED_BYTES: Final = 32
_SALT_BYTES: Final = 16
START: Final = b"\0" * 32
"""What the first link is made on."""

_NUMBERS = struct.Struct(">QQI")


def salt_of(seed: bytes, seq: int) -> bytes:
    """A row's salt. The seed is drawn for each writer of a run, and written nowhere: nobody else derives one."""
    return hashlib.sha256(seed + seq.to_bytes(8, "big")).digest()[:_SALT_BYTES]


class Chain:
    """Makes digests and links, with a key or without."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    @property
    def mark(self) -> str:
        """What tells one key from another without telling it; empty without a key."""
        if self._key is None:
            return ""
        return hmac.digest(self._key, b"remit chain", "sha256").hex()[:16]

    def digest(self, salt: bytes, payload: bytes) -> bytes:
        """The salted digest of a payload; 32 bytes."""
        made = hmac.new(self._key, salt, "sha256") if self._key else hashlib.sha256(salt)
        made.update(payload)
        return made.digest()

    def link(self, head: bytes, *, seq: int, epoch: int, kind: str, digest: bytes) -> bytes:
        """The link that follows `head`; 32 bytes."""
        name = kind.encode()
        message = b"".join((head, _NUMBERS.pack(seq, epoch, len(name)), name, digest))
        if self._key is None:
            return hashlib.sha256(message).digest()
        return hmac.digest(self._key, message, "sha256")
