"""The leased queue: claims, workers, the listener, the call journal and dead letters."""
