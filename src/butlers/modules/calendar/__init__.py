"""Calendar: one view over the owner's calendars, and a local calendar that needs no account."""

from butlers.modules.calendar.module import CalendarModule

__all__ = ["CalendarModule"]
