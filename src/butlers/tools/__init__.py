"""The core tools every butler offers over MCP, by family: ordinary functions with an injected context."""
