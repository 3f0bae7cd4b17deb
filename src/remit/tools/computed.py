"""What a parameter can be marked as: filled by the host (`Computed`), or shown to nobody (`Secret`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.errors import ConfigurationError
from remit.tools.schema import SECRET_MARK

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

__all__ = ["Computed", "ComputedParameter", "Secret"]


class Secret:
    """Marks what people are not shown: `Annotated[str, remit.Secret]`, for a parameter or a field in one.

    The model fills it and the function gets it, as any other. Where a call is shown to people it is `"***"`: in the
    summary and the arguments of a `Pending`, in events and in what a wrapper logs. It stands in the transcript as the
    model wrote it, and an approval binds its true value. For what the model is not to know, see `Computed`.
    In a schema of your own write `"writeOnly": true`.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The mark, in the schema that remit keeps. Called by pydantic, wherever the annotation stands."""
        return {**handler(core_schema), SECRET_MARK: True}


@dataclass(frozen=True, slots=True)
class Computed:
    """Marks a parameter that the host fills: `Annotated[date, remit.Computed(date.today)]`.

    The model never sees it, and naming it is refused as any unknown name. It is evaluated once for a
    call and kept in the journal, so that a resumed call gets the same value.
    """

    fn: Callable[..., Any]
    """Takes nothing, or the `Call`; sync (then quick, it runs on the event loop) or async."""
    secret: bool = False
    """True: not written to the journal, any object is allowed, and a resumed call evaluates it anew."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for what is no function."""
        if not callable(self.fn):
            raise ConfigurationError(
                f"Computed({self.fn!r}) computes nothing: it takes a function of nothing or of the Call"
            )


@dataclass(frozen=True, slots=True)
class ComputedParameter:
    """One parameter that the host fills."""

    name: str
    fn: Callable[..., Any]
    takes_call: bool
    is_async: bool
    secret: bool
    adapter: TypeAdapter[Any] | None
    """Between the Python value and its JSON form; None for a secret, which has none."""

    def to_json(self, value: Any) -> Any:
        """The form of the journal. Errors: `ValueError` for a value of the wrong type."""
        if self.adapter is None:
            return value
        return self.adapter.dump_python(self.adapter.validate_python(value), mode="json")

    def from_json(self, value: Any) -> Any:
        """What the function receives."""
        return value if self.adapter is None else self.adapter.validate_python(value)
