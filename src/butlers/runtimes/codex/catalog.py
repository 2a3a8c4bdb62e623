"""The models that Codex knows, with the butler's tools put straight into their hands.

For a model of its catalogue Codex hides MCP tools behind a search or behind JavaScript that the model has to
write, adds a patch tool and a team of agents, and speaks a dialect of the Responses API of its own. A
butler's session needs none of it: the catalogue that we hand it says so. A model that it does not know gets
plain tools anyway.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 10.0
PLAIN = {
    "supports_search_tool": False,
    "tool_mode": "direct",
    "use_responses_lite": False,
    "multi_agent_version": None,
    "experimental_supported_tools": [],
    # The session's own prompt takes their place, and they are most of the catalogue's size.
    "base_instructions": "",
    "model_messages": None,
}
SEALED = {"apply_patch_tool_type": None}


@dataclass(frozen=True, slots=True)
class Catalog:
    """Empty when the CLI did not tell: then it goes by its own."""

    models: tuple[Mapping[str, Any], ...] = ()

    @property
    def default(self) -> str | None:
        """The model that is taken when none is named: the first in rank of those that are shown."""
        shown = [model for model in self.models if model.get("visibility") == "list"]
        if not shown:
            return None
        return str(min(shown, key=lambda model: model.get("priority", 0)).get("slug"))

    def as_json(self, *, sealed: bool) -> str:
        changes = {**PLAIN, **(SEALED if sealed else {})}
        return json.dumps({"models": [{**model, **changes} for model in self.models]})


def bundled(executable: Path, patience_s: float = PATIENCE_S) -> Catalog:
    """What the program carries with it; nothing is fetched."""
    with tempfile.TemporaryDirectory(prefix="butlers-codex-") as home:
        try:
            said = subprocess.run(
                [executable, "debug", "models", "--bundled"],
                env={"HOME": home, "CODEX_HOME": home},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=patience_s,
                check=True,
            ).stdout
            models = tuple(model for model in json.loads(said)["models"] if type(model) is dict)
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
            return Catalog()
    return Catalog(models)
