"""The chips that code can be written for."""

from __future__ import annotations

import difflib
import re

CHIPS = (
    *("Ascend910A", "Ascend910ProA", "Ascend910ProB", "Ascend910PremiumA", "Ascend910B"),
    *("Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1"),
    *("Ascend910_9362", "Ascend910_9372", "Ascend910_9381", "Ascend910_9382", "Ascend910_9391", "Ascend910_9392"),
    *("Ascend310P1", "Ascend310P2", "Ascend310P3", "Ascend310P4", "Ascend310P5", "Ascend310P7"),
    *("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4", "Ascend950"),
)
"""The chips that torch_npu asks CANN about, by the names that torch.npu.get_device_name() gives."""

_FAMILIES = re.compile(r"Ascend(910_93\d\d|910C|950)", re.IGNORECASE)
_PREBUILT = re.compile(r"Ascend(910B\d|910_9|910C|310B|95)", re.IGNORECASE)


def has_prebuilt_kernels(chip: str) -> bool:
    """Whether CANN uses prebuilt kernels there by default; on older chips it compiles one for each new shape."""
    return _PREBUILT.match(chip) is not None


def doubt_about(chip: str) -> str | None:
    """What to say of a chip that is in no list; None for a known one, or a member of a known family."""
    known = {name.lower() for name in CHIPS}
    if chip.lower() in known or _FAMILIES.match(chip):
        return None
    names = {name.lower().removeprefix("ascend"): name for name in CHIPS}
    close = difflib.get_close_matches(chip.lower().removeprefix("ascend"), names, n=1, cutoff=0.7)
    hint = f"did you mean {names[close[0]]}?" if close else f"known are {', '.join(CHIPS)}"
    return f"{chip} is no chip that npu-migrate knows, and is taken as written; {hint}"
