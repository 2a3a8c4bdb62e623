"""Ingress loops: each carries one outside channel's messages to the Switchboard."""
