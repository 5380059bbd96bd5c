"""Whose code an environment's name stands for, asked without importing any of it."""

import re

import gymnasium

from kalmanac.envs.table import ENVS

KNOWN = ("gymnasium", "kalmanac")  # packages


def foreign_code(name: str) -> str | None:
    """What would be imported and called to make environment `name`, in words; None: nobody else's.

    Names of the table are this package's code, and registered ids are whose entry point they have:
    Gymnasium's own and this package's are known. One that nobody has registered is no code at all.
    """
    if name in ENVS:
        return None
    if ":" in name:
        module, _, attribute = name.partition(":")
        return f"import {module!r} and use {attribute!r} of it"
    spec = gymnasium.registry.get(name)
    if spec is None:
        return None
    points = (spec.entry_point, spec.vector_entry_point)
    places = [p if isinstance(p, str) else p.__module__ for p in points if p is not None]
    foreign = [place for place in places if re.split("[.:]", place)[0] not in KNOWN]
    return f"use {' and '.join(map(repr, foreign))}" if foreign else None
