"""The loggers of remit: silent until the application that uses it configures logging.

They stand here and not in the package itself, so that what logs nothing does not load `logging`.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["LOGGER", "TOOL_LOGGER"]

LOGGER: Final = logging.getLogger("remit")
"""What an operator should know."""
LOGGER.addHandler(logging.NullHandler())

TOOL_LOGGER: Final = logging.getLogger("remit.tool")
"""What tools say, each record with its call."""
