"""The console channel: messages typed in a terminal, replies kept in a mailbox."""
