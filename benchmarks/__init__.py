"""Benchmarks: ratios to a baseline of the same run. Run `python -m benchmarks [NAME]`."""

import sys
from pathlib import Path

# The tests provide the fake model and the pinned CLIs.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
