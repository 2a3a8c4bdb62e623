"""A pinned third-party package in its own venv outside the clone."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 600


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def python(self) -> Path | None:
        """Return its venv's interpreter, installed on first use, or None if that fails."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "butlers-bench" / f"{self.name}-{self.version}"
        python = folder / "bin" / "python"
        if not (folder / "installed").exists():
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            pins = [f"{self.name}=={self.version}", *self.needs]
            try:
                for step in ([sys.executable, "-m", "venv", str(folder)], [*pip, *pins]):
                    subprocess.run(step, check=True, capture_output=True, timeout=PATIENCE_S)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"{self.name}: {error}", file=sys.stderr)
                return None
            (folder / "installed").touch()
        return python
