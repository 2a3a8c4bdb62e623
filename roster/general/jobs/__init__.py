"""The General butler's jobs."""
