"""Run what a skill brings: its scripts and its MCP servers."""
