"""Makes work happen when it is due, and says what became of every due time."""
