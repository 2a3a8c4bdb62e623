#!/usr/bin/env python3
"""Run a command in the butler's folder. Needs full access."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from typing import IO, Any

from _script import Refused, main
from _tool import has_full_access, number, text

LIMIT = 256 * 1024
TIMEOUT_S = 50


class StreamTail(threading.Thread):
    """Read a stream and keep its last bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.stream, self.content, self.truncated = stream, b"", False
        self.start()

    def run(self) -> None:
        while chunk := self.stream.read1(LIMIT):  # type: ignore[attr-defined]
            whole = self.content + chunk
            self.content = whole[-LIMIT:]
            self.truncated = self.truncated or len(whole) > LIMIT

    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


def run_command(arguments: dict[str, Any]) -> dict[str, Any]:
    if not has_full_access():
        raise Refused("a command needs full access, which a person grants in the configuration")
    words, stdin = _words(arguments.get("command")), text(arguments, "stdin", "").encode()
    seconds = min(number(arguments, "timeout", TIMEOUT_S), TIMEOUT_S)
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    out, err = StreamTail(process.stdout), StreamTail(process.stderr)
    threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True).start()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise Refused(f"the command took more than {seconds} s and was stopped") from error
    for stream in (out, err):
        stream.join(1)  # a background process may keep the stream open
    truncated = out.truncated or err.truncated
    return {"exitCode": code, "stdout": out.text(), "stderr": err.text(), "truncated": truncated}


def _words(command: Any) -> list[str]:
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    if not isinstance(words, list) or not words:
        raise Refused("command must be a list of words or a shell command line")
    if not all(isinstance(word, str) and "\0" not in word for word in words):
        raise Refused("command must contain text only")
    return words


def _feed(stream: IO[bytes], content: bytes) -> None:
    with suppress(OSError):  # the command may exit without reading it
        stream.write(content)
        stream.close()


if __name__ == "__main__":
    main(run_command)
