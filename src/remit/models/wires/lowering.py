"""Schemas in the dialect of a wire, without a change of meaning.

    open              as it stands: only the root has to be a plain object
    inlined           the same without references
    strict            OpenAI's grammar: every object closed, every member required, what is optional may be null
    anthropic-strict  Anthropic's grammar: every object closed, members may be optional

Pure. A lowered schema admits what the original admits, and more where the dialect has no words; that is told to
the model in words, and the original is still what a call is checked against when it is dispatched (case 17). What
can neither be said nor told without changing what a call may hold, such as a free map under strict, cannot be
lowered (case 20). Two things follow from the strict grammars, and only there: an object that lists its members and
says nothing of others is closed, and on the way back a null is taken out where a member is optional and may not
be null.

Equal schemas give equal bytes, in whatever order a server lists their keys (case 53): required members come first,
in the order in which `required` names them, for models read and write in that order; then the optional ones by
name.

    schema_source.py     reads and checks;  root_union.py  composed roots as plain objects
    schema_writer.py     the open targets;  strict_grammars.py  the strict ones
    optional_nulls.py    the way back from a grammar in which every member is required
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from remit.models.wires.schema_source import CannotLower, Source
from remit.models.wires.schema_writer import Dialect, InlinedWriter, Lowered, SchemaWriter
from remit.models.wires.strict_grammars import StrictWriter

__all__ = ["CannotLower", "Dialect", "Lowered", "lower"]

_WRITERS: Final[Mapping[str, type[SchemaWriter]]] = {
    "open": SchemaWriter,
    "inlined": InlinedWriter,
    "strict": StrictWriter,
    "anthropic-strict": StrictWriter,
}


def lower(schema: Mapping[str, Any], dialect: Dialect) -> Lowered:
    """The schema in this dialect. Errors: `CannotLower`."""
    try:
        source = Source(schema)
        writer = _WRITERS[dialect.target](source, dialect)
        return writer.lowered()
    except RecursionError:
        raise CannotLower("its schema is composed without end") from None
