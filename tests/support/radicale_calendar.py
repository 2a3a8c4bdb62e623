"""A calendar on a real CalDAV server (radicale), and a second program that uses it."""

from __future__ import annotations

import caldav

from support.radicale import PASSWORD, USER, RadicaleServer


class RadicaleCalendar:
    def __init__(self, server: RadicaleServer) -> None:
        self._server = server
        self.root = f"{server.url}/"
        self.url = f"{server.url}/{USER}/home/"
        server.client.request("MKCALENDAR", self.url).raise_for_status()

    def second_client(self) -> caldav.Calendar:
        """Another program of the owner, which uses the caldav library."""
        client = caldav.DAVClient(self.root, username=USER, password=PASSWORD)
        return client.calendar(url=self.url)

    def texts(self) -> list[str]:
        """Return the files of the calendar."""
        return [str(event.data) for event in self.second_client().events()]

    def lose_sync_tokens(self) -> None:
        self._server.forget_tokens()
