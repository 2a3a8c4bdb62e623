"""What is loaded into the CLI's process before the CLI itself, for what no setting of it gives.

Its system prompt is a template to it: it puts its own texts in place of ``${AgentSkills}``, ``${SubAgents}``,
``${AvailableTools}`` and ``${…_ToolName}``, draws empty lines together and cuts both ends, and has no way to
write any of them down. So its file holds a mark alone, and the butler's words take the place of the mark in
the request to the model, to the byte. That this happened is said as an event of its own: a session that
ends well without it is none (see ``transcript``).

And it leaves as soon as it has said its last word, and drops what of it no longer fitted into the pipe: after
a long prompt or a long result its end would be lost. So it has to wait until what it says is heard.

And what it runs would have the session's token in its environment.

And it puts each GEMINI.md from its folders up to the root of a checkout into the session's first message, and
those beside a file that it reads. The setting that names such files adds a name and takes none away, so to
its search for them there is no such file; a tool that is asked for one by its name finds it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from butlers.runtimes.base import MCP_SERVERS
from butlers.runtimes.cli import write_private

DELIVERED = "butlers.system_prompt_delivered"
INSTRUCTIONS = "GEMINI.md"

_PROGRAM = """\
const fs = require("fs");
const path = require("path");
const { words, mark, delivered, options, servers, instructions } = @GIVEN;

for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);

// What it runs has neither this program nor the session's token.
delete process.env[servers];
if (options) process.env.NODE_OPTIONS = options; else delete process.env.NODE_OPTIONS;

const look = fs.promises.access;
fs.promises.access = async (file, mode, ...more) => {
  if (mode === fs.constants.R_OK && path.basename(String(file)) === instructions)
    throw Object.assign(new Error(`ENOENT: no such file, access '${file}'`), { code: "ENOENT" });
  return look(file, mode, ...more);
};
require("module").syncBuiltinESMExports();

const whole = JSON.stringify(fs.readFileSync(words, "utf8")).slice(1, -1);
const ask = globalThis.fetch;
let told = false;
globalThis.fetch = (url, request, ...more) => {
  const body = request?.body;
  if (typeof body !== "string" || !body.includes(mark)) return ask(url, request, ...more);
  // Past its own stream, which the CLI keeps for itself.
  if (!told) fs.writeSync(1, JSON.stringify({ type: delivered }) + "\\n");
  told = true;
  return ask(url, { ...request, body: body.replaceAll(mark, () => whole) }, ...more);
};
"""


@dataclass(frozen=True, slots=True)
class Preload:
    mark: str  # what the system prompt is to the CLI
    options: str  # for node, so that the program is loaded

    @classmethod
    def write(cls, home: Path, system_prompt: str, env: Mapping[str, str]) -> Preload:
        mark = f"SYSTEM-PROMPT-{secrets.token_hex(16)}"  # nothing that is said can contain it
        options = env.get("NODE_OPTIONS", "")
        given = {
            "words": str(write_private(home / "words.md", system_prompt)),
            "mark": mark,
            "delivered": DELIVERED,
            "options": options,
            "servers": MCP_SERVERS,
            "instructions": INSTRUCTIONS,
        }
        program = write_private(home / "preload.cjs", _PROGRAM.replace("@GIVEN", json.dumps(given)))
        return cls(mark, f"{options} --require={json.dumps(str(program))}".strip())
