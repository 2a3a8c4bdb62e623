"""The General butler's tools."""
