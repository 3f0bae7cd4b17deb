"""The public surface: what `import remit` offers, and what it costs."""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import remit

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(remit.__path__, "remit.")
    if not module.name.endswith("__main__")
]


def test_everything_that_the_package_offers_is_listed_and_there() -> None:
    assert [name for name in remit.__all__ if not hasattr(remit, name)] == []
    offered = {
        name
        for name, value in vars(remit).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert offered - {"annotations", "TYPE_CHECKING", "Any"} == set(remit.__all__)
    assert set(remit.__all__) <= set(dir(remit))


def test_nothing_is_loaded_before_it_is_used() -> None:
    """The version and a tab completion are answered without the loop."""
    script = (
        "import sys, remit; print(*[name for name in sys.modules if name.startswith('remit.')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_what_a_module_lists_is_there_and_listed_once(module: ModuleType) -> None:
    listed: list[str] = list(getattr(module, "__all__", []))
    assert [name for name in listed if not hasattr(module, name)] == []
    assert len(listed) == len(set(listed))


def test_every_name_that_the_readme_uses_is_offered() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert blocks
    code = "\n".join(blocks)
    names = set(re.findall(r"\bremit\.(\w+)", code))
    for imported in re.findall(r"^from remit import (.+)$", code, re.MULTILINE):
        names |= {name.strip() for name in imported.split(",")}
    assert [name for name in sorted(names) if not hasattr(remit, name)] == []


def test_importing_remit_loads_no_transport_no_database_and_no_test_kit() -> None:
    """An import costs every user, so what only some of them need is loaded when it is used."""
    script = "import sys, remit; remit.Remit; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    unwanted = {"aiohttp", "httpx", "hypothesis", "pytest", "remit.testing", "rich", "sqlite3"}
    assert unwanted & set(loaded) == set()
