"""Contacts: the owner's address books, synchronized with the people that a butler keeps."""

from butlers.modules.contacts.module import ContactsModule

__all__ = ["ContactsModule"]
