"""The roads between butlers: registration, routes in, notifications out."""
