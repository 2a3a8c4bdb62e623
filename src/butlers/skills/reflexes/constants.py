"""The arguments of a file: JSON-able constants, and templates where a text has placeholders."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from typing import Any

from butlers.skills.reflexes.report import Spot
from butlers.skills.reflexes.templates import TemplateError, parse_template

_MAX_DEPTH = 8
_MAX_BITS = 64


def read_constant(value: Any, spot: Spot) -> Any:
    """The value as JSON can carry it; None, and a problem reported, if it can not."""
    if len(spot.path) > len(("reflex", 0, "arguments")) + _MAX_DEPTH:
        spot.error("reflex-value", "nested too deeply")
        return None
    match value:
        case str():
            return _read_text(value, spot)
        case dict():
            return {key: read_constant(item, spot.under(key)) for key, item in value.items()}
        case list():
            return [read_constant(item, spot.under(index)) for index, item in enumerate(value)]
        case datetime() | date() | time():
            return value.isoformat()
    if not _fits_json(value):
        spot.error("reflex-value", "this number does not fit JSON")
        return None
    return value


def _read_text(text: str, spot: Spot) -> Any:
    try:
        template = parse_template(text)
    except TemplateError as error:
        spot.error("reflex-template", str(error))
        return None
    return template if template.placeholders else "".join(map(str, template.parts))


def _fits_json(value: float) -> bool:
    if isinstance(value, int):
        return value.bit_length() < _MAX_BITS
    return math.isfinite(value)
