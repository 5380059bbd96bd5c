"""Some environments need packages beyond kalmanac's own dependencies.

Where one is missing or unsuitable, one line says so, with the command that puts it right.
"""

import importlib
import importlib.metadata
import re
import sys
from collections.abc import Mapping
from types import ModuleType

# extra → package → (lowest version, first version too new, why), as in pyproject.toml
EXTRAS: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "dmc": {
        "dm_control": ("1.0.50", "1.1", "others are untested"),
        "mujoco": ("3.17", "4", "no task of dm_control 1.0 loads with another one"),
    },
    "popgym": {
        "popgym": ("1.0.6", "1.0.7", "later ones changed CountRecall and MineSweeper"),
    },
    "labyrinth": {
        "popgym": ("1.0.6", "1.0.7", "later ones changed CountRecall and MineSweeper"),
        "mazelib": ("0.9.16", "0.10", "others are untested"),
    },
    "mujoco": {
        "mujoco": ("3.17", "4", "others are untested"),
        "imageio": ("2.37", "3", "others are untested"),
    },
    "bullet": {
        "pybullet": ("3.2.7", "4", "others are untested"),
        "pybullet_envs_gymnasium": ("0.6.0", "0.7", "others are untested"),
    },
}

# package → the first Python for which it, or what it needs, comes without a wheel
WITHOUT_WHEEL = {"dm_control": (3, 13), "pybullet": (3, 12)}


class MissingExtraError(ModuleNotFoundError):
    """A package that an environment needs is not there, or has a version that does not work.

    Examples:
        >>> from kalmanac import MissingExtraError, make_env
        >>> try:
        ...     env = make_env("popgym/RepeatPreviousEasy")
        ... except MissingExtraError as error:
        ...     print(error)  # which command installs it
    """


def missing(extra: str) -> str | None:
    """Say in one line what keeps the environments of `extra` from running; None: nothing does."""
    for package, (lowest, beyond, why) in EXTRAS[extra].items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            python, without = sys.version_info[:2], WITHOUT_WHEEL.get(package)
            if without is not None and python >= without:
                return (
                    f"{package} is not installed: got Python {python[0]}.{python[1]}, expected one "
                    f"before {without[0]}.{without[1]}, for which there are wheels"
                )
            return f'{package} is not installed: pip install "kalmanac[{extra}]"'
        if not _parts(lowest) <= _parts(version) < _parts(beyond):
            return (
                f"{package}: got version {version}, expected {lowest} or newer, before {beyond} "
                f'({why}): pip install "{package}>={lowest},<{beyond}"'
            )
    return None


def load(extra: str, module: str) -> ModuleType:
    """Import `module` of an optional package, or raise MissingExtraError."""
    trouble = missing(extra)
    if trouble is not None:
        raise MissingExtraError(trouble)
    try:
        return importlib.import_module(module)
    except (ImportError, AttributeError, OSError) as error:  # as broken pairs of versions fail
        raise MissingExtraError(
            f"{module} cannot be imported ({' '.join(str(error).split())}): "
            f'pip install "kalmanac[{extra}]"'
        ) from error


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])
