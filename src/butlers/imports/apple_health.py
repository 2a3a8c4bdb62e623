"""Apple Health exports: a large XML file, read in pieces, without entities, in bounded memory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from butlers.imports.model import FileReading, ImportUnreadable, Row, Skipped, content_key

PIECE = 64 * 1024
_TYPES = {
    "HKQuantityTypeIdentifierBodyMass": "weight",
    "HKQuantityTypeIdentifierHeight": "height",
    "HKQuantityTypeIdentifierWaistCircumference": "waist",
    "HKQuantityTypeIdentifierBodyFatPercentage": "body_fat",
    "HKQuantityTypeIdentifierBodyTemperature": "temperature",
    "HKQuantityTypeIdentifierRestingHeartRate": "pulse",
    "HKQuantityTypeIdentifierOxygenSaturation": "oxygen_saturation",
    "HKQuantityTypeIdentifierRespiratoryRate": "respiratory_rate",
    "HKQuantityTypeIdentifierHeartRateVariabilitySDNN": "heart_rate_variability",
    "HKQuantityTypeIdentifierBloodGlucose": "blood_glucose",
    "HKQuantityTypeIdentifierStepCount": "steps",
    "HKQuantityTypeIdentifierDistanceWalkingRunning": "distance",
    "HKQuantityTypeIdentifierVO2Max": "vo2max",
}
_SYSTOLIC = "HKQuantityTypeIdentifierBloodPressureSystolic"
_DIASTOLIC = "HKQuantityTypeIdentifierBloodPressureDiastolic"
_PRESSURE = "HKCorrelationTypeIdentifierBloodPressure"
_SLEEP = "HKCategoryTypeIdentifierSleepAnalysis"
_UNITS = {
    "degC": "°C",
    "degF": "°F",
    "count": "steps",
    "count/min": "/min",
    "mmol<180.1558800000541>/L": "mmol/L",
    "mg/dL": "mg/dL",
    "mL/min·kg": "ml/kg/min",
}
_PERCENT = ("body_fat", "oxygen_saturation")


def read_apple_health(path: Path) -> FileReading | None:
    """Return the reading of export.zip or export.xml, or None if the file is neither."""
    with _opened(path) as stream:
        if stream is None or b"<HealthData" not in stream.read(PIECE):
            return None
    return FileReading(
        "Apple Health export",
        "health",
        "health_import",
        "measurements",
        lambda skipped: _rows(path, skipped),
        trusted=True,
        notes=("single heart rate samples are left out; the resting pulse is kept",),
    )


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes] | None]:
    """Open the XML file, also inside a zip archive."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as plain:
            yield plain
        return
    with zipfile.ZipFile(path) as archive:
        inside = [
            i for i in archive.infolist() if i.filename.endswith(("export.xml", "Export.xml"))
        ]
        if not inside:
            yield None
            return
        with archive.open(inside[0]) as packed:
            yield packed


def _rows(path: Path, skipped: Skipped) -> Iterator[Row]:
    collector = _RecordCollector(skipped)
    parser = collector.parser()
    with _opened(path) as stream:
        if stream is None:
            raise ImportUnreadable("the archive has no export.xml")
        try:
            while piece := stream.read(PIECE):
                parser.Parse(piece, False)
                yield from collector.take()
            parser.Parse(b"", True)
        except (expat.ExpatError, zipfile.BadZipFile, EOFError) as error:
            raise ImportUnreadable(f"the export is damaged: {error}") from error
    yield from collector.take()


class _RecordCollector:
    """Turns elements into rows. Holds the rows of one piece only."""

    def __init__(self, skipped: Skipped) -> None:
        self._skipped = skipped
        self._found: list[Row] = []
        self._pressure: dict[str, dict[str, str]] | None = None

    def parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate()
        parser.EntityDeclHandler = _refuse_entity
        parser.ExternalEntityRefHandler = _refuse_entity
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        return parser

    def take(self) -> list[Row]:
        found, self._found = self._found, []
        return found

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Correlation" and attributes.get("type") == _PRESSURE:
            self._pressure = {}
        elif name == "Record":
            kind = attributes.get("type", "")
            if kind in (_SYSTOLIC, _DIASTOLIC):
                if self._pressure is not None:
                    self._pressure[kind] = attributes
            elif kind == _SLEEP:
                self._add(_sleep(attributes), "sleep")
            elif kind in _TYPES:
                self._add(_measurement(_TYPES[kind], attributes), kind)
            else:
                self._skipped.add("records of other types")

    def _end(self, name: str) -> None:
        if name == "Correlation" and self._pressure is not None:
            pair, self._pressure = self._pressure, None
            if pair.keys() == {_SYSTOLIC, _DIASTOLIC}:
                self._add(_pair(pair[_SYSTOLIC], pair[_DIASTOLIC]), "blood pressure")

    def _add(self, row: Row | None, kind: str) -> None:
        if row is None:
            self._skipped.add("records without a value")
        else:
            self._found.append(row)


def _refuse_entity(*_: Any) -> int:
    raise ImportUnreadable("the file declares XML entities", hint="export it again from the phone")


def _measurement(kind: str, attributes: dict[str, str]) -> Row | None:
    value, at = _number(attributes.get("value")), _time(attributes.get("endDate"))
    if value is None or at is None:
        return None
    unit = attributes.get("unit", "")
    if kind in _PERCENT and unit == "%" and value <= 1:
        value *= 100
    if kind == "pulse":
        unit = "bpm"
    return {
        "key": content_key("apple", kind, attributes.get("startDate"), at, value),
        "type": kind,
        "value": f"{value.normalize():f}",
        "unit": _UNITS.get(unit, unit),
        "at": at,
    }


def _pair(upper: dict[str, str], lower: dict[str, str]) -> Row | None:
    row, second = _measurement("blood_pressure", upper), _number(lower.get("value"))
    return None if row is None or second is None else {**row, "second": f"{second.normalize():f}"}


def _sleep(attributes: dict[str, str]) -> Row | None:
    """Return the time asleep. Time in bed or awake is no sleep."""
    start, end = _time(attributes.get("startDate")), _time(attributes.get("endDate"))
    if "Asleep" not in attributes.get("value", "") or start is None or end is None:
        return None
    elapsed = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    hours = Decimal(round(elapsed.total_seconds())) / 3600
    if hours <= 0:
        return None
    return {
        "key": content_key("apple", "sleep", start, end),
        "type": "sleep",
        "value": f"{round(hours, 2):f}",
        "unit": "h",
        "at": end,
        "started_at": start,
    }


def _number(text: str | None) -> Decimal | None:
    try:
        found = Decimal(text or "")
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _time(text: str | None) -> str | None:
    """Return "2026-03-01 08:00:00 +0100" in ISO form."""
    try:
        return datetime.strptime(text or "", "%Y-%m-%d %H:%M:%S %z").isoformat()
    except ValueError:
        return None
