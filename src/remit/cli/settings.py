"""Settings of the command line: files and environment, each value with where it comes from.

    remit.toml        found upwards from where the command is called
    pyproject.toml    the same, its table [tool.remit]
    config.toml       the user's own, in ~/.config/remit or $XDG_CONFIG_HOME/remit
    REMIT_RUN_STEPS   the environment, one variable for each key of [run]
    REMIT_STORE       the same for `store`, which says where runs are kept

What stands nearer wins: a flag, then the environment, remit.toml, pyproject.toml, the user's file, and last
what is built in. A file is data: it starts no program and names no key, and what a profile points to is
imported only when somebody names that profile. A file that came with a project does not say where a key is
sent either: as base_url it may name this machine, and nothing else; nor does it make a listed model cheaper, which
would make a limit in dollars weaker. These are defaults of the command line, never of the library, which has none.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from remit.errors import ConfigurationError

if TYPE_CHECKING:
    from remit.models.base import Price

__all__ = [
    "BUILT_IN",
    "LIMITS",
    "Profile",
    "Setting",
    "Settings",
    "checked",
    "here",
    "home_of",
    "read_settings",
    "state_folder",
]

FILE: Final = "remit.toml"
_OWN: Final = "config.toml"
_PREFIX: Final = "REMIT_RUN_"
_STORE: Final = "REMIT_STORE"

BUILT_IN: Final[Mapping[str, Any]] = {"steps": 12, "tokens": 100_000, "seconds": 300.0}
"""What a run on the command line may use where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value, and where it comes from."""

    value: Any
    origin: str
    """A file as the user would name it, a variable of the environment, or `built in`."""
    base: Path | None = None
    """Directory of the file it stands in; paths in it begin there."""
    of_project: bool = False
    """The file came with a project: it is not the user's own."""


@dataclass(frozen=True, slots=True)
class Profile:
    """`[remits.NAME]`: a remit to be named on the command line."""

    name: str
    target: Setting
    run: Mapping[str, Setting]
    """What it changes of the remit: limits, model, its address, instructions."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is set, nearest first where several say it."""

    run: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    profiles: Mapping[str, Profile] = field(default_factory=dict[str, Profile])
    prices: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """`[prices."NAME"]`: a `Price` by the name of a model, in place of the listed one."""
    store: Setting | None = None
    """Where runs are kept. None where nobody says it, and the user has no home for it."""

    def items(self) -> Iterator[tuple[str, Setting]]:
        """Every value under its full name, as it stands in a file."""
        if self.store is not None:
            yield "store", self.store
        for key, setting in self.run.items():
            yield f"run.{key}", setting
        for profile in self.profiles.values():
            yield f"remits.{profile.name}.target", profile.target
            for key, setting in profile.run.items():
                yield f"remits.{profile.name}.{key}", setting
        for name, setting in self.prices.items():
            for key, rate in _rates(setting.value):
                yield f"prices.{_quoted(name)}.{key}", Setting(rate, setting.origin, setting.base)


# --- values --------------------------------------------------------------------------------------


def _whole(value: object) -> int:
    number = int(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        raise ValueError
    return number


def _seconds(value: object) -> float:
    number = float(_number(value))
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def _money(value: object) -> Decimal:
    amount = _number(value)
    if not amount.is_finite() or amount <= 0:
        raise ValueError
    return amount


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError
    return Decimal(str(value) if isinstance(value, float) else value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value


def _instructions(value: object) -> str:
    text = _text(value)
    if text.startswith("@"):
        raise ValueError  # a file that came with a project is not to pick a file that is sent away
    return text


def _rate(value: object) -> Decimal:
    rate = _number(value)
    if not rate.is_finite() or rate < 0:
        raise ValueError
    return rate


def _address(value: object) -> str:
    text = _text(value)
    if re.fullmatch(r"https?://[^\s/@]+(/\S*)?", text) is None:
        raise ValueError
    return text


_WHOLE: Final = (_whole, "a whole number above zero")
_KEYS: Final[Mapping[str, tuple[Callable[[object], Any], str]]] = {
    "model": (_text, "a name such as demo:support"),
    "base_url": (_address, "an address such as http://localhost:8000/v1"),
    "instructions": (_instructions, "the text itself (@FILE is for the command line alone)"),
    "steps": _WHOLE,
    "tokens": _WHOLE,
    "usd": (_money, "an amount of US dollars above zero, such as 0.25"),
    "calls": _WHOLE,
    "seconds": (_seconds, "a number of seconds above zero"),
}
"""The keys of [run], and of a profile beside its target."""

_THIS_MACHINE: Final = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/[\w./-]*)?")
_RATES: Final = ("input", "output", "cache_read", "cache_write")

LIMITS: Final = ("steps", "tokens", "usd", "calls", "seconds")
"""Those of them that are limits."""


def checked(key: str, value: object, where: str) -> Any:
    """A value of `[run]`, read. Errors: `ConfigurationError` that begins with where it stands."""
    read, expected = _KEYS[key]
    try:
        return read(value)
    except (ValueError, InvalidOperation, OverflowError):
        shown = value if isinstance(value, Decimal) else repr(value)
        raise ConfigurationError(f"{where}: {shown} is not {expected}") from None


# --- sources -------------------------------------------------------------------------------------


def here() -> Path:
    """Where the command is called. Errors: `ConfigurationError` for a directory that is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigurationError(
            f"the working directory cannot be read: {error.strerror or error}"
        ) from error


def read_settings(directory: Path, environ: Mapping[str, str]) -> Settings:
    """Everything that is set for a command called in `directory`, built-in limits included.

    Errors: `ConfigurationError` that names the file and the key.
    """
    layers = [_environment(environ)]
    layers += [_file(path) for path in _files(directory, environ)]
    built_in = {key: Setting(value, "built in") for key, value in BUILT_IN.items()}
    layers.append(_Layer(built_in, {}, store=_own_store(environ)))
    run: dict[str, Setting] = {}
    prices: dict[str, Setting] = {}
    remits: dict[str, dict[str, Setting]] = {}
    for layer in reversed(layers):
        run |= layer.run
        prices |= layer.prices
        for name, values in layer.remits.items():
            remits.setdefault(name, {}).update(values)
    return Settings(
        {key: run[key] for key in _KEYS if key in run},
        {name: _profile(name, values) for name, values in sorted(remits.items())},
        dict(sorted(prices.items())),
        next((layer.store for layer in layers if layer.store is not None), None),
    )


def _profile(name: str, values: Mapping[str, Setting]) -> Profile:
    if "target" not in values:
        origin = next(iter(values.values())).origin
        raise ConfigurationError(
            f'{origin}: [remits.{name}] has no target, such as target = "shop.py:{name}"'
        )
    run = {key: values[key] for key in _KEYS if key in values}
    return Profile(name, values["target"], run)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one source says."""

    run: Mapping[str, Setting]
    remits: Mapping[str, Mapping[str, Setting]]
    prices: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    store: Setting | None = None


def _files(directory: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """The files that are there, nearest first."""
    places = [directory, *directory.parents]
    for name in (FILE, "pyproject.toml"):
        yield from [place / name for place in places if _is_ours(place / name)][:1]
    configured, home = environ.get("XDG_CONFIG_HOME"), home_of(environ)
    folder = Path(configured) if configured else None if home is None else home / ".config"
    if folder is not None and (own := folder / "remit" / _OWN).is_file():
        yield own


def _is_ours(path: Path) -> bool:
    if path.name == FILE:
        return path.is_file()
    # Other tools' files are none of our business: they are read only where they speak of us.
    return path.is_file() and b"tool.remit" in _read(path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{_shown(path)}: {error.strerror or error}") from error


def _file(path: Path) -> _Layer:
    where, of_project = _shown(path), path.name != _OWN
    try:
        table = tomllib.loads(_read(path).decode(), parse_float=Decimal)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{where}: {error}") from error
    if path.name == "pyproject.toml":
        table = _table(table.get("tool", {}), where, "[tool]")
        table = _table(table.get("remit", {}), where, "[tool.remit]")
    _refuse_unknown(table, ("store", "run", "remits", "prices"), where, "")
    run = _table(table.get("run", {}), where, "[run]")
    remits = _table(table.get("remits", {}), where, "[remits]")
    prices = _table(table.get("prices", {}), where, "[prices]")
    layer = _Layer(
        _run(run, where, "run", path.parent),
        {
            name: _remit(_table(values, where, f"[remits.{name}]"), where, name, path.parent)
            for name, values in remits.items()
        },
        {
            name: Setting(
                _price(values, where, f"prices.{_quoted(name)}"), where, path.parent, of_project
            )
            for name, values in prices.items()
        },
        Setting(_store(table["store"], f"{where}: store"), where, path.parent, of_project)
        if "store" in table
        else None,
    )
    if of_project:
        _refuse_addresses(layer)
    return layer


def _refuse_addresses(layer: _Layer) -> None:
    """Where a request goes, the key goes: that is not for a file to say that came with a project."""
    for values in (layer.run, *layer.remits.values()):
        address = values.get("base_url")
        if address is not None and _THIS_MACHINE.fullmatch(address.value) is None:
            raise ConfigurationError(
                f"{address.origin}: base_url: {address.value!r} is not this machine. It decides where your key is "
                "sent, so a file of a project may not say it: use --base-url, REMIT_RUN_BASE_URL or "
                "~/.config/remit/config.toml"
            )


def _price(table: object, where: str, name: str) -> Price:
    """A price as it stands in a file, in US dollars for a million tokens."""
    from remit.models.base import Price

    table = _table(table, where, f"[{name}]")
    _refuse_unknown(table, (*_RATES, "above"), where, name)
    rates: dict[str, Decimal] = {}
    for key in _RATES:
        if key not in table:
            continue
        try:
            rates[key] = _rate(table[key])
        except (ValueError, InvalidOperation):
            raise ConfigurationError(
                f"{where}: {name}.{key}: {table[key]!r} is no price: US dollars for a million tokens, such as 0.25"
            ) from None
    if not {"input", "output"} <= rates.keys():
        raise ConfigurationError(f"{where}: [{name}] has no input or no output, such as input = 3")
    tiers = _table(table.get("above", {}), where, f"[{name}.above]")
    above: list[tuple[int, Price]] = []
    for tokens, tier in tiers.items():
        try:
            start = _whole(tokens.replace("_", ""))
        except ValueError:
            raise ConfigurationError(
                f"{where}: {name}.above: {tokens!r} is no number of tokens, such as 200000"
            ) from None
        above.append((start, _price(tier, where, f"{name}.above.{tokens}")))
    try:
        return Price(**rates, above=tuple(sorted(above, key=lambda tier: tier[0])))
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {name}: {error}") from error


def _rates(price: Price) -> Iterator[tuple[str, Decimal]]:
    """The values of a price as they stand in a file."""
    for key in _RATES:
        rate = getattr(price, key)
        if rate is not None:
            yield key, rate
    for tokens, tier in price.above:
        for key, rate in _rates(tier):
            yield f"above.{tokens}.{key}", rate


def _quoted(name: str) -> str:
    """A name as a key of TOML."""
    import json

    return json.dumps(name, ensure_ascii=False)


def _run(table: Mapping[str, Any], where: str, prefix: str, base: Path) -> dict[str, Setting]:
    _refuse_unknown(table, _KEYS, where, prefix)
    return {
        key: Setting(checked(key, value, f"{where}: {prefix}.{key}"), where, base)
        for key, value in table.items()
    }


def _remit(table: Mapping[str, Any], where: str, name: str, base: Path) -> dict[str, Setting]:
    prefix = f"remits.{name}"
    _refuse_unknown(table, ("target", *_KEYS), where, prefix)
    values = dict(table)
    target = values.pop("target", None)
    settings = _run(values, where, prefix, base)
    if target is not None:
        if not isinstance(target, str) or not target.strip() or "\0" in target:
            raise ConfigurationError(
                f'{where}: {prefix}.target: {target!r} is no target such as "shop.py:{name}"'
            )
        settings["target"] = Setting(target, where, base)
    return settings


def _environment(environ: Mapping[str, str]) -> _Layer:
    run: dict[str, Setting] = {}
    variables = {f"{_PREFIX}{key.upper()}": key for key in _KEYS}
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or not value:
            continue  # an empty one is as good as none
        if variable not in variables:
            raise ConfigurationError(
                f"the environment sets {variable}, which is no setting{_near(variable, variables)}"
            )
        key = variables[variable]
        run[key] = Setting(checked(key, value, variable), variable)
    named = environ.get(_STORE)
    return _Layer(run, {}, store=Setting(_store(named, _STORE), _STORE) if named else None)


def _store(value: object, where: str) -> str:
    """The name of a store. Errors: `ConfigurationError` that begins with where it stands."""
    from remit.store.names import KNOWN, file_named

    if not isinstance(value, str):
        raise ConfigurationError(f"{where}: {value!r} is no store such as {KNOWN[0]}")
    try:
        file_named(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return value


def _own_store(environ: Mapping[str, str]) -> Setting | None:
    """The file among what programs keep of the user."""
    folder = state_folder(environ)
    if folder is None:
        return None
    return Setting(f"sqlite:///{(folder / 'remit.db').as_posix()}", "built in")


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """Where commands keep what is the user's, by the conventions of the system; None without a home."""
    named, home = Path(environ.get("XDG_STATE_HOME") or ""), home_of(environ)
    if named.is_absolute():  # the convention: any other is none
        return named / "remit"
    return None if home is None else home / ".local" / "state" / "remit"


def home_of(environ: Mapping[str, str]) -> Path | None:
    """The home of the user; None where there is none, as in many a container."""
    home = Path(environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - `Path.home` raises where there is none
    return home if home.is_absolute() else None


def _table(value: object, where: str, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: {name} is a table, not {value!r}")
    return cast("dict[str, Any]", value)


def _refuse_unknown(
    table: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...], where: str, prefix: str
) -> None:
    for key in table:
        if key not in known:
            full = f"{prefix}.{key}" if prefix else key
            secret = "; the key of a provider is taken from the environment, never from a file"
            raise ConfigurationError(
                f"{where}: unknown key {full}{_near(key, known)}{secret if 'key' in key.lower() else ''}"
            )


def _near(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else f"; known are {', '.join(known)}"


def _shown(path: Path) -> str:
    """A path as the user would name it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # on another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative
