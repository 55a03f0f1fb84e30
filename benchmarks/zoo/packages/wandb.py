"""Stands in for wandb: takes every call and does nothing."""

from __future__ import annotations

from typing import Any


class _Anything:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        return self


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything()
