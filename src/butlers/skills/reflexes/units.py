"""Units of measurement, one spelling for each."""

from __future__ import annotations

from butlers.skills.reflexes.converted import Converted

# canonical spelling: what else people write, in any case
_ALIASES = {
    "kg": "kgs kilo kilos kilogram kilograms kilogramme kilogrammes",
    "g": "gr gram grams gramme grammes",
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
    "°C": "c °c celsius degc",
    "°F": "f °f fahrenheit degf",
    "mmHg": "",
    "bpm": "beats/min",
    "mg/dL": "mgdl",
    "mmol/L": "mmol",
    "kcal": "kcals cal cals calorie calories kilocalorie kilocalories",
    "kJ": "kilojoule kilojoules",
    "ml": "milliliter milliliters millilitre millilitres",
    "cl": "centiliter centiliters centilitre centilitres",
    "l": "liter liters litre litres",
    "s": "sec secs second seconds",
    "min": "mins minute minutes",
    "h": "hr hrs hour hours",
    "d": "day days",
    "steps": "step",
    "reps": "rep",
    "IU": "",
    "%": "percent pct",
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
