"""Imports: files that people have lying around, read into rows for the butlers' bulk tools.

A reader turns one kind of file into rows with content keys, so that importing a file twice stores it once.
Nothing here talks to a butler: ``butlers import`` and the dashboard do.
"""

from butlers.imports.files import KINDS, ImportFile, open_import
from butlers.imports.model import ImportOptions
from butlers.imports.sending import BATCH_TIMEOUT_S, UNDO_TIMEOUT_S, ImportPreview, import_calls

__all__ = [
    "BATCH_TIMEOUT_S",
    "KINDS",
    "UNDO_TIMEOUT_S",
    "ImportFile",
    "ImportOptions",
    "ImportPreview",
    "import_calls",
    "open_import",
]
