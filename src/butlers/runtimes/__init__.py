"""One adapter per way of thinking: a session's prompt goes in, tool calls and a text come out."""
