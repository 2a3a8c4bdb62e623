"""A PostgreSQL server of our own, shared by every process of one home and stopped by the last."""

from butlers.db.embedded.binaries import find_binaries
from butlers.db.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "find_binaries"]
