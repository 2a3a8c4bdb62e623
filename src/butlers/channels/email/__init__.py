"""The email channel: mailboxes read over IMAP, answers sent over SMTP."""
