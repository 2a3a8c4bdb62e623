"""Channels: one folder for each way in which messages come in and go out."""
