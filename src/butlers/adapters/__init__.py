"""A prompt evaluated on a CLI, with Python tools bridged to it by MCP."""
