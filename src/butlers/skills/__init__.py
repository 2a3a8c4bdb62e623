"""The one skills system, usable without a database."""
