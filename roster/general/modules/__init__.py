"""Module with the General butler's tools."""

from butlers.sdk import Module

from ..tools import collections


class GeneralModule(Module):
    name = "general"
    tools = collections.TOOLS
