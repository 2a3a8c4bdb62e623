"""Measurements, each as a ratio to a baseline taken in the same run: `python -m benchmarks [NAME]`."""

import sys
from pathlib import Path

# The fake model and the pinned CLIs are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
