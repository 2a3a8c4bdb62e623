"""The webhook channel: signed HTTP requests in both directions."""
