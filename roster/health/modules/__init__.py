"""Module with the Health butler's tools."""

from butlers.sdk import Module

from ..tools import measurements


class HealthModule(Module):
    name = "health"
    tools = measurements.TOOLS
