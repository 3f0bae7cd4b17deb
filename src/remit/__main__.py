"""`python -m remit` is `remit`."""

from __future__ import annotations

from remit.cli.__main__ import main

if __name__ == "__main__":
    main()
