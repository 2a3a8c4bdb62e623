"""Problems found in skill files: the table of codes, and the collector that every reader uses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from butlers.config.locate import Place
from butlers.domain.diagnostic import Diagnostic, Severity

# Limit per severity: an untrusted file could produce thousands of findings, and warnings must not
# push out errors.
MAX_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Rule:
    """Severity and meaning of a code. ``check --fix`` repairs fixable ones without losing meaning."""

    severity: Severity
    meaning: str
    fixable: bool = False


def _error(meaning: str, *, fixable: bool = False) -> Rule:
    return Rule(Severity.ERROR, meaning, fixable)


def _warning(meaning: str, *, fixable: bool = False) -> Rule:
    return Rule(Severity.WARNING, meaning, fixable)


RULES: dict[str, Rule] = {
    # -- the folder and its files
    "skill-missing": _error("the folder has neither SKILL.md nor manifest.json"),
    "skill-unreadable": _error("the file cannot be read"),
    "skill-too-large": _error("the file exceeds the size limit for a skill's file"),
    "skill-file-name": _warning("SKILL.md has a different spelling", fixable=True),
    "skill-encoding": _warning("the file is not UTF-8; invalid bytes were replaced"),
    "skill-half-character": _error("an escape is an unpaired surrogate; it was replaced"),
    "skill-bom": _warning("the file begins with a byte order mark", fixable=True),
    "skill-control-character": _warning("the front matter contains a control character"),
    "skill-hidden-unicode": _warning("the text contains invisible characters"),
    "skill-shadows": _warning("another skill has the same name"),
    "tree-link-leaves": _error("a symbolic link points outside the skill"),
    "tree-link-broken": _error("a symbolic link is broken or circular"),
    "tree-link-folder": _error("a symbolic link points to a folder"),
    "tree-special-file": _error("an entry is neither a file nor a folder"),
    "tree-path": _error("a file name is not portable across systems"),
    "tree-too-many": _error("the skill has too many files, or folders that are too deep"),
    "tree-too-large": _error("the skill's files exceed the size limit"),
    "check-too-long": _error("checking the skill takes too long; the rest was not checked"),
    "scan-too-many": _error("the scanned folder has too many skills, or folders that are too deep"),
    # -- front matter
    "frontmatter-missing": _warning("no front matter; name and description were derived"),
    "frontmatter-blank-before": _warning("blank lines before the front matter", fixable=True),
    "frontmatter-unclosed": _warning("the front matter is not closed by ---", fixable=True),
    "frontmatter-glued": _warning("text follows the closing --- on its line", fixable=True),
    "frontmatter-not-yaml": _warning("the front matter is not valid YAML"),
    "frontmatter-requoted": _warning("a value was read as if it were quoted", fixable=True),
    "frontmatter-scanned": _warning("the front matter was read line by line", fixable=True),
    "frontmatter-duplicate-key": _warning("a key appears twice; the last one counts", fixable=True),
    "frontmatter-too-large": _warning("the front matter is too large or too deep for YAML"),
    # -- fields of the standard
    "name-missing": _warning("no name; the folder's name was used", fixable=True),
    "name-format": _warning("the name is not lower-case words joined by single hyphens"),
    "name-too-long": _warning("the name has more than 64 characters"),
    "name-directory": _warning("name and folder name differ"),
    "folder-name": _warning("the folder's name is not kebab-case"),
    "description-missing": _error("no description, and no paragraph to derive one from"),
    "description-derived": _warning("no description; the first paragraph was used", fixable=True),
    "description-too-long": _warning("the description has more than 1024 characters"),
    "compatibility-length": _warning("compatibility is empty or has more than 500 characters"),
    "field-type": _warning("a field has a value of the wrong type"),
    "field-unknown": _warning("the standard does not define this field"),
    "field-runs": _warning("a field makes other clients run commands"),
    "field-twice": _warning("a field appears in two places; one of them is ignored"),
    "metadata-type": _warning("a value under metadata is not a string"),
    "allowed-tools-form": _warning("allowed-tools is not one space-separated string", fixable=True),
    "version-format": _warning("the version is not a semantic version"),
    "body-empty": _warning("the skill has no instructions"),
    # -- manifest.json
    "manifest-not-json": _error("manifest.json is not a JSON object"),
    "manifest-foreign": _warning("manifest.json belongs to another tool; it was not read"),
    "manifest-field-missing": _error("a required field is missing"),
    "manifest-id": _error("the id has other characters than lower-case letters, digits, hyphens"),
    "manifest-version": _error("the version is not a version number"),
    "manifest-type": _error("a field has a value of the wrong type"),
    "manifest-path": _error("a path is absolute or points outside the skill"),
    "manifest-context-missing": _error("a context file does not exist"),
    "manifest-script-missing": _error("a script does not exist"),
    "manifest-script-not-executable": _error("a script is not executable", fixable=True),
    "manifest-env-var": _error("not a valid environment variable name"),
    "manifest-env-example": _error("envVars without .env.example", fixable=True),
    "manifest-mcp-server": _error("the description of an MCP server is incomplete or invalid"),
    "manifest-server-missing": _error("the program of a local MCP server does not exist"),
    "manifest-dependency": _error("a dependency is not id, id@version or id@range"),
    "manifest-node-version": _error("nodeVersion is not a version range"),
    "manifest-system-package": _error("not a valid system package name"),
    "manifest-registry-field": _warning("a field that only the registry sets was ignored"),
    "manifest-key-unknown": _warning("an unknown field"),
    "manifest-duplicate-key": _warning("a key appears twice; the last one counts"),
    # -- changes that registration makes
    "registered-name": _warning("the skill is registered under another name"),
    "registered-version": _warning(
        "the skill is registered with a version of the registry's choice"
    ),
    "registered-fields": _warning("fields were shortened or left out of the registered manifest"),
    # -- text of the files
    "content-pipe-to-shell": _warning("downloaded content is piped into a shell"),
    "content-html-comment": _warning("a comment that readers of the rendered text do not see"),
    "content-reference-missing": _warning("SKILL.md refers to a file that does not exist"),
    "content-undeclared-env": _warning("a script reads a variable that is not declared"),
}

REFLEX_RULES: dict[str, Rule] = {
    "reflex-unreadable": _error("the file cannot be read"),
    "reflex-too-large": _error("the file exceeds the size limit"),
    "reflex-encoding": _error("the file is not UTF-8"),
    "reflex-toml": _error("the file is not valid TOML"),
    "reflex-version": _error("the format version is missing or unknown"),
    "reflex-empty": _warning("the file has no reflex"),
    "reflex-unknown-key": _error("an unknown key"),
    "reflex-missing-key": _error("a required key is missing"),
    "reflex-value": _error("a key has an invalid value"),
    "reflex-duplicate": _error("two reflexes have the same name"),
    "reflex-pattern": _error("the pattern is invalid"),
    "reflex-group": _error("a rule for a group is invalid"),
    "reflex-template": _error("a template is invalid"),
    "reflex-example": _error("an example does not match its own reflex"),
    "reflex-not-example": _error("a near miss matches the reflex"),
}

_ALL_RULES = RULES | REFLEX_RULES


@dataclass(slots=True)
class Findings:
    """Collect the problems of one file or folder."""

    file: Path
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _counts: Counter[Severity] = field(init=False)

    def __post_init__(self) -> None:
        self._counts = Counter(found.severity for found in self.diagnostics)

    @property
    def has_errors(self) -> bool:
        return self._counts[Severity.ERROR] > 0

    def is_full(self, code: str) -> bool:
        """Return True if a further problem with this code would be dropped."""
        return self._counts[_ALL_RULES[code].severity] >= MAX_FINDINGS

    def add(
        self,
        code: str,
        message: str,
        *,
        at: Place | None = None,
        entry: str | None = None,
        hint: str | None = None,
        file: Path | None = None,
    ) -> None:
        """Add a problem with the severity of its code. Beyond the limit it is dropped."""
        severity = _ALL_RULES[code].severity
        if self._counts[severity] >= MAX_FINDINGS:
            return
        self._counts[severity] += 1
        line, column = (at.line, at.column) if at else (None, None)
        self.diagnostics.append(
            Diagnostic(
                code,
                severity,
                printable(message),
                Path(printable(str(file or self.file))),
                printable(entry) if entry else None,
                line,
                column,
                hint,
            )
        )


def printable(text: str) -> str:
    """Escape every control and invisible character, so that untrusted text is safe on a terminal."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "replace").decode()
        for letter in text
    )


def quoted(text: str, limit: int = 60) -> str:
    """Return untrusted text in quotes, cut at ``limit`` characters."""
    return repr(text if len(text) <= limit else text[:limit] + "…")
