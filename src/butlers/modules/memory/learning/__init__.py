"""The growth of memory: recording messages, plain facts, consolidation, maintenance."""
