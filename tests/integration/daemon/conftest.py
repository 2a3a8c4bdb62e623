"""Butlers of an installation of their own: their starts provision and migrate."""

from __future__ import annotations

from support.prepared import key, prepared

__all__ = ["key", "prepared"]
