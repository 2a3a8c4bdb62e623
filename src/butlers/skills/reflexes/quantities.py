"""Convert numbers, amounts of money and units of measurement."""

from __future__ import annotations

from decimal import Decimal

from butlers.skills.reflexes.patterns import CompiledTrigger, compile_trigger
from butlers.skills.reflexes.values import Converted, GroupRule, format_number

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
    """Return the exact number with its decimals as written, or None."""
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
    return Converted(value, format_number(Decimal(plain)))


def integer(text: str) -> Converted | None:
    exact = read_decimal(text, coarse=True)
    if exact is None or exact != exact.to_integral_value():
        return None
    return Converted(int(exact), str(int(exact)))


def _bounded(exact: Decimal) -> Decimal | None:
    return exact if len(exact.as_tuple().digits) <= MAX_DIGITS else None


def _codes(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


CURRENCIES = _codes(
    """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD
    BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN
    ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD
    IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD
    MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD
    OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP
    SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD
    UYU UZS VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG
    """
)
_NO_MINOR = _codes("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF")
_THREE_MINOR = _codes("BHD IQD JOD KWD LYD OMR TND")

_NAMES = {
    "EUR": "€ euro euros",
    "USD": "$ us$ dollar dollars buck bucks",
    "GBP": "£ pound pounds quid",
    "JPY": "¥ yen",
    "INR": "₹ rs rupee rupees",
    "CHF": "fr franken francs",
    "KRW": "₩ won",
    "ILS": "₪ shekel shekels",
    "TRY": "₺ lira",
    "UAH": "₴ hryvnia",
    "VND": "₫ dong",
    "PLN": "zł zloty złoty",
    "CZK": "kč",
    "BRL": "r$ real reais",
    "AUD": "a$",
    "CAD": "c$",
    "NZD": "nz$",
}
_CODES = {name: code for code, names in _NAMES.items() for name in names.split()}
# A word that several currencies share means the default currency if it is among them.
_SHARED = {
    "$": _codes("USD AUD CAD NZD SGD HKD MXN ARS CLP COP TWD"),
    "dollar": _codes("USD AUD CAD NZD SGD HKD TWD"),
    "dollars": _codes("USD AUD CAD NZD SGD HKD TWD"),
    "¥": frozenset(("JPY", "CNY")),
    "kr": frozenset(("SEK", "NOK", "DKK", "ISK")),
}

_MONEY = compile_trigger(
    r"(?P<sign>[+\-−]?)\s*(?P<before>[^\d\s.,+\-−]*)\s*"
    r"(?P<amount>\d(?:[\d.,'’ \x{a0}\x{202f}]*\d)?)\s*(?P<after>[^\d\s.,]*)"
)
_AMBIGUOUS = compile_trigger(r"[1-9]\d{0,2}[.,]\d{3}")


def money(text: str, rule: GroupRule) -> Converted | None:
    found = _MONEY.match(text)
    if found is None:
        return None
    currency = _currency(found["before"] or "", found["after"] or "", rule.default_currency)
    amount = _amount(found["amount"] or "", currency) if currency else None
    if amount is None:
        return None
    value = {
        "amount": f"{-amount if found['sign'] in ('-', '−') else amount:f}",
        "currency": currency,
    }
    return Converted(value, f"{value['amount']} {currency}", value)


def _currency(before: str, after: str, default: str | None) -> str | None:
    named = {_code(name, default) for name in (before, after) if name}
    if not named:
        return default
    return named.pop() if len(named) == 1 else None


def _code(name: str, default: str | None) -> str | None:
    folded = name.casefold()
    if default in _SHARED.get(folded, ()):
        return default
    return name.upper() if name.upper() in CURRENCIES else _CODES.get(folded)


def minor_digits(currency: str) -> int:
    """Return the number of decimals that amounts of the currency have."""
    return 0 if currency in _NO_MINOR else 3 if currency in _THREE_MINOR else 2


def _amount(text: str, currency: str) -> Decimal | None:
    minor = minor_digits(currency)
    if minor == 3 and _AMBIGUOUS.matches(text):
        return None
    amount = read_decimal(text, coarse=True)
    if amount is None or -int(amount.as_tuple().exponent) > minor:
        return None
    return amount


# canonical spelling: what else people write, in any case
_ALIASES = {
    "kg": "kgs kilo kilos kilogram kilograms kilogramm kilogramme kilogrammes",
    "g": "gr gram grams gramm gramme grammes",
    "mg": "milligram milligrams",
    "µg": "μg ug mcg microgram micrograms",
    "lb": "lbs pound pounds",
    "oz": "ounce ounces",
    "st": "stone stones",
    "mm": "millimeter millimeters millimetre millimetres",
    "cm": "centimeter centimeters centimetre centimetres",
    "m": "meter meters metre metres",
    "km": "kms kilometer kilometers kilometre kilometres",
    "mi": "mile miles",
    "in": 'inch inches " ″',
    "ft": "foot feet ' ′",
    "yd": "yard yards",
    "°C": "c °c celsius degc grad",
    "°F": "f °f fahrenheit degf",
    "mmHg": "",
    "bpm": "beats/min",
    "mg/dL": "mgdl",
    "mmol/L": "mmol",
    "kcal": "kcals cal cals calorie calories kilocalorie kilocalories kalorie kalorien",
    "kJ": "kilojoule kilojoules",
    "ml": "milliliter milliliters millilitre millilitres",
    "cl": "centiliter centiliters centilitre centilitres",
    "l": "liter liters litre litres",
    "s": "sec secs second seconds sek sekunde sekunden",
    "min": "mins minute minutes minuten",
    "h": "hr hrs hour hours std stunde stunden",
    "d": "day days tag tage",
    "steps": "step schritt schritte",
    "reps": "rep",
    "IU": "",
    "%": "percent pct prozent",
}

_CANONICAL = {
    alias.casefold(): canonical
    for canonical, aliases in _ALIASES.items()
    for alias in (canonical, *aliases.split())
}


def unit(text: str) -> Converted | None:
    written = "".join(text.split()).casefold()
    canonical = _CANONICAL.get(written) or _CANONICAL.get(written.removesuffix("."))
    return None if canonical is None else Converted(canonical, canonical)
