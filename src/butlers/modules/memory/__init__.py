"""Memory: what a butler remembers about the owner's life, with the source of each item."""

from butlers.modules.memory.module import MemoryModule

__all__ = ["MemoryModule"]
