"""What a model keeps open while it is used: connections, mostly.

Any model may offer `opened()`, an async context manager that is entered for every run that asks it, and for
`async with remit`; it may be entered many times, from several event loops. One that has nothing to keep open
offers none. `check_ready()` is another part that it may offer: whether it has what it needs, such as a key. That
is asked before a run begins, so that a remit can be made, looked at and tested where no key is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext

from remit.log import LOGGER
from remit.models.base import Model

__all__ = ["check_ready", "opened"]


def check_ready(model: Model) -> None:
    """Whether a model can be asked as things are; nothing is sent. Errors: `ConfigurationError` where it cannot."""
    check = getattr(model, "check_ready", None)
    if callable(check):
        check()


def opened(model: Model) -> AbstractAsyncContextManager[None]:
    """Keep open what a model keeps open, while the block lasts.

    Errors: none but cancellation. A model that cannot be opened is asked all the same: its requests tell what
    is wrong, where a run can end for it.
    """
    return _opened(model) if callable(getattr(model, "opened", None)) else nullcontext()


@asynccontextmanager
async def _opened(model: Model) -> AsyncGenerator[None]:
    stack = AsyncExitStack()
    try:
        await stack.enter_async_context(model.opened())  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType] - asked for just above
    except Exception:  # foreign code is entered here; the requests will tell what is wrong
        LOGGER.exception("model %s cannot be opened", model.name)
    try:
        yield
    finally:
        try:
            await stack.aclose()
        except Exception:  # the same; no outcome is lost over a connection that does not close
            LOGGER.exception("model %s cannot be closed", model.name)
