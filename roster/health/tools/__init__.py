"""The Health butler's tools."""
