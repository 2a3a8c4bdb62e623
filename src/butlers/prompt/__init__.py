"""Prompts made of sections that start as summaries and gain tools when opened."""

from butlers.domain.errors import (
    PromptValidationError,
    SkillInstallationError,
    SkillRefError,
    VisibilityExpansionRequired,
)
from butlers.prompt.prompt import Prompt
from butlers.prompt.rendering import RenderedPrompt, RenderedSection
from butlers.prompt.section import (
    MarkdownSection,
    Section,
    SectionVisibility,
    Style,
    VisibilitySelector,
)
from butlers.prompt.session import (
    InProcessEventBus,
    PromptExecuted,
    PromptRendered,
    Session,
    SkillExpanded,
    SkillsInstalled,
    ToolInvoked,
)
from butlers.prompt.skill import Skill, SkillParams, SkillRef, VerbatimSkill
from butlers.prompt.skills_section import SkillsSection, SkillsSectionParams
from butlers.prompt.template import PromptTemplate
from butlers.prompt.tool import Tool, ToolContext, ToolResult

__all__ = [
    "InProcessEventBus",
    "MarkdownSection",
    "Prompt",
    "PromptExecuted",
    "PromptRendered",
    "PromptTemplate",
    "PromptValidationError",
    "RenderedPrompt",
    "RenderedSection",
    "Section",
    "SectionVisibility",
    "Session",
    "Skill",
    "SkillExpanded",
    "SkillInstallationError",
    "SkillParams",
    "SkillRef",
    "SkillRefError",
    "SkillsInstalled",
    "SkillsSection",
    "SkillsSectionParams",
    "Style",
    "Tool",
    "ToolContext",
    "ToolInvoked",
    "ToolResult",
    "VerbatimSkill",
    "VisibilityExpansionRequired",
    "VisibilitySelector",
]
