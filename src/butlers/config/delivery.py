"""The Messenger's tables of a butler.toml: how it delivers, and where to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from butlers.config.frozen import FrozenDict, freeze
from butlers.config.problems import refuse
from butlers.config.values import Count, Seconds, Section, Text, WebUrl

_QUIET_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
_HOOK_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def _quiet_hours(value: str) -> str:
    start, _, end = value.partition("-")
    if not _QUIET_HOURS.fullmatch(value) or start == end:
        raise refuse(f"{value!r} is not a span of hours", hint='write it as "22:00-07:00"')
    return value


def _hook_name(value: str) -> str:
    if not _HOOK_NAME.fullmatch(value):
        raise refuse(
            f"{value!r} is not a webhook's name: lower-case letters, digits and '-', "
            "a letter first, at most 40"
        )
    return value


class DeliveryConfig(Section):
    reply_ttl_s: Seconds = 6 * 3600  # reactions too
    send_ttl_s: Seconds = 24 * 3600
    per_minute: Count = 60  # over one line to the outside
    per_recipient_per_minute: Count = 10
    quiet_hours: Annotated[str, AfterValidator(_quiet_hours)] | None = None  # in the butler's zone


class WebhookConfig(Section):
    url: WebUrl
    secret_name: Text
    # Whether the receiver takes one Idempotency-Key once, so that a repeat can not double anything.
    idempotent: bool = False


class ChannelsConfig(Section):
    webhook: Annotated[
        Mapping[Annotated[str, AfterValidator(_hook_name)], WebhookConfig], AfterValidator(freeze)
    ] = FrozenDict()
