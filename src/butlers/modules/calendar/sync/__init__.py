"""Calendars on servers: CalDAV collections, and feeds that are only read."""
