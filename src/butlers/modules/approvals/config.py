"""The section ``[modules.approvals]``: gated tools, their risk and expiry, and how the owner is asked."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from butlers.config.values import ConfigTable
from butlers.domain.approval import RiskTier
from butlers.modules.base import ModuleConfig

_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")

Hours = Annotated[float, Field(gt=0, le=24 * 365)]


def _hours(text: str) -> str:
    if text and not _HOURS.fullmatch(text):
        raise ValueError('hours look like "22:00-07:00"')
    return text


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError('a time looks like "18:00"')
    return text


class GatedToolConfig(ConfigTable):
    """One gated tool. Each key is optional."""

    expiry_hours: Hours | None = None
    risk_tier: RiskTier | None = None


class ApprovalsConfig(ModuleConfig):
    gated_tools: dict[str, GatedToolConfig] = Field(default_factory=dict)
    default_expiry_hours: Hours = 48
    default_risk_tier: RiskTier = RiskTier.MEDIUM
    # At most one notification of the whole fleet in this time. Critical questions and questions in a
    # conversation with the owner do not wait for it.
    quiet_interval_minutes: Annotated[float, Field(ge=0, le=24 * 60)] = 180
    quiet_hours: Annotated[str, AfterValidator(_hours)] = ""
    digest_at: Annotated[str, AfterValidator(_time)] = (
        "18:00"  # when questions of low risk are asked
    )
    link_url: str | None = None  # address under which the owner reaches this butler, for links
