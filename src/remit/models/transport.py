"""How requests are carried: a protocol that any HTTP client can fill. The one that is used is `http.py`.

A transport knows nothing of models: bytes out, bytes in. It retries nothing and follows no redirect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

__all__ = ["HttpRequest", "HttpResponse", "Transport"]


class HttpRequest(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    url: str
    """Absolute."""
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        """Without what is in the headers, which is the key, and in the body."""
        names = ", ".join(self.headers)
        return f"HttpRequest({self.method} {self.url}, headers: {names}, {len(self.body):,} bytes)"


class HttpResponse(Protocol):
    """A response whose head has come."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, decoded. Errors: `ModelUnavailable` where it breaks off."""
        ...


class Transport(Protocol):
    """Sends requests. Its connections belong to the running event loop; it is shared by all runs of a model."""

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """Send it, and hand out the response until the block is left, which closes or keeps the connection.

        Errors: `ModelUnavailable` where no answer came, with `usage=Usage()` if nothing was sent;
        `ModelRejected` where another try cannot help, such as a certificate that does not hold.
        """
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep connections open while the block lasts. It may be entered several times, from several loops."""
        ...
