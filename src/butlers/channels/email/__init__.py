"""The email channel: mail that another program hands to the Switchboard's ``/ingest``."""
