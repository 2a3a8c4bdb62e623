"""Wire formats of the outside world: what comes in is parsed here, what goes out is sent here."""
