"""Tools of the calendar module."""
