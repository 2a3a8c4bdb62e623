"""Credentials: encrypted in the database, read by butlers, managed by the owner."""
