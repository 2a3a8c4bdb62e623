"""The one rule set: every problem a skill can have, by its stable code."""

from __future__ import annotations

from dataclasses import dataclass

from butlers.domain.diagnostic import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    severity: Severity
    meaning: str
    # Whether `check --fix` mends it without changing what the skill says.
    fixable: bool = False


def _error(meaning: str, *, fixable: bool = False) -> Rule:
    return Rule(Severity.ERROR, meaning, fixable)


def _warning(meaning: str, *, fixable: bool = False) -> Rule:
    return Rule(Severity.WARNING, meaning, fixable)


RULES: dict[str, Rule] = {
    # -- the folder and its files
    "skill-missing": _error("the folder has neither SKILL.md nor manifest.json"),
    "skill-unreadable": _error("the file can not be read"),
    "skill-too-large": _error("the file is larger than a skill's file may be"),
    "skill-file-name": _warning("SKILL.md is spelled otherwise", fixable=True),
    "skill-encoding": _warning("the file is not UTF-8; what could not be read was replaced"),
    "skill-half-character": _error("an escape is only half of a character; it was replaced"),
    "skill-bom": _warning("the file begins with a byte order mark", fixable=True),
    "skill-control-character": _warning("there is a control character in the front matter"),
    "skill-hidden-unicode": _warning("there are characters that a person does not see"),
    "skill-shadows": _warning("another skill has the same name"),
    "tree-link-leaves": _error("a symbolic link leaves the skill"),
    "tree-link-broken": _error("a symbolic link leads nowhere, or in a circle"),
    "tree-special-file": _error("there is something that is neither file nor folder"),
    "tree-path": _error("a file name that not every system can have"),
    "tree-too-many": _error("more files, or deeper folders, than a skill may have"),
    "tree-too-large": _error("more bytes than a skill may have"),
    "scan-too-many": _error("more skills, or deeper folders, than one scan reads"),
    # -- front matter
    "frontmatter-missing": _warning("no front matter; name and description were derived"),
    "frontmatter-blank-before": _warning("blank lines before the front matter", fixable=True),
    "frontmatter-unclosed": _warning("the front matter is not closed by ---", fixable=True),
    "frontmatter-glued": _warning("the closing --- stands before other text", fixable=True),
    "frontmatter-not-yaml": _warning("the front matter is not valid YAML"),
    "frontmatter-requoted": _warning("a value was read as if it were quoted", fixable=True),
    "frontmatter-scanned": _warning("the front matter was read line by line", fixable=True),
    "frontmatter-duplicate-key": _warning("a key stands twice; the last one counts", fixable=True),
    "frontmatter-too-large": _warning("the front matter is too large or too deep to be YAML"),
    # -- fields of the standard
    "name-missing": _warning("no name; the folder's name was taken", fixable=True),
    "name-format": _warning("the name is not lower-case words joined by single hyphens"),
    "name-too-long": _warning("the name has more than 64 characters"),
    "name-directory": _warning("name and folder name differ"),
    "folder-name": _warning("the folder's name is not kebab-case"),
    "description-missing": _error("no description, and no paragraph that could serve as one"),
    "description-derived": _warning("no description; the first paragraph was taken", fixable=True),
    "description-too-long": _warning("the description has more than 1024 characters"),
    "compatibility-length": _warning("compatibility has more than 500 characters, or none"),
    "field-type": _warning("a field has a value of another kind than it should"),
    "field-unknown": _warning("a field that the standard does not know"),
    "field-twice": _warning("a field stands in two places; one of them is not taken"),
    "metadata-type": _warning("a value under metadata is not a string"),
    "allowed-tools-form": _warning("allowed-tools is not one space-separated string", fixable=True),
    "version-format": _warning("the version is not a semantic version"),
    "body-empty": _warning("the skill has no instructions"),
    # -- manifest.json
    "manifest-not-json": _error("manifest.json is not a JSON object"),
    "manifest-field-missing": _error("a required field is missing"),
    "manifest-id": _error("the id is not lower-case words joined by single hyphens"),
    "manifest-version": _error("the version is not a semantic version"),
    "manifest-type": _error("a field has a value of another kind than it must"),
    "manifest-path": _error("a path is absolute or leaves the skill"),
    "manifest-context-missing": _error("a context file is not there"),
    "manifest-script-missing": _error("a script is not there"),
    "manifest-script-not-executable": _error("a script is not executable", fixable=True),
    "manifest-env-var": _error("not a name of an environment variable"),
    "manifest-env-example": _error("envVars without .env.example", fixable=True),
    "manifest-mcp-server": _error("an MCP server can not be started or reached as described"),
    "manifest-dependency": _error("a dependency is not id, id@version or id@range"),
    "manifest-node-version": _error("nodeVersion is not a range of versions"),
    "manifest-system-package": _error("not a name of a system package"),
    "manifest-registry-field": _warning("a field that only the registry fills was ignored"),
    "manifest-key-unknown": _warning("a field that nobody reads"),
    "manifest-duplicate-key": _warning("a key stands twice; the last one counts"),
    # -- what the files say
    "content-pipe-to-shell": _warning("something downloaded is handed to a shell"),
    "content-undeclared-env": _warning("a script reads a variable that is not declared"),
}
