"""The command line: one file per command, imports as late as possible so that commands answer at once."""
