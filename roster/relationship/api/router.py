"""Relationship on the dashboard: coming dates, people to get in touch with, loans and gift ideas."""

from __future__ import annotations

from butlers.sdk.dashboard import Panel, lines_of

PANELS = (
    Panel(
        "Coming dates",
        lines_of("date_upcoming", "dates", within_days=90),
        say="Alice's birthday is 4 May",
    ),
    Panel("Get in touch", lines_of("stay_in_touch_due", "people"), say="met Tom today"),
    Panel("Loans", lines_of("loan_list", "loans"), say="I lent Bob 20 euro"),
    Panel("Gifts", lines_of("gift_list", "gifts"), say="gift idea for Alice: a scarf"),
)
