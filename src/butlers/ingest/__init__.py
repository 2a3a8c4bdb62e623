"""The front door: a message is checked, stored once, and sent to the butler that answers such things."""
