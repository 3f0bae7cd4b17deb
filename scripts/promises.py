"""The manifest of promises, the tests that name them and the mutants that attack them, as values.

Reads text only: nothing of remit, nothing of the tests is imported. `mutants.py` beside it runs the
mutants; `tests/test_manifest.py` holds the three against each other. A test names promises at the
beginning of its docstring: `C2, case 14: ...`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "Promise", "Test", "read_manifest", "read_mutants", "read_tests"]

_ID = r"(?:[A-Z]\d+|case \d\d)"
_OPENING = re.compile(r"((?:[A-Z]\d+|cases? ?\d+)\b[^:\n]*):")
"""Wider than the ids: what is written wrongly then shows up as a promise that nobody made."""
_HEADER = re.compile(r"# (\w+): (.*)")
_HEADERS = {"promise", "tests", "says", "timeout"}


@dataclass(frozen=True, slots=True)
class Promise:
    """A line of the manifest."""

    id: str
    """`C2` for a promise of the design, `case 14` for a fault that must not come back."""
    says: str
    source: str
    """Who requires it: a provider's protocol, a reported fault or remit's own rule."""

    @property
    def is_case(self) -> bool:
        """Whether it is a fault from the field, which needs a test but no mutant of its own."""
        return self.id.startswith("case ")


@dataclass(frozen=True, slots=True)
class Test:
    """A test function and what its docstring says it is for."""

    __test__ = False
    """Says to pytest that this is no test class."""

    path: str
    """Of its file, from the root of the repository, with forward slashes."""
    name: str
    """As pytest selects it, `test_x` or `TestClass::test_x`."""
    promises: tuple[str, ...]
    """Empty where the docstring names none."""

    @property
    def id(self) -> str:
        return f"{self.path}::{self.name}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch that breaks one promise."""

    name: str
    promise: str
    says: str
    """The sabotage, in one sentence."""
    tests: tuple[str, ...]
    """Files, or tests of the form `tests/test_x.py::test_y`, or one case of a test: `...::test_y[case]`."""
    may_hang: bool
    """Whether running out of time counts as noticed."""
    path: Path


def read_manifest(path: Path) -> tuple[Promise, ...]:
    """The promises in the order of the file. Errors: `ValueError` for a bad or repeated id."""
    with path.open("rb") as file:
        entries = tomllib.load(file)["promise"]
    promises = tuple(Promise(**entry) for entry in entries)
    for promise in promises:
        if not re.fullmatch(_ID, promise.id):
            raise ValueError(f"{path}: {promise.id!r} is neither like `C2` nor like `case 07`")
    ids = [promise.id for promise in promises]
    if repeated := {name for name in ids if ids.count(name) > 1}:
        raise ValueError(f"{path}: stated twice: {sorted(repeated)}")
    return promises


def read_tests(root: Path) -> tuple[Test, ...]:
    """Every test function below `tests/`, by file and then in the order of the file."""
    return tuple(
        Test(path.relative_to(root).as_posix(), name, _named(function))
        for path in sorted((root / "tests").rglob("test_*.py"))
        for name, function in _functions(ast.parse(path.read_bytes()))
    )


def read_mutants(directory: Path) -> tuple[Mutant, ...]:
    """Every mutant, by name. Errors: `ValueError` for a header that is unknown, missing or twice."""
    return tuple(_mutant(path) for path in sorted(directory.glob("*.patch")))


def _functions(
    module: ast.Module,
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test"):
                yield node.name, node
            case ast.ClassDef() if node.name.startswith("Test"):
                for method in node.body:
                    if isinstance(
                        method, ast.FunctionDef | ast.AsyncFunctionDef
                    ) and method.name.startswith("test"):
                        yield f"{node.name}::{method.name}", method
            case _:
                pass


def _named(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    found = _OPENING.match(ast.get_docstring(function) or "")
    return tuple(found[1].split(", ")) if found else ()


def _mutant(path: Path) -> Mutant:
    header: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _HEADER.fullmatch(line)
        if not found:
            break
        if found[1] not in _HEADERS or found[1] in header:
            raise ValueError(f"{path}: header {found[1]!r} is unknown or stands there twice")
        header[found[1]] = found[2].strip()
    if missing := _HEADERS - {"timeout"} - header.keys():
        raise ValueError(f"{path}: no header {sorted(missing)}")
    if header.get("timeout", "ok") != "ok":
        raise ValueError(f"{path}: the only thing to say about a timeout is `ok`")
    return Mutant(
        name=path.stem,
        promise=header["promise"],
        says=header["says"],
        tests=tuple(header["tests"].split()),
        may_hang="timeout" in header,
        path=path,
    )
