"""A disk that is slow to flush: in a process under `slow_disk`, `fsync` and `fdatasync` wait first, and are counted.

A few lines of C, compiled when they are needed, stand before the C library of that process (`LD_PRELOAD`). Everything
else about it is real: its files, its threads, and the flush after the wait. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["compiler", "flushes", "slow_disk"]

_SOURCE: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_long flushes, held;

long slow_disk_flushes(void) { return flushes; }
long slow_disk_held(void) { return held; }

static int slowly(const char *name, int fd) {
    long us = atol(getenv("SLOW_DISK_US"));
    struct timespec wait = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&wait, NULL);
    flushes++;
    held += gettid() == getpid();
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}

int fsync(int fd) { return slowly("fsync", fd); }
int fdatasync(int fd) { return slowly("fdatasync", fd); }
"""


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return shutil.which("cc")


def slow_disk(folder: Path, seconds: float) -> dict[str, str]:
    """The environment of a process to whom each flush takes `seconds` longer. Errors: `RuntimeError` without a compiler."""
    cc = compiler()
    if cc is None:
        raise RuntimeError("there is no C compiler here: install gcc")
    source, library = folder / "slow_disk.c", folder / "slow_disk.so"
    source.write_text(_SOURCE)
    subprocess.run([cc, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)  # noqa: S603 - our own words
    return {**os.environ, "LD_PRELOAD": str(library), "SLOW_DISK_US": str(round(seconds * 1e6))}


def flushes() -> tuple[int, int]:
    """How often this process has flushed, and how often its main thread. Errors: `AttributeError` outside `slow_disk`."""
    shim = ctypes.CDLL(None)
    return int(shim.slow_disk_flushes()), int(shim.slow_disk_held())
