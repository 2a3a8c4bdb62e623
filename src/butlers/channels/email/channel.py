"""The email channel. It has no connector and no sender yet: another program brings the mail in."""

from __future__ import annotations

from butlers.channels.base import Channel


class EmailChannel(Channel):
    name = "email"
    threads_are_topics = True

    def normalize_address(self, identity: str) -> str:
        return identity.strip().casefold()  # mail programs write one address in several ways


CHANNEL = EmailChannel()
