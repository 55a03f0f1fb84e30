"""The torch_npu version (and chip) that code is migrated for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from migrator import api


class TargetError(ValueError):
    """The target cannot be determined: a version text or configuration value makes no sense."""


@dataclass(frozen=True)
class Target:
    """One torch_npu wheel to migrate for; rules ask it before they write a name."""

    torch_npu: str
    """Known wheel, e.g. "2.7.1"."""
    soc: str | None
    """Chip name such as "Ascend910B1"; None: unknown."""
    reason: str
    """Where the version comes from, e.g. "requirements.txt line 3 pins torch-npu==2.6.0"."""

    device: ClassVar[str] = "npu"
    """The device string."""
    module: ClassVar[str] = "torch.npu"
    """The module that stands where torch.cuda stood."""
    backend: ClassVar[str] = "hccl"
    """The torch.distributed backend."""

    def has(self, name: str) -> bool:
        """Whether this torch_npu name exists in the target version."""
        return api.exists(name, self.torch_npu)

    def at_least(self, version: str) -> bool:
        """Whether the target is this torch_npu version or a newer one."""
        return api.at_least(self.torch_npu, version)

    def mapping(self, name: str) -> api.Mapping | None:
        """What exactly this CUDA name becomes; None: no row."""
        return api.mapping(name)

    def mapping_for(self, name: str) -> api.Mapping | None:
        """Like ``mapping``, but falls back to the nearest known parent."""
        return api.mapping_for(name)

    def can(self, row: api.Mapping) -> bool:
        """Whether the replacement of this row can be written for the target version."""
        return row.available(self.torch_npu)

    def signature(self, name: str) -> api.Signature | None:
        """Signature of a torch_npu callable in the target version."""
        return api.signature(name, self.torch_npu)
