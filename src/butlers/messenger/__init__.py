"""The Messenger: sends every delivery once, within limits, and keeps the receipt."""
