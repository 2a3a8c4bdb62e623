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
_NUMBERED = re.compile(r"([-@]\d+)*")

_FIRST_TEXT = """\
# What models cost, in US dollars per million tokens. Written by the first start; yours to correct.
# A model is found by its name, or by one here that only numbers follow ("claude-sonnet-4" stands for
# "claude-sonnet-4-5-20250929"). The cost of one that is not here is unknown: it is shown as such, and
# counts against the token budget only.

dated = 2026-11-01

[models.claude-opus-4]
input = 15.00
cached = 1.50
output = 75.00

[models.claude-sonnet-4]
input = 3.00
cached = 0.30
output = 15.00

[models.claude-haiku-4]
input = 1.00
cached = 0.10
output = 5.00

[models.gpt-5]
input = 1.25
cached = 0.125
output = 10.00

[models.gpt-5-mini]
input = 0.25
cached = 0.025
output = 2.00

[models."gemini-2.5-pro"]
input = 1.25
cached = 0.125
output = 10.00

[models."gemini-2.5-flash"]
input = 0.30
cached = 0.03
output = 2.50
"""

Dollars = Annotated[Decimal, Field(ge=0)]


class Price(Section):
    """Of a million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None  # None: a token from a cache costs what any other does

    def of(self, usage: Usage) -> Decimal | None:
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached = usage.cached_tokens or 0
        fresh = max(0, usage.input_tokens - cached)
        from_cache = self.input if self.cached is None else self.cached
        total = fresh * self.input + cached * from_cache + usage.output_tokens * self.output
        return total / MILLION


class PriceTable(Section):
    dated: date
    models: Annotated[dict[str, Price], Field(default_factory=dict)]

    def cost(self, model: str | None, usage: Usage) -> Decimal | None:
        """None: nobody knows. That is not the same as nothing."""
        names = [name for name in self.models if model is not None and _is_of(model, name)]
        return self.models[max(names, key=len)].of(usage) if names else None


def _is_of(model: str, name: str) -> bool:
    """The name itself, or with numbers and dates behind it: "gpt-5-pro" is another than "gpt-5"."""
    return model.startswith(name) and _NUMBERED.fullmatch(model[len(name) :]) is not None


def load_prices(settings: Settings) -> PriceTable:
    path = settings.home / PRICES_FILE
    if not path.exists():
        make_private_folder(path.parent)
        write_once(path, _FIRST_TEXT.encode())
    document = Document.read(path, settings.environ, missing_hint="`butlers up` writes it")
    return document.validate(PriceTable)
