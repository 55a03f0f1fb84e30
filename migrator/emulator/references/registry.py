"""Where the references are collected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Reference:
    """What stands in for an operator; a random one draws from the NPU's generators."""

    function: Callable[..., Any]
    random: bool = False


REFERENCES: dict[str, Reference] = {}


def reference(*names: str, random: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function for the operators npu::name, or namespace::name; overloads are name.overload."""

    def register(function: Function) -> Function:
        for name in names:
            REFERENCES[name if "::" in name else f"npu::{name}"] = Reference(function, random)
        return function

    return register
