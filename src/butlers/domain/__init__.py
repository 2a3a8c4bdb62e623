"""The vocabulary every other package speaks: frozen types, errors, ids, the clock."""
