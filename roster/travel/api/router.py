"""Travel on the dashboard: the next trip, all trips, and documents that expire."""

from __future__ import annotations

from butlers.sdk.dashboard import Panel, lines_of

PANELS = (
    Panel(
        "Coming up",
        lines_of("travel_upcoming", "trips"),
        say="flight LH123 on Friday 9:40 from BER",
    ),
    Panel("Trips", lines_of("trip_list", "trips"), say="trip to Lisbon 12 to 19 December"),
    Panel("Documents", lines_of("document_list", "documents"), say="passport expires 3 May 2028"),
)
