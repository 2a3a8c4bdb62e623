"""What models cost, from $BUTLERS_HOME/prices.toml: dated, and the owner's to correct."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from butlers.config.document import Document
from butlers.config.files import make_private_folder, write_once
from butlers.config.settings import Settings
from butlers.config.values import Section
from butlers.domain.session import Usage

PRICES_FILE = "prices.toml"
MILLION = Decimal(1_000_000)
_RELEASE = re.compile(r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-\d{3}|-latest)?")

_FIRST_TEXT = """\
# What models cost, in US dollars per million tokens. Written by the first start; yours to correct.
# "cached" are tokens that came from a cache, "written" those that were put into one; without them such
# tokens cost what any other input does. A model is found by its name, or by one here with a release behind
# it ("claude-opus-4-5" stands for "claude-opus-4-5-20251101", and "claude-opus-4" does not). The cost of one
# that is not here is what its CLI says, or unknown: then it is shown as such, and counts in tokens only.

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
claude-haiku-4-5 = { input = 1.00, cached = 0.10, written = 1.25, output = 5.00 }
gpt-5 = { input = 1.25, cached = 0.125, output = 10.00 }
gpt-5-mini = { input = 0.25, cached = 0.025, output = 2.00 }
"gemini-2.5-pro" = { input = 1.25, cached = 0.125, output = 10.00 }
"gemini-2.5-flash" = { input = 0.30, cached = 0.03, output = 2.50 }

# Names by which Claude Code takes its newest of a kind. What a session costs goes by the model that it then
# names; this is for what is set aside before it begins.
opus = { input = 5.00, cached = 0.50, written = 6.25, output = 25.00 }
sonnet = { input = 3.00, cached = 0.30, written = 3.75, output = 15.00 }
haiku = { input = 1.00, cached = 0.10, written = 1.25, output = 5.00 }
"""

Dollars = Annotated[Decimal, Field(ge=0)]


class Price(Section):
    """Of a million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None  # None: a token from a cache costs what any other does
    written: Dollars | None = None  # None: and so does one that is put into it

    def of(self, usage: Usage) -> Decimal | None:
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached, written = usage.cached_tokens or 0, usage.written_tokens
        fresh = max(0, usage.input_tokens - cached - written)
        from_cache = self.input if self.cached is None else self.cached
        into_cache = self.input if self.written is None else self.written
        given = fresh * self.input + cached * from_cache + written * into_cache
        return (given + usage.output_tokens * self.output) / MILLION


class PriceTable(Section):
    dated: date
    models: Annotated[dict[str, Price], Field(default_factory=dict)]

    def cost(self, model: str | None, usage: Usage) -> Decimal | None:
        """None: nobody knows. That is not the same as nothing."""
        names = [name for name in self.models if model is not None and _is_of(model, name)]
        return self.models[max(names, key=len)].of(usage) if names else None


def _is_of(model: str, name: str) -> bool:
    """The name itself, or a release of it. Another number is another model, with a price of its own."""
    return model.startswith(name) and _RELEASE.fullmatch(model[len(name) :]) is not None


def load_prices(settings: Settings) -> PriceTable:
    path = settings.home / PRICES_FILE
    if not path.exists():
        make_private_folder(path.parent)
        write_once(path, _FIRST_TEXT.encode())
    document = Document.read(path, settings.environ, missing_hint="`butlers up` writes it")
    return document.validate(PriceTable)
