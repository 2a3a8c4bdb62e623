"""Bring skills in: from archives and git, from a session, and into a session's folder."""
