"""The ablation of latent size N and layers L (paper, section 5.5): four tasks of POPGym."""

from collections.abc import Iterator

from kalmanac._lab.experiment import Experiment
from kalmanac._suites.popgym import SEEDS, paper
from kalmanac._suites.suite import Suite

TASKS = (  # the first is the paper's, the others are a choice
    "RepeatFirstMedium", "RepeatPreviousEasy", "MineSweeperEasy", "NoisyPositionOnlyCartPoleHard"
)  # fmt: skip
WIDTHS = (32, 64, 128, 256)
LAYERS = (1, 2, 3)


def runs() -> Iterator[Experiment]:
    """All with an RMSNorm at the end (Table 1)."""
    for task in TASKS:
        for width in WIDTHS:
            for layers in LAYERS:
                for seed in SEEDS:
                    yield paper("vssm+kf", task=task, seed=seed).changed(
                        {"encoder_settings": {"d_state": width, "layers": layers, "norm": True}}
                    )


SUITE = Suite("four tasks that need memory, with memories of other sizes", runs)
