"""What a bare installation lacks: modules of ours that need an extra of the package."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType

from hmp_node.errors import Failed, Failure


def load(module: str, extra: str) -> ModuleType:
    """Import a module of ours whose dependencies come with ``extra``. `Failed` NO_EXTRA names what to install."""
    gc.disable()  # an import makes thousands of objects that all stay: looking at them takes a tenth of its time
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").startswith("hmp_node"):  # our own fault, and no extra would mend it
            raise
        raise Failed(
            Failure.NO_EXTRA,
            f"The part {extra!r} of hmp_node is not installed here ({error})",
            remedy=f"pip install 'hmp-node[{extra}]'",
        ) from error
    finally:
        gc.enable()
