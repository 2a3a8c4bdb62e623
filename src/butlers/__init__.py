"""Butlers: a self-hosted personal assistant made of long-lived daemons."""
