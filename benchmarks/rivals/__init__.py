"""Other people's queues, run as their manuals say: each in a venv of its own, as a subprocess."""
