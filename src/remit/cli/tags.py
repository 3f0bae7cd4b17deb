"""Tags as flags give them, for the commands that set them and those that look for them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from remit.errors import ConfigurationError

__all__ = ["tagged"]


def tagged(tags: Sequence[str]) -> dict[str, str]:
    """Tags as flags give them. Errors: `ConfigurationError`."""
    found: dict[str, str] = {}
    for each in tags:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigurationError(
                f"--tag {json.dumps(each)}: a tag is KEY=VALUE, such as team=support"
            )
        if found.setdefault(name, value) != value:
            raise ConfigurationError(f"--tag {name}: no run has two values of one tag")
    return found
