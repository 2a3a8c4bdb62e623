"""Prices of models: $BUTLERS_HOME/prices.toml, which the owner may edit."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from butlers.config.document import Document
from butlers.config.files import make_private_folder, write_once
from butlers.config.settings import Settings
from butlers.config.values import ConfigTable
from butlers.domain.session import Usage

PRICES_FILE = "prices.toml"
MILLION = Decimal(1_000_000)
_RELEASE = re.compile(r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-\d{3}|-latest)?")

_FIRST_TEXT = """\
# Prices of models in US dollars per million tokens, written by the first start. Correct them as needed.
# "cached" is the price of tokens read from a cache, "written" of tokens written to one; the default of both
# is the input price. A name here also covers releases of that model: "claude-opus-4-5" covers
# "claude-opus-4-5-20251101", but "claude-opus-4" does not. For a model that is not listed, the cost is the
# one its CLI reports, or unknown: then only its tokens are counted.

dated = 2026-11-16

[models]
claude-opus-5-5 = { input = 4.00, cached = 0.20, written = 5.00, output = 20.00 }
claude-opus-5 = { input = 5.00, cached = 0.50, written = 6.25, output = 25.00 }
claude-opus-4-8 = { input = 5.00, cached = 0.50, written = 6.25, output = 25.00 }
claude-opus-4-7 = { input = 5.00, cached = 0.50, written = 6.25, output = 25.00 }
claude-opus-4-6 = { input = 5.00, cached = 0.50, written = 6.25, output = 25.00 }
claude-opus-4-5 = { input = 5.00, cached = 0.50, written = 6.25, output = 25.00 }
claude-opus-4-1 = { input = 15.00, cached = 1.50, written = 18.75, output = 75.00 }
claude-opus-4-0 = { input = 15.00, cached = 1.50, written = 18.75, output = 75.00 }
claude-opus-4 = { input = 15.00, cached = 1.50, written = 18.75, output = 75.00 }
claude-sonnet-5-5 = { input = 2.00, cached = 0.10, written = 2.50, output = 10.00 }
claude-sonnet-5 = { input = 2.00, cached = 0.20, written = 2.50, output = 10.00 }
claude-sonnet-4-6 = { input = 3.00, cached = 0.30, written = 3.75, output = 15.00 }
claude-sonnet-4-5 = { input = 3.00, cached = 0.30, written = 3.75, output = 15.00 }
claude-sonnet-4-0 = { input = 3.00, cached = 0.30, written = 3.75, output = 15.00 }
claude-sonnet-4 = { input = 3.00, cached = 0.30, written = 3.75, output = 15.00 }
claude-haiku-5-5 = { input = 0.10, cached = 0.01, written = 0.125, output = 0.50 }
claude-haiku-4-5 = { input = 1.00, cached = 0.10, written = 1.25, output = 5.00 }
gpt-6-astra = { input = 10.00, cached = 1.00, output = 50.00 }
"gpt-6.1-sol" = { input = 2.00, cached = 0.10, output = 10.00 }
gpt-6-sol = { input = 2.00, cached = 0.20, written = 2.50, output = 10.00 }
gpt-6-luna = { input = 0.10, cached = 0.01, written = 0.125, output = 0.50 }
"gpt-5.6-sol" = { input = 4.00, cached = 0.40, output = 20.00 }
"gpt-5.6-terra" = { input = 2.00, cached = 0.20, output = 12.00 }
"gpt-5.6-luna" = { input = 0.20, cached = 0.02, output = 1.20 }
gpt-5 = { input = 1.25, cached = 0.125, output = 10.00 }
gpt-5-mini = { input = 0.25, cached = 0.025, output = 2.00 }
"gemini-2.5-pro" = { input = 1.25, cached = 0.125, output = 10.00 }
"gemini-2.5-flash" = { input = 0.30, cached = 0.03, output = 2.50 }
"gemini-2.5-flash-lite" = { input = 0.10, cached = 0.01, output = 0.40 }

# Aliases of Claude Code for its newest models. These prices are used to reserve the budget of a session; its
# final cost uses the model that the session reports.
opus = { input = 5.00, cached = 0.50, written = 6.25, output = 25.00 }
sonnet = { input = 3.00, cached = 0.30, written = 3.75, output = 15.00 }
haiku = { input = 1.00, cached = 0.10, written = 1.25, output = 5.00 }
"""

Dollars = Annotated[Decimal, Field(ge=0)]


class Price(ConfigTable):
    """Prices per million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None  # None: as input
    written: Dollars | None = None  # None: as input

    def of(self, usage: Usage) -> Decimal | None:
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached, written = usage.cached_tokens or 0, usage.written_tokens
        fresh = max(0, usage.input_tokens - cached - written)
        from_cache = self.input if self.cached is None else self.cached
        into_cache = self.input if self.written is None else self.written
        given = fresh * self.input + cached * from_cache + written * into_cache
        return (given + usage.output_tokens * self.output) / MILLION


class PriceTable(ConfigTable):
    dated: date
    models: Annotated[dict[str, Price], Field(default_factory=dict)]

    def cost(self, model: str | None, usage: Usage) -> Decimal | None:
        """Return the cost, or None if the model or its usage is unknown."""
        names = [name for name in self.models if model is not None and _is_of(model, name)]
        return self.models[max(names, key=len)].of(usage) if names else None


def _is_of(model: str, name: str) -> bool:
    """Return whether the model is this name or a dated release of it."""
    return model.startswith(name) and _RELEASE.fullmatch(model[len(name) :]) is not None


def load_prices(settings: Settings) -> PriceTable:
    path = settings.home / PRICES_FILE
    if not path.exists():
        make_private_folder(path.parent)
        write_once(path, _FIRST_TEXT.encode())
    document = Document.read(path, settings.environ, missing_hint="`butlers up` writes it")
    return document.validate(PriceTable)
