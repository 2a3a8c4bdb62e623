"""The Switchboard: takes every message in, decides who answers, and dispatches it."""
