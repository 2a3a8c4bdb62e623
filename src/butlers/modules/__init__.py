"""Module system: pluggable units of tools and tables."""
