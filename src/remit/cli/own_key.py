"""A key of the user's own, by which a command knows again what another command of this user wrote down.

A store may come with a project that was cloned a moment ago, and what is recorded in it may be anybody's words. What
this user's commands recorded bears a seal that nobody else can make. The key says nothing to anybody else, and stands in a
file of its own among what programs keep of the user.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from remit.cli.settings import state_folder
from remit.store.sqlite.place import PRIVATE_FILE, private_folder

__all__ = ["is_sealed", "sealed"]

_KEY_BYTES: Final = 32


def sealed(text: str) -> str:
    """The seal of this user over a text, in hex; empty where there is no place to keep a key."""
    key = _key(make=True)
    return "" if key is None else hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_sealed(text: str, seal: str) -> bool:
    """Whether this user wrote the text down."""
    key = _key(make=False)
    if key is None or not seal:
        return False
    right = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(right.encode(), seal.encode())


def _key(*, make: bool) -> bytes | None:
    folder = state_folder(os.environ)
    if folder is None:
        return None
    path = folder / "key"
    try:
        return path.read_bytes() or None
    except FileNotFoundError:
        return _made(path) if make else None
    except OSError:
        return None


def _made(path: Path) -> bytes | None:
    """A new key, whole before it has its name; of two commands that make one at once, the first one's."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        private_folder(path.parent)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(part, path)
        except FileExistsError:
            pass
        finally:
            part.unlink()
        return path.read_bytes()
    except OSError:
        return None
