"""What a module is. Its tools are a declared tuple of module-level functions, never closures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from butlers.tools.base import ToolFunction, ToolSpec, spec_of


class Module(ABC):
    tools: ClassVar[tuple[ToolFunction, ...]] = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique; also the key of its section ``[modules.<name>]``."""

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec_of(function) for function in self.tools)
