"""Runtimes: adapters that run a session's prompt on a CLI or a reflex and return calls and a text."""
