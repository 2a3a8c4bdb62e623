"""Numbers as people write them, with either decimal mark and any thousands mark."""

from __future__ import annotations

from decimal import Decimal

from butlers.skills.reflexes.converted import Converted
from butlers.skills.reflexes.patterns import CompiledTrigger, compile_trigger
from butlers.skills.reflexes.speech import say_number

MAX_DIGITS = 30

_TIDY = str.maketrans({"−": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'"})

# (shape, thousands mark, decimal mark); the first that fits decides.
Shape = tuple[CompiledTrigger, str, str]


def _shape(pattern: str, thousands: str, decimal: str) -> Shape:
    return compile_trigger(r"[+-]?" + pattern), thousands, decimal


_DOT_THOUSANDS = _shape(r"[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?", ".", ",")
_NUMBER: tuple[Shape, ...] = (
    _shape(r"\d+", "", "."),
    _shape(r"\d*\.\d+", "", "."),
    _shape(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", ",", "."),
    _shape(r"\d*,\d+", "", ","),
    _DOT_THOUSANDS,
    _shape(r"[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?", " ", "."),
    _shape(r"[1-9]\d{0,2}(?: \d{3})+,\d+", " ", ","),
    _shape(r"[1-9]\d{0,2}(?:'\d{3})+(?:\.\d+)?", "'", "."),
)
# Where three decimals make no sense, "10.000" can only be ten thousand.
_COARSE: tuple[Shape, ...] = (_DOT_THOUSANDS, *_NUMBER)


def read_decimal(text: str, *, coarse: bool = False) -> Decimal | None:
    """The number, exactly and with the decimals as written."""
    tidy = text.strip().translate(_TIDY)
    for shape, thousands, mark in _COARSE if coarse else _NUMBER:
        if shape.matches(tidy):
            plain = tidy.replace(thousands, "") if thousands else tidy
            return _bounded(Decimal(plain.replace(mark, ".")))
    return None


def number(text: str) -> Converted | None:
    exact = read_decimal(text)
    if exact is None:
        return None
    if exact == exact.to_integral_value():
        return Converted(int(exact), str(int(exact)))
    plain = f"{exact:f}".rstrip("0")
    near = float(plain)
    value = near if Decimal(repr(near)) == exact else plain
    return Converted(value, say_number(Decimal(plain)))


def integer(text: str) -> Converted | None:
    exact = read_decimal(text, coarse=True)
    if exact is None or exact != exact.to_integral_value():
        return None
    return Converted(int(exact), str(int(exact)))


def _bounded(exact: Decimal) -> Decimal | None:
    return exact if len(exact.as_tuple().digits) <= MAX_DIGITS else None
