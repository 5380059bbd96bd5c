"""The paper's experiments. A new family is its file and one row here."""

from kalmanac.suites import best_arm
from kalmanac.suites.suite import Preset, Suite

SUITES: dict[str, Suite] = {
    "best-arm": best_arm.SUITE,
}
PRESETS: dict[str, Preset] = {
    name: preset for suite in SUITES.values() for name, preset in suite.presets.items()
}

__all__ = ["PRESETS", "SUITES", "Preset", "Suite"]
