"""A new butler's folder: file name to text."""

OWN = {
    "butler.toml": """\
[butler]
name = "$name"
port = $port
description = ""  # one sentence: what it is for. Messages find their way to it by this.

# Without [butler.db] its tables live in a database of its own, $database.

[runtime]
type = "auto"  # the first LLM CLI that is installed and has a credential, else reflexes without a model

[butler.switchboard]
advertise = true  # make it known, so that messages can reach it
""",
    "CLAUDE.md": (
        "<!-- Define this butler's personality, instructions, and available skills here -->\n"
    ),
    "AGENTS.md": "<!-- Runtime notes populated by runtime sessions -->\n",
}

ROSTER = {
    "butler.toml": """\
[butler]
name = "$name"
port = $port
description = ""  # one sentence: what it is for. Messages find their way to it by this.

[butler.db]
name = "butlers"
schema = "$identifier"

[runtime]
type = "auto"

[butler.switchboard]
advertise = true

[modules.$name]
""",
    "MANIFESTO.md": """\
# $title

What it is for, for whom, and what they gain. A feature that does not follow from here does not belong here.
Out of scope: what other butlers do.
""",
    "CLAUDE.md": "@AGENTS.md\n",
    "AGENTS.md": """\
${shared}# $title

Who you are and how you work. What to do step by step belongs into skills.

# Notes to self
""",
    "tools/__init__.py": '''\
"""The $title butler's tools: module-level async functions, each declared with @tool."""

TOOLS = ()
''',
    "modules/__init__.py": '''\
"""Wires the $title butler's tools."""

from butlers.sdk import Module

from ..tools import TOOLS


class ${class_name}Module(Module):
    name = "$name"
    tools = TOOLS
''',
}
