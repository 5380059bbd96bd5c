"""The arguments of RecurrentSAC: all settings of the agent, where it learns, and on what."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec

import torch

from kalmanac.expect import expect_known
from kalmanac.rollout.streams import Environment
from kalmanac.settings import SACSettings

P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Arguments(SACSettings):
    """The signature of `RecurrentSAC`; nobody makes one."""

    env: Environment | None = field(default=None, kw_only=False)
    seed: int | None = None
    device: str | torch.device = "auto"


def takes(
    arguments: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give an `__init__` the signature of another callable, for editors, type checkers and `help`.

    The method is called with what its caller gave, as keywords. TypeError with the nearest right
    name for an argument that does not exist.
    """
    signature = inspect.signature(arguments)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)

    def sign(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(method)
        def init(self: Any, *args: P.args, **kwargs: P.kwargs) -> None:
            for name in kwargs:
                try:
                    expect_known("argument", name, signature.parameters)
                except ValueError as error:
                    raise TypeError(str(error)) from None
            method(self, **signature.bind(*args, **kwargs).arguments)

        signed: Any = init
        signed.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])
        return signed

    return sign
