"""Pluggable units that give a butler tools and tables of its own."""
