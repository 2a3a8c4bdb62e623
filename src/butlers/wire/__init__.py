"""How one process speaks MCP to another: bearer tokens, and a client light enough for the command line."""
