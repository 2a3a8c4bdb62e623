"""Run all benchmarks, or those named on the command line."""

from __future__ import annotations

import argparse
import logging

import structlog

from benchmarks import (
    broker,
    calendar,
    commands,
    contacts,
    mail,
    memory,
    memory_recall,
    message,
    queue,
    roster,
    sandbox,
    sessions,
    skills,
    start,
    ticks,
)

BENCHMARKS = {
    "start": start.run,
    "commands": commands.run,
    "message": message.run,
    "queue": queue.run,
    "ticks": ticks.run,
    "sessions": sessions.run,
    "skills": skills.run,
    "broker": broker.run,
    "calendar": calendar.run,
    "mail": mail.run,
    "contacts": contacts.run,
    "roster": roster.run,
    "sandbox": sandbox.run,
    "memory": memory.run,
    "recall": memory_recall.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--with-install",
        action="store_true",
        help="also time `make up` in a new clone with an empty HOME (start; takes minutes)",
    )
    parser.add_argument("--messages", type=int, default=200, help="number of messages (message)")
    parser.add_argument("--items", type=int, default=1000, help="number of items (queue)")
    parser.add_argument("--skills", type=int, default=10_000, help="number of skills (skills)")
    parser.add_argument("--mails", type=int, default=10_000, help="number of mails (mail)")
    parser.add_argument(
        "--contacts", type=int, default=10_000, help="number of contacts (contacts)"
    )
    parser.add_argument("--sessions", type=int, default=10, help="number of sessions (sessions)")
    parser.add_argument("--captions", action="store_true", help="with captions of photos (recall)")
    parser.add_argument("--fit", action="store_true", help="fit the weights of search (recall)")
    options = parser.parse_args()
    for unknown in set(options.names) - set(BENCHMARKS):
        parser.error(f"unknown benchmark {unknown!r}; choose from {', '.join(BENCHMARKS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for name in options.names or BENCHMARKS:
        BENCHMARKS[name](options)


if __name__ == "__main__":
    main()
