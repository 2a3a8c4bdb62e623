"""Read a script's arguments and write its answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


class Refused(Exception):
    """The script cannot do what was asked; the message becomes the answer's error."""


def main(tool: Callable[[dict[str, Any]], Any]) -> None:
    try:
        outcome = {"success": True, "result": tool(_arguments())}
    except Refused as error:
        outcome = {"success": False, "error": str(error)}
    except OSError as error:
        outcome = {"success": False, "error": error.strerror or str(error)}
    sys.stdout.write(json.dumps(outcome))
    sys.exit(0 if outcome["success"] else 1)


def _arguments() -> dict[str, Any]:
    word = sys.argv[1] if len(sys.argv) > 1 else "-"
    try:
        arguments = json.loads(sys.stdin.read() if word == "-" else word)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the arguments are not valid JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise Refused("the arguments are not an object")
    return arguments
