"""The Finance butler's tools."""
