"""Butlers: a self-hosted personal assistant made of long-lived daemons."""

__version__ = "0.1.0"
