"""Plans of runs that take seconds."""

import dataclasses

from kalmanac._cli.sweep import Options, sweep
from kalmanac._lab.experiment import Experiment
from kalmanac._suites.registry import default_folder
from kalmanac._sweep.plan import Planned
from tests.lab.tiny import TINY

FLAGS = [  # what makes a quick suite tiny
    "--preset=quick", "--seeds=1", "--no-tensorboard", "--total-steps=96", "--num-envs=4",
    "--learning-starts=32", "--batch-size=4", "--context-length=8", "--actor-hidden=8",
    "--critic-hidden=8", "--eval-every=96", "--log-every=48", "--eval-episodes=1",
]  # fmt: skip
FAILING = Experiment(
    **{**dataclasses.asdict(TINY), "env": "tests.lab.failing:Failing", "env_settings": {},
       "evaluations": ("in",), "eval_every": 1000},
)  # fmt: skip


def planned(root, *experiments, post_training=()):
    root = root.resolve()
    return [
        Planned(one, default_folder(one.env, one, root), tuple(post_training), ("small",))
        for one in experiments
    ]


def sweep_small(plan, root, **options):
    """As the verb does it: what is due, on this machine."""
    due = [one for one in plan if not one.done]
    shared = {"device": "cpu", "jobs": 2, "threads": 1, "tensorboard": False}
    return sweep(plan, due, root, Options(**{**shared, **options}))


def metrics(plan):
    return [(one.folder / "metrics.jsonl").read_bytes() for one in plan]
