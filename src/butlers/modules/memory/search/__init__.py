"""Hybrid search over episodes, facts and rules: words, meaning, names, time and neighbouring turns."""
