"""Other projects' queues and assistants, each in its own venv and subprocess."""
