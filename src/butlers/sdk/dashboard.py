"""Public names for ``api/router.py`` of a butler's folder: panels, and calls of its butler's tools."""

from fastapi import Request

from butlers.api.panels import (
    Bar,
    Bars,
    ButlerCalls,
    Content,
    Figure,
    Figures,
    Line,
    LineChart,
    Lines,
    Panel,
    Series,
    lines_of,
)
from butlers.api.views import Site

__all__ = [
    "Bar",
    "Bars",
    "ButlerCalls",
    "Content",
    "Figure",
    "Figures",
    "Line",
    "LineChart",
    "Lines",
    "Panel",
    "Series",
    "calls_of",
    "lines_of",
]


def calls_of(request: Request, butler: str) -> ButlerCalls:
    """Return the calls of a butler's tools, for a route of its router."""
    return ButlerCalls(Site.of(request).fleet, butler)
