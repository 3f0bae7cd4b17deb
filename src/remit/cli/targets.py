"""From what a user names to objects: `FILE[:NAME]` and `MODULE[:NAME]`.

A file of the user's is foreign code: the command line enters it here and nowhere else, and what goes wrong
in it is told by the user's own line, without a stack of ours. What it prints is `streams.own_stdout`'s care.
Errors: `ConfigurationError` everywhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import operator
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias, TypeVar, cast

from remit.errors import ConfigurationError
from remit.remit import Remit
from remit.render import error_words
from remit.tools import Tool, flattened

__all__ = [
    "AnyRemit",
    "AnyTool",
    "absolute",
    "function_of",
    "remit_of",
    "tools_of",
    "tools_or_remit_of",
]

AnyTool: TypeAlias = Tool[..., Any]
AnyRemit: TypeAlias = Remit[Any, Any]
T = TypeVar("T")

_OURS: Final = str(Path(__file__).resolve().parent.parent) + os.sep
_PYTHON: Final = str(Path(sysconfig.get_path("stdlib")).resolve()) + os.sep


def tools_of(target: str, base: Path) -> list[AnyTool]:
    """The tools of a module in the order of their definition, or the ones that are named.

    `base` is the directory in which paths begin.
    """
    named = _Named.parse(target)
    module = _load(named.place, base)
    if named.name is None:
        return _tools_in(module, named.place)
    found = _attribute(module, named, "tool", _holds_tools)
    if _is(found, Remit):
        raise ConfigurationError(f"{target} is a remit: name it with --remit")
    if _is(found, FunctionType):
        raise ConfigurationError(
            f"{target} is a plain function: decorate it with @remit.tool(effect=...)"
        )
    if not _holds_tools(found):
        raise ConfigurationError(f"{target} is neither a tool nor a list of tools")
    try:
        return list(flattened([found]))
    except ConfigurationError as error:
        raise ConfigurationError(f"{target}: {error}") from error


def remit_of(target: str, base: Path) -> AnyRemit:
    """The only remit of a module, or the one that is named."""
    named = _Named.parse(target)
    module = _load(named.place, base)
    remits = _remits_in(module)
    if named.name is None:
        if len(remits) == 1:
            return next(iter(remits.values()))
        if not remits:
            raise ConfigurationError(
                f"{named.place} holds no remit: {named.place}:NAME = Remit(...)"
            )
        raise ConfigurationError(
            f"{named.place} holds {len(remits)} remits: name one, as in "
            + " or ".join(f"{named.place}:{name}" for name in remits)
        )
    found = _attribute(module, named, "remit", lambda value: _is(value, Remit))
    if not _is(found, Remit):
        raise ConfigurationError(f"{target} is no remit but {_kind(found)}")
    return cast("AnyRemit", found)


def tools_or_remit_of(target: str, base: Path) -> list[AnyTool] | AnyRemit:
    """What a target is: a remit if it names one or holds just one, else its tools."""
    named = _Named.parse(target)
    module = _load(named.place, base)
    remits = _remits_in(module)
    if named.name in remits:
        return remits[named.name]
    if named.name is None and len(remits) == 1:
        return next(iter(remits.values()))
    return tools_of(target, base)


def function_of(target: str, base: Path) -> Callable[..., Any]:
    """The function that is named."""
    named = _Named.parse(target)
    if named.name is None:
        raise ConfigurationError(f"{target}: name the function too, as in {target}:decide")
    found = _attribute(_load(named.place, base), named, "function", callable)
    if not callable(found):
        raise ConfigurationError(f"{target} is no function but {_kind(found)}")
    return found


def absolute(target: str, base: Path) -> str:
    """The same target, to be found from anywhere; what is no file stays as it is. Nothing is loaded."""
    named = _Named.parse(target)
    if not _is_file(named.place):
        return target
    path = _path(named.place, base)
    return str(path) if named.name is None else f"{path}:{named.name}"


@dataclass(frozen=True, slots=True)
class _Named:
    """A target, taken apart."""

    place: str
    """A file or a module."""
    name: str | None

    @classmethod
    def parse(cls, target: str) -> _Named:
        place, colon, name = target.rpartition(":")
        if not colon or "/" in name or os.sep in name:
            place, name = target, ""
        if not place or (colon and not name and target.endswith(":")):
            raise ConfigurationError(
                f"{target!r} is no target: write FILE.py, FILE.py:NAME, MODULE or MODULE:NAME"
            )
        return cls(place, name or None)


# --- what a module holds -------------------------------------------------------------------------


def _tools_in(module: ModuleType, place: str) -> list[AnyTool]:
    tools: list[AnyTool] = []
    for value in _public(module).values():
        if _is(value, Tool) and value not in tools:
            tools.append(cast("AnyTool", value))
    if tools:
        return tools
    functions = [
        name
        for name, value in _public(module).items()
        if _is(value, FunctionType) and value.__module__ == module.__name__
    ]
    if functions:
        raise ConfigurationError(
            f"{place} holds no tool, only plain functions ({', '.join(functions[:5])}): decorate "
            "them with @remit.tool(effect=...)"
        )
    hint = f"; it holds a remit: name it with --remit {place}" if _remits_in(module) else ""
    raise ConfigurationError(f"{place} holds no tool{hint}")


def _remits_in(module: ModuleType) -> dict[str, AnyRemit]:
    """By name; one of two names counts once."""
    found: dict[int, tuple[str, AnyRemit]] = {}
    for name, value in _public(module).items():
        if _is(value, Remit):
            found.setdefault(id(value), (name, cast("AnyRemit", value)))
    return dict(found.values())


def _public(module: ModuleType) -> dict[str, object]:
    """What a module offers; to ask a lazy one is to enter it."""

    def offered() -> dict[str, object]:
        listed: Sequence[object] = getattr(module, "__all__", ())
        names = [name for name in listed if isinstance(name, str)] or [
            name for name in vars(module) if not name.startswith("_")
        ]
        return {name: getattr(module, name) for name in names if hasattr(module, name)}

    return _entered(module.__name__, offered)


def _is(value: object, kind: type) -> bool:
    """Whether it is of that type, without asking the value: a stand-in for something else runs code at that."""
    return issubclass(type(value), kind)


def _holds_tools(value: object) -> bool:
    return issubclass(type(value), Tool | list | tuple)


def _attribute(
    module: ModuleType, named: _Named, kind: str, suits: Callable[[object], bool]
) -> object:
    """What is named, attributes of attributes included."""
    name = cast("str", named.name)
    try:
        return _entered(named.place, lambda: operator.attrgetter(name)(module))
    except ConfigurationError as error:
        if not isinstance(error.__cause__, AttributeError):
            raise
        suitable = [name for name, each in _public(module).items() if suits(each)]
        raise ConfigurationError(
            f"{named.place} holds no {name}{_near(name, suitable, kind)}"
        ) from error


def _near(name: str, names: Sequence[str], kind: str) -> str:
    if close := _close(name, names):
        return close
    return f"; its {kind}s are {', '.join(names[:8])}" if names else f", nor any {kind}"


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"a{'n' if name[0] in 'aeiou' else ''} {name}"


# --- loading -------------------------------------------------------------------------------------


def _load(place: str, base: Path) -> ModuleType:
    """Import a file or a module, once."""
    if _is_file(place):
        return _load_file(place, base)
    if not all(part.isidentifier() for part in place.split(".")):
        raise ConfigurationError(f"{place!r} is neither a file with its .py nor a module")
    _make_visible(base)
    try:
        return _entered(place, lambda: importlib.import_module(place))
    except ConfigurationError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{place}.".startswith(f"{cause.name}."):
            near = _close(place, [each.stem for each in base.glob("*.py")])
            hint = near or "; a file is named with its .py"
            raise ConfigurationError(f"there is no module {place}{hint}") from cause
        raise


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or os.sep in place


def _path(place: str, base: Path) -> Path:
    try:
        return (base / Path(place).expanduser()).resolve()
    except (OSError, RuntimeError) as error:  # a home of nobody, links in a circle
        raise ConfigurationError(f"{place}: {error}") from error


def _load_file(place: str, base: Path) -> ModuleType:
    path = _path(place, base)
    if not path.is_file():
        near = _close(path.name, [each.name for each in path.parent.glob("*.py")])
        raise ConfigurationError(f"there is no file {place}{near}")
    for module in tuple(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return module
    root, name = _dotted(path)
    package = name.rpartition(".")[0]
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"_target_{path.stem}"  # whoever imports that name means the other one
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{place} is no Python file")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    _make_visible(root)

    def load() -> ModuleType:
        if package:
            importlib.import_module(package)
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except BaseException:  # cleaned up and raised again
            del sys.modules[name]
            raise
        return module

    return _entered(place, load)


def _dotted(path: Path) -> tuple[Path, str]:
    """The directory from which a file is imported, and its name there: a package is one as a whole."""
    root, parts = path.parent, [path.stem.replace(".", "_")]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _make_visible(directory: Path) -> None:
    """Have siblings of a target importable, as they are for a script; also to what is imported later."""
    entry = str(directory)
    if entry not in sys.path:
        sys.path.insert(0, entry)


def _entered(place: str, enter: Callable[[], T]) -> T:
    """Enter code of the user's."""
    try:
        return enter()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # A file of the user's: that it ends the program is an error of it like any other.
        raise _told(error, place) from error


def _close(name: str, names: Sequence[str]) -> str:
    """A question that names what comes nearest; empty where nothing does."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


# --- what went wrong in a file of the user's -----------------------------------------------------


def _told(error: BaseException, place: str) -> ConfigurationError:
    """The error, at the user's own line."""
    where, source = _own_line(error, place)
    what = error_words(error)
    if isinstance(error, SystemExit):
        what += (
            ' (it ends the program when it is imported: put that under if __name__ == "__main__")'
        )
    elif isinstance(error, ConfigurationError):
        what = str(error)  # ours, and in words already
    elif isinstance(error, SyntaxError):
        what = f"{type(error).__name__}: {error.msg}"
    return ConfigurationError(f"{where}: {what}" + (f"\n    {source}" if source else ""))


def _own_line(error: BaseException, place: str) -> tuple[str, str]:
    """Where it stands, as `FILE:LINE`, and the text of that line."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_shown(error.filename)}:{error.lineno}", (error.text or "").strip()
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    theirs = [frame for frame in frames if not _is_foreign(frame[0])]
    if not theirs:
        return place, ""
    filename, line = theirs[-1]
    return f"{_shown(filename)}:{line}", linecache.getline(filename, line).strip()


def _is_foreign(filename: str) -> bool:
    """Whether it is code of remit, of Python or of a library, and not the user's."""
    path = filename if filename.startswith("<") else str(Path(filename).resolve())
    return path.startswith(("<", _OURS, _PYTHON)) or "site-packages" in Path(path).parts


def _shown(filename: str) -> str:
    try:
        relative = os.path.relpath(filename)
    except ValueError:  # on another drive
        return filename
    return filename if relative.startswith("..") else relative
