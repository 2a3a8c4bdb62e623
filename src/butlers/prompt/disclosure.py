"""Opening what is summarised: the tool that asks for it, and what then happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from butlers.domain.errors import InvalidArguments, VisibilityExpansionRequired
from butlers.prompt.events import SkillExpanded
from butlers.prompt.rendering import RenderedPrompt
from butlers.prompt.section import SectionVisibility
from butlers.prompt.style import OPEN_SECTIONS
from butlers.prompt.tool import Tool, ToolContext

if TYPE_CHECKING:
    from butlers.prompt.prompt import Prompt
    from butlers.prompt.session import Session


@dataclass(frozen=True, slots=True)
class OpenSections:
    section_keys: tuple[str, ...]
    reason: str = ""


def request(params: OpenSections, *, context: ToolContext) -> NoReturn:
    """Keys that are open already are left out; none that is closed is an error."""
    closed = {one.path for one in context.rendered_prompt.summarised}
    known = {one.path for one in context.rendered_prompt.all()}
    unknown = [key for key in params.section_keys if key not in known]
    hint = f"to be opened: {', '.join(sorted(closed)) or 'nothing'}"
    if unknown or not params.section_keys:
        named = ", ".join(unknown) or "none was named"
        raise InvalidArguments(f"there is no such section: {named}", hint=hint)
    wanted = tuple(dict.fromkeys(key for key in params.section_keys if key in closed))
    if not wanted:
        raise InvalidArguments("all of these are open already", hint=hint)
    overrides = dict.fromkeys(wanted, SectionVisibility.FULL)
    raise VisibilityExpansionRequired(overrides, params.reason, wanted)


OPENER: Tool[Any, Any] = Tool[OpenSections, None](
    name=OPEN_SECTIONS,
    description="Show summarized sections in full and get their tools. "
    "section_keys: the keys as the summaries name them. reason: why.",
    handler=request,
)


def expand(
    prompt: Prompt[Any],
    session: Session,
    before: RenderedPrompt,
    asked: VisibilityExpansionRequired,
) -> None:
    """Remember in the session what is open from now on, and tell of each skill."""
    template = prompt.template
    session.set_visibility(template.ns, template.key, asked.requested_overrides)
    for path in asked.section_keys:
        found = before.find(path)
        if found is None or not found.is_summarised:
            continue
        name = getattr(found.section, "name", None)
        if name is not None:
            session.bus.publish(
                SkillExpanded(
                    skill_name=name,
                    skill_key=path,
                    prompt_ns=template.ns,
                    prompt_key=template.key,
                    session_id=session.session_id,
                    created_at=session.now(),
                )
            )
