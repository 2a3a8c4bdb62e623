"""Amounts of money: the digits as written, and an ISO 4217 currency."""

from __future__ import annotations

from decimal import Decimal

from butlers.skills.reflexes.converted import Converted, GroupRule
from butlers.skills.reflexes.numbers import read_decimal
from butlers.skills.reflexes.patterns import compile_trigger


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
# Words that several currencies share mean the house's own one where it is among them.
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


def _amount(text: str, currency: str) -> Decimal | None:
    minor = 0 if currency in _NO_MINOR else 3 if currency in _THREE_MINOR else 2
    if minor == 3 and _AMBIGUOUS.matches(text):
        return None
    amount = read_decimal(text, coarse=True)
    if amount is None or -int(amount.as_tuple().exponent) > minor:
        return None
    return amount
