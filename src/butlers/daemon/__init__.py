"""The daemon: a Butler is put together here, phase by phase, and served."""
