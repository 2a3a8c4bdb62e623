"""Names of the queues and of the two special butlers, for packages that meet only through them."""

from __future__ import annotations

SWITCHBOARD = "switchboard"
MESSENGER = "messenger"

INBOX = "inbox"  # accepted messages, to be routed
COMMANDS = "commands"  # slash commands of the owner
ROUTES = "routes"  # routed messages, to be handled by their butler
NOTIFY = "notify"  # outgoing notifications and reports, to be handed to the Switchboard
DELIVERIES = "deliveries"  # to be sent by the Messenger
SCHEDULES = "schedules"  # runs that are due
