"""The embedded PostgreSQL server, shared by all processes of one home and stopped by the last."""

from butlers.db.embedded.programs import find_binaries
from butlers.db.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "find_binaries"]
