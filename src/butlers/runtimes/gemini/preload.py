"""A program that Node loads before the CLI, for four things that no setting of the CLI gives.

- The CLI treats the system prompt as a template: it replaces ``${AgentSkills}``, ``${SubAgents}``,
  ``${AvailableTools}`` and ``${…_ToolName}``, joins empty lines and strips both ends, and has no escape. So
  its file holds only a mark, which is replaced by the butler's prompt, byte for byte, in the request to the
  model. An event reports the replacement; a session without it has failed (see ``transcript``).
- The CLI exits right after its last output and loses what did not fit into the pipe, such as the end of a
  long result. So its output blocks.
- Programs that the CLI runs would have the session's token in their environment.
- The CLI puts each GEMINI.md of its folders, up to the root of a checkout, and those beside a file that it
  reads into the first message. Its setting only adds names of such files, so its search for them finds none.
  A tool that reads one by name still finds it.
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

// Programs that the CLI runs have neither this program nor the session's token.
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
let sent = false;
globalThis.fetch = (url, request, ...more) => {
  const body = request?.body;
  if (typeof body !== "string" || !body.includes(mark)) return ask(url, request, ...more);
  // Not through process.stdout, which the CLI replaces.
  if (!sent) fs.writeSync(1, JSON.stringify({ type: delivered }) + "\\n");
  sent = true;
  return ask(url, { ...request, body: body.replaceAll(mark, () => whole) }, ...more);
};
"""


@dataclass(frozen=True, slots=True)
class Preload:
    mark: str  # in place of the system prompt
    options: str  # NODE_OPTIONS that load the program

    @classmethod
    def write(cls, home: Path, system_prompt: str, env: Mapping[str, str]) -> Preload:
        mark = f"SYSTEM-PROMPT-{secrets.token_hex(16)}"  # no text can contain it
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
