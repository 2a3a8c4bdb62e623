"""The Travel butler's tools."""
