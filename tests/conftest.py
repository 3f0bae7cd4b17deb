"""What all tests share: how hard hypothesis tries, that no deadline of its own is kept, the command line.

Profiles, chosen by `HYPOTHESIS_PROFILE` (else `ci` where `CI` is set, else `default`):
`default` looks for new examples in every run, `ci` repeats the same ones, `quick` a few of them,
`mutants` the same ones as `ci` without the search for the smallest.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from collections.abc import Generator

    from cli_rig import Cli

for _name in ("http_proxy", "https_proxy", "all_proxy"):
    # The way to a registry is no way to servers of this machine; what is tested of proxies sets its own.
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)

settings.register_profile(
    "default",
    deadline=None,  # wall clock on a noisy machine says nothing about remit
    suppress_health_check=[HealthCheck.too_slow],  # the same
)
settings.register_profile(
    "ci", settings.get_profile("default"), derandomize=True, database=None, print_blob=True
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.register_profile(
    "mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)

if "PYTEST_XDIST_WORKER" in os.environ:  # it claims a terminal of a certain size
    os.environ.pop("COLUMNS", None)
    os.environ.pop("LINES", None)


@pytest.fixture(autouse=True, scope="session")
def _no_home_of_a_person(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """What a test keeps at home is nobody's: a command of whoever runs the tests must not find it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            patched.delenv(name, raising=False)
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are cores: a third of their time tests wait for servers, leases and terminals."""
    return (os.cpu_count() or 1) * 3 // 2


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process, in a directory of its own."""
    from cli_rig import Cli

    return Cli(tmp_path, monkeypatch, capsys)
