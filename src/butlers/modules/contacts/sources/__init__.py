"""Sources of contacts: CardDAV servers and Google."""
