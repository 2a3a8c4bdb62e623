"""The command line: one file per family of commands. Imports are late, so that commands answer at once."""
