"""The Relationship butler's tools."""
