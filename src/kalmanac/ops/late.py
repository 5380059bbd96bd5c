"""Functions whose module, and the compiler it needs, loads on the first call."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def late(module: str, function: str) -> Callable[..., Any]:
    """`module.function`, imported when it is first called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), function)(*arguments, **named)

    return call
