"""Kinds of measurement: their names, units with exact conversion, and the range of plausible values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction

from butlers.domain.errors import InvalidArguments

MAX_NAME = 64
_POUND = Fraction(45359237, 100_000_000)  # in kg, by definition


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit as ``standard = value * factor + offset``."""

    factor: Fraction
    offset: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class MeasureType:
    name: str
    unit: str  # the standard unit, in which statistics are computed
    low: Fraction
    high: Fraction
    scales: Mapping[str, Scale]
    aliases: tuple[str, ...] = ()
    decimals: int = 1
    is_pair: bool = False
    adds_up: bool = False  # values of one day are added, as with steps

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    def standard(self, value: Decimal, unit: str) -> Decimal:
        """Return the value in the standard unit."""
        return convert(value, self.scales[unit], self.scales[self.unit])

    def shown(self, standard: Decimal, unit: str) -> Decimal:
        """Return a value of the standard unit in another unit, rounded for a person."""
        return rounded(convert(standard, self.scales[self.unit], self.scales[unit]), self.decimals)

    def difference(self, standard: Decimal, unit: str) -> Decimal:
        """Return a difference of two values in another unit: an offset does not apply to it."""
        ratio = Fraction(standard) * self.scales[self.unit].factor / self.scales[unit].factor
        return to_decimal(ratio)


def convert(value: Decimal, source: Scale, target: Scale) -> Decimal:
    standard = Fraction(value) * source.factor + source.offset
    return to_decimal((standard - target.offset) / target.factor)


def to_decimal(exact: Fraction) -> Decimal:
    """Return the fraction with twelve decimals, which loses nothing that a person measures."""
    number = Decimal(round(exact * 10**12)).scaleb(-12)
    return plain(number)


def rounded(value: Decimal, decimals: int) -> Decimal:
    return plain(round(value, decimals))


def plain(number: Decimal) -> Decimal:
    """Return the number without trailing zeros, exponent and negative zero: 80.4, 80, 0."""
    short = number.normalize() + 0
    return short.quantize(Decimal(1)) if int(short.as_tuple().exponent) > 0 else short


def _scales(listed: str) -> dict[str, Scale]:
    """Read ``unit factor [offset]``, separated by commas; factors are exact fractions."""
    found = {}
    for entry in listed.split(","):
        unit, factor, *offset = entry.split()
        over, _, under = factor.partition("/")
        found[unit] = Scale(
            Fraction(over) / Fraction(under or 1), Fraction(offset[0]) if offset else Fraction(0)
        )
    return found


_MASS = f"kg 1, g 1/1000, lb {_POUND}, st {14 * _POUND}, oz {_POUND / 16}"
_LENGTH = "cm 1, m 100, mm 1/10, in 2.54, ft 30.48"
_PERCENT = "% 1"


def _type(
    name: str, scales: str, usual: str, aliases: str = "", decimals: int = 1, **flags: bool
) -> MeasureType:
    low, high = usual.split()
    table = _scales(scales)
    names = tuple(alias.strip().replace(" ", "_") for alias in aliases.split(",") if alias.strip())
    return MeasureType(
        name, next(iter(table)), Fraction(low), Fraction(high), table, names, decimals, **flags
    )


# The range is what a living person may have. A value outside it is asked back.
TYPES = (
    _type("weight", _MASS, "1 400", "body weight, gewicht, körpergewicht"),
    _type("height", _LENGTH, "30 250", "body height, größe, körpergröße"),
    _type("waist", _LENGTH, "30 250", "waist circumference, taille, bauchumfang, taillenumfang"),
    _type("hips", _LENGTH, "40 250", "hip, hüfte, hüftumfang"),
    _type("body_fat", _PERCENT, "2 70", "fat, body fat percentage, körperfett"),
    _type(
        "temperature",
        "°C 1, °F 5/9 -160/9",
        "33 43",
        "temp, fever, body temperature, temperatur, fieber",
    ),
    _type(
        "blood_pressure",
        "mmHg 1, kPa 7.50061683",
        "30 280",
        "bp, pressure, blutdruck, rr",
        0,
        is_pair=True,
    ),
    _type(
        "pulse",
        "bpm 1",
        "25 240",
        "heart rate, resting heart rate, puls, herzfrequenz, ruhepuls",
        0,
    ),
    _type("oxygen_saturation", _PERCENT, "60 100", "spo2, oxygen, sauerstoffsättigung, sauerstoff"),
    _type("respiratory_rate", "/min 1", "4 60", "breathing rate, atemfrequenz", 0),
    _type("heart_rate_variability", "ms 1", "1 300", "hrv", 0),
    _type(
        "glucose",
        "mmol/L 1, mg/dL 1/18.0156",
        "1 40",
        "blood sugar, blood glucose, sugar, blutzucker, zucker",
    ),
    _type("hba1c", "% 1, mmol/mol 0.09148 2.152", "3 20", "a1c, langzeitzucker"),
    _type("cholesterol", "mmol/L 1, mg/dL 1/38.67", "1 20", "total cholesterol, cholesterin", 2),
    _type("ldl", "mmol/L 1, mg/dL 1/38.67", "0.2 15", "ldl cholesterol, ldl cholesterin", 2),
    _type("hdl", "mmol/L 1, mg/dL 1/38.67", "0.1 6", "hdl cholesterol, hdl cholesterin", 2),
    _type("triglycerides", "mmol/L 1, mg/dL 1/88.57", "0.1 60", "triglyzeride, triglyceride", 2),
    _type("creatinine", "µmol/L 1, mg/dL 88.42", "10 2000", "kreatinin", 2),
    _type("sleep", "h 1, min 1/60", "0 24", "sleep hours, sleep duration, schlaf", 2),
    _type("steps", "steps 1", "0 150000", "step count, schritte", 0, adds_up=True),
    _type("distance", "km 1, m 1/1000, mi 1.609344", "0 400", "distanz, strecke", 2, adds_up=True),
    _type(
        "water",
        "ml 1, cl 10, l 1000, oz 29.5735295625",
        "0 15000",
        "fluids, water intake, wasser",
        0,
        adds_up=True,
    ),
    _type(
        "exercise", "min 1, h 60", "0 1440", "workout, training, activity, sport", 0, adds_up=True
    ),
    _type(
        "energy_burned",
        "kcal 1, kJ 1/4.184",
        "0 15000",
        "active energy, calories burned, kalorienverbrauch",
        0,
        adds_up=True,
    ),
    _type("peak_flow", "l/min 1", "30 900", "peak flow rate", 0),
    _type("vo2max", "ml/kg/min 1", "8 100", "vo2 max"),
    _type("mood", "/10 1", "0 10", "stimmung, laune", 0),
)
_BY_NAME = {name: kind for kind in TYPES for name in (kind.name, *kind.aliases)}
_SPELLINGS = {unit.casefold(): unit for kind in TYPES for unit in kind.scales} | {
    alias: unit
    for unit, aliases in {
        "kg": "kgs kilo kilos kilogram kilograms kilogramm",
        "g": "gram grams gramm",
        "lb": "lbs pound pounds pfund",
        "st": "stone stones",
        "°C": "c celsius degc grad",
        "°F": "f fahrenheit degf",
        "cm": "centimeter centimeters centimetre centimetres zentimeter",
        "m": "meter meters metre metres",
        "in": "inch inches zoll",
        "ft": "foot feet",
        "mmol/L": "mmol",
        "mg/dL": "mgdl mg",
        "h": "hr hrs hour hours std stunde stunden",
        "min": "mins minute minutes minuten",
        "ml": "milliliter milliliters millilitre millilitres",
        "l": "liter liters litre litres",
        "km": "kilometer kilometers kilometre kilometres",
        "mi": "mile miles meilen",
        "bpm": "beats/min schläge",
        "steps": "step schritte",
        "%": "percent pct prozent",
        "µmol/L": "umol/l μmol/l",
    }.items()
    for alias in aliases.split()
}


def type_name(written: str) -> str:
    """Return the stored name of a type: "Heart Rate" and "Puls" are "pulse".

    Raises InvalidArguments for an empty name, and for one that looks like a misspelled known type.
    """
    name = "_".join(written.casefold().replace("-", " ").replace("_", " ").split())
    if not name or len(name) > MAX_NAME:
        raise InvalidArguments(f"a type has 1 to {MAX_NAME} characters", hint='write "weight"')
    if name in _BY_NAME:
        return _BY_NAME[name].name
    near = get_close_matches(name, _BY_NAME, n=1, cutoff=0.8)
    if near:
        raise InvalidArguments(
            f"{written!r} is not a known type", hint=f"did you mean {_BY_NAME[near[0]].name!r}?"
        )
    return name


def find_type(name: str) -> MeasureType | None:
    """Return the known type of this stored name; None for a type of the person's own."""
    return _BY_NAME.get(name)


def unit_of(kind: MeasureType, written: str) -> str:
    """Return the unit in its one spelling. Raises InvalidArguments for a unit of something else."""
    unit = _SPELLINGS.get("".join(written.split()).casefold().removesuffix("."))
    if unit == "mg/dL" and "mg/dL" not in kind.scales:
        unit = None
    if unit is None or unit not in kind.scales:
        raise InvalidArguments(
            f"{written!r} is not a unit of {kind.title}",
            hint=f"use one of {', '.join(kind.scales)}",
        )
    return unit


def is_plausible(kind: MeasureType, standard: Decimal) -> bool:
    return kind.low <= Fraction(standard) <= kind.high


def usual_range(kind: MeasureType, unit: str) -> str:
    low, high = (kind.shown(to_decimal(limit), unit) for limit in (kind.low, kind.high))
    return f"{low} to {high} {unit}"
