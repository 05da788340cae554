"""Settings for every test."""

from __future__ import annotations

import os

# As the command sets it: tests share the processor with each other and with what they start.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
