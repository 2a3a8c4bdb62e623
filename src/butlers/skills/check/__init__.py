"""Check a skill's folder: rules, clients that would load it, and automatic fixes."""
