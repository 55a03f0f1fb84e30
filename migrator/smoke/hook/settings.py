"""What the hook is to do, handed to the user's processes in one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "NPU_MIGRATE_SMOKE"


@dataclass(frozen=True)
class Settings:
    """What the hook is to do in every process of a run.

    folder         where each process writes its recording
    root           the user's tree: lines in it are "the user's lines"
    seed           of random, numpy and torch, set right after torch is imported; None: leave them alone
    cuda_devices   how many CUDA devices the CPU pretends to be; 0: it pretends nothing
    transfer       put torch_npu's transfer_to_npu under the program
    operators      note which operators run on the NPU, and where
    max_steps      end the program when it starts a further backward pass; 0: never
    module_steps   record the modules' outputs until this many backward passes are done
    modules        glob of the modules whose tensors are saved; "" all leaf modules; None: save no tensors
    """

    folder: str
    root: str
    seed: int | None = None
    cuda_devices: int = 0
    transfer: bool = False
    operators: bool = False
    max_steps: int = 0
    module_steps: int = 2
    modules: str | None = None

    def variables(self) -> dict[str, str]:
        """The environment variables that hand this to a process and all of its children."""
        return {VARIABLE: json.dumps(asdict(self))}


def from_environment() -> Settings | None:
    """The settings of this process; None when it is not part of a run."""
    text = os.environ.get(VARIABLE)
    return Settings(**json.loads(text)) if text else None
