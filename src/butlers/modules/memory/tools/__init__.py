"""Tools of the memory module, one file per family."""
