"""Access of tools to their butler's memory module, without an import cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from butlers.tools.context import CallContext

if TYPE_CHECKING:
    from butlers.modules.memory.module import MemoryModule


def memory_of(ctx: CallContext) -> MemoryModule:
    from butlers.modules.memory.module import MemoryModule

    return MemoryModule.of(ctx)
