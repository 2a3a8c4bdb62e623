"""Ephemeral sessions: spawned for one request, wired to one butler, gone when it is done."""
