"""The texts that scaffolds start from. ``$name`` and its like are filled in."""
