"""Messages that the Switchboard answers itself: help, suggestions, undo."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from butlers.daemon.registration import registration_of
from butlers.runtimes.reflex import NO_MODEL
from butlers.switchboard.guidance import REFUSED
from butlers.switchboard.own_answers import NOTHING_TO_UNDO
from butlers.wire.codec import encode
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.waiting import until

SCHEMAS = ("switchboard", "health", "general")


@pytest.fixture
async def switchboard(switchboard: InProcessButler, make_butler: MakeButler) -> InProcessButler:
    """A Switchboard with the running butlers health and general."""
    for name in ("health", "general"):
        made = make_butler(name)
        await made.start()
        registration = encode(registration_of(made.butler))
        async with switchboard.peer(name) as peer:
            await peer.call("register", {"registration": registration})
    return switchboard


async def say(switchboard: InProcessButler, text: str, **changes: Any) -> str:
    """Send a message and return the reply."""
    async with switchboard.owner() as owner:
        answer = await owner.call("ingest", envelope(text, **changes))
    return await reply_to(switchboard, UUID(answer["request_id"]))


async def reply_to(switchboard: InProcessButler, request_id: UUID) -> str:
    union = " UNION ALL ".join(
        f"SELECT payload FROM {schema}.queue_items WHERE queue = 'notify'" for schema in SCHEMAS
    )

    async def look() -> list[dict[str, Any]]:
        return await switchboard.rows(
            f"SELECT payload FROM ({union}) AS said WHERE payload ->> 'request_id' = $1",
            str(request_id),
        )

    rows = await until(f"a reply to {request_id}", look)
    return "\n".join(json.loads(row["payload"])["message"] for row in rows)


async def weights(switchboard: InProcessButler) -> list[str]:
    rows = await switchboard.rows("SELECT value FROM health.measurements ORDER BY created_at")
    return [str(row["value"]) for row in rows]


async def test_help_shows_examples_of_the_running_butlers(switchboard: InProcessButler) -> None:
    for text in ("hello", "Help", "what can you do?", "Was kannst du?", "Hallo!"):
        answer = await say(switchboard, text)
        assert "Health: " in answer
        assert "weight 80.4 kg" in answer
        assert "General: " in answer
        assert "undo" in answer
    answer = await say(switchboard, "help health")
    assert "- weight 80.4 kg" in answer.splitlines()
    assert "General" not in answer


async def test_misspelled_message_is_asked_back_and_runs_after_yes(
    switchboard: InProcessButler,
) -> None:
    answer = await say(switchboard, "wieght 80")
    assert answer == "Did you mean “weight 80”? Say yes, and I do that."
    assert await weights(switchboard) == []
    assert await say(switchboard, "yes") == "Logged: weight 80 kg."
    assert await weights(switchboard) == ["80"]
    assert "Undone" in await say(switchboard, "undo")
    await say(switchboard, "wieght 80")
    assert await say(switchboard, "nein") == REFUSED
    assert NO_MODEL in await say(switchboard, "yes")
    assert await weights(switchboard) == []


async def test_unmatched_message_names_the_closest_examples(switchboard: InProcessButler) -> None:
    answer = await say(switchboard, "my weight was eighty kg")
    assert "The closest that I understand:\n- " in answer
    assert "weight" in answer.partition(NO_MODEL)[0]
    assert "“help”" in await say(switchboard, "xyzzy qwertz")


async def test_undo_takes_back_the_last_change_then_the_one_before(
    switchboard: InProcessButler,
) -> None:
    await say(switchboard, "weight 80")
    await say(switchboard, "weight 81")
    await say(switchboard, "what is my weight?")
    assert await say(switchboard, "Undo that!") == "Undone: weight 81 kg removed."
    assert await weights(switchboard) == ["80"]
    assert await say(switchboard, "mach das rückgängig") == "Undone: weight 80 kg removed."
    assert await weights(switchboard) == []
    assert await say(switchboard, "undo") == NOTHING_TO_UNDO


async def test_undo_reaches_the_butler_of_the_last_change(switchboard: InProcessButler) -> None:
    await say(switchboard, "weight 80")
    await say(switchboard, "note: buy milk")
    assert "buy milk" in await say(switchboard, "undo")
    assert await weights(switchboard) == ["80"]
    assert await switchboard.rows("SELECT FROM general.notes") == []


async def test_undo_takes_back_a_reminder(switchboard: InProcessButler) -> None:
    answer = await say(switchboard, "remind me in 10 minutes to stretch")
    assert answer.startswith("I will remind you today at")
    assert await say(switchboard, "undo") == "Undone: reminder “stretch” removed."
    assert await switchboard.rows("SELECT FROM general.scheduled_tasks WHERE source = 'db'") == []


async def test_undo_waits_for_the_message_before_it(switchboard: InProcessButler) -> None:
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("weight 80"))
        asked = await owner.call("ingest", envelope("undo"))
    assert await reply_to(switchboard, UUID(asked["request_id"])) == "Undone: weight 80 kg removed."


async def test_undo_waits_for_a_message_on_its_way_to_its_butler(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.owner() as owner:
        sent = await owner.call("ingest", envelope("weight 80"))
        await reply_to(switchboard, UUID(sent["request_id"]))
        item = "UPDATE queue_items SET {} WHERE queue = 'inbox' AND key = $1 RETURNING state"
        await until(
            "the message is routed",
            lambda: switchboard.rows(
                "SELECT FROM queue_items WHERE queue = 'inbox' AND key = $1 AND state = 'done'",
                sent["request_id"],
            ),
        )
        # As if the Switchboard had decided and not yet sent it.
        later = "state = 'ready', run_after = now() + interval '20 s'"
        await switchboard.rows(item.format(later), sent["request_id"])
        asked = await owner.call("ingest", envelope("undo"))
    await until(
        "undo waits",
        lambda: switchboard.rows(
            "SELECT FROM queue_items WHERE key = $1 AND run_after > now() - interval '5 s'"
            " AND error LIKE '%handled first%'",
            asked["request_id"],
        ),
    )
    await switchboard.rows(item.format("state = 'done'"), sent["request_id"])
    assert await reply_to(switchboard, UUID(asked["request_id"])) == "Undone: weight 80 kg removed."


async def test_undo_does_not_cross_conversations(switchboard: InProcessButler) -> None:
    await say(switchboard, "weight 80")
    other = {"external_thread_id": "other"}
    assert await say(switchboard, "undo", event=other) == NOTHING_TO_UNDO
    assert await weights(switchboard) == ["80"]


async def test_undo_of_another_person_is_an_ordinary_message(switchboard: InProcessButler) -> None:
    await say(switchboard, "weight 80")
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("undo", sender={"identity": "stranger"}))
    assert "Your weight was 80" in await say(switchboard, "weight?")
    assert await weights(switchboard) == ["80"]


async def test_number_of_the_message_before_is_corrected(switchboard: InProcessButler) -> None:
    await say(switchboard, "weight 80.4 kg")
    assert await say(switchboard, "no, 81") == "Corrected: weight 81 kg (was 80.4 kg)."
    assert await say(switchboard, "make it 81.5") == "Corrected: weight 81.5 kg (was 81 kg)."
    assert await weights(switchboard) == ["81.5"]
    assert await say(switchboard, "undo") == "Undone: weight 81 kg restored."


async def test_question_before_is_repeated_for_another_period(switchboard: InProcessButler) -> None:
    await say(switchboard, "weight 80 kg")
    assert "Weight, last 30 days" in await say(switchboard, "average weight last 30 days")
    assert "Weight, this month" in await say(switchboard, "and this month?")
    assert "Weight, this year" in await say(switchboard, "what about this year")


async def test_follow_up_needs_the_message_directly_before(switchboard: InProcessButler) -> None:
    assert NO_MODEL in await say(switchboard, "no, 81")
    await say(switchboard, "weight 80.4 kg")
    await say(switchboard, "note: buy milk")
    assert NO_MODEL in await say(switchboard, "no, 81")
    assert await weights(switchboard) == ["80.4"]
