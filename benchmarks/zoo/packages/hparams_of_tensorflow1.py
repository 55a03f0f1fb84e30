"""Stands in for the two things of TensorFlow 1 that NVIDIA/tacotron2 reads its options with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class HParams:
    """Options with defaults, changed by texts such as "epochs=1,name=x"."""

    def __init__(self, **defaults: Any) -> None:
        self.__dict__.update(defaults)

    def parse(self, text: str) -> None:
        """Change options; a value becomes what the default is."""
        for name, _, value in (item.partition("=") for item in text.split(",")):
            kind = type(getattr(self, name))
            setattr(self, name, value == "True" if kind is bool else kind(value))

    def values(self) -> dict[str, Any]:
        """All options."""
        return dict(self.__dict__)


contrib = SimpleNamespace(training=SimpleNamespace(HParams=HParams))
logging = SimpleNamespace(info=lambda *_args: None)
