"""What the paper says of noisy control (sections 4.2, 5.3, appendices E to H), and our test."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from kalmanac._envs.dmc import NOISE
from kalmanac._lab.experiment import Experiment
from kalmanac._report.groups import Group, agent_name
from kalmanac._report.scores import late
from kalmanac._settings import ORACLE
from kalmanac._suites.dmc import ACTION_NOISE_SCALE, DESIGNS, NOISE_ABLATION_TASKS, NOISE_STRENGTHS
from kalmanac._suites.dmc import TASKS as CONTROL
from kalmanac._suites.dmc import paper as dmc
from paper_cells import SHORT, on_a_gpu
from paper_claims_best_arm import KF, MEMORIES, NO_INPUT
from paper_evidence import (
    ABOVE,
    AGREE,
    ALIKE,
    DIFFER,
    NO_LESS,
    NO_MORE,
    NOT_APART,
    NOT_BETTER,
    OPEN,
    Book,
    Claim,
    Floats,
    Pair,
    Part,
    Range,
    Score,
    any_of,
    difference,
    probability,
    verdict,
)

NOTE = "; 200K of 1M steps"
LARGEST = 1000.0  # return of a control task
LEAST_SCALE = 50.0  # of Oracle's return: less would make noise of 5 points a difference of 0.1
NOBODY = "neither vSSM+KF nor Oracle is above Memoryless there"
PENDULUM = "pendulum-swingup"
FIVE = 5  # tasks of nine
DESIGN_NAMES = ("time-varying process noise", "covariance as output", "both")


@cache
def arm(task: str, agent: str, **changes: Any) -> Experiment:
    """One agent in one task with the task's own noise, if nothing else is said."""
    return on_a_gpu(dmc(agent, task=task).changed({**SHORT, **changes}))


def noisy(task: str, agent: str, strength: float) -> Experiment:
    """Under another noise; Oracle sees none, and has the runs of the benchmark."""
    return arm(task, agent) if agent == ORACLE else arm(task, agent, noise=strength * NOISE[task])


def pairs(ours: str, theirs: str, tasks: Sequence[str] = CONTROL) -> list[Pair]:
    """Returns are divided by Oracle's."""
    return [Pair(t, arm(t, ours), arm(t, theirs), (arm(t, ORACLE),)) for t in tasks]


def at(ours: str, theirs: str, tasks: Sequence[str], strengths: Sequence[float]) -> list[Pair]:
    """A task under one noise is a task."""
    return [
        Pair(
            task if len(strengths) == 1 else f"{task} × {x:g}", noisy(task, ours, x),
            noisy(task, theirs, x), (arm(task, ORACLE),),
        )
        for task in tasks
        for x in strengths
    ]  # fmt: skip


def by_oracle(book: Book) -> Score:
    """Mean of the last five evaluations, divided by the mean of Oracle's, where that is enough."""

    def score(group: Group) -> Floats:
        oracle = late(book.arm(arm(group.task, ORACLE)).group())
        if not len(oracle) or oracle.mean() < LEAST_SCALE:
            return np.zeros(0)
        return late(group) / oracle.mean()

    return score


def without_scale(book: Book) -> list[str]:
    """Tasks in which Oracle has runs, but too small a return to divide by."""
    oracle = {task: late(book.arm(arm(task, ORACLE)).group()) for task in CONTROL}
    return [task for task, x in oracle.items() if len(x) and x.mean() < LEAST_SCALE]


def normalized(book: Book, what: str, both: Sequence[Pair], within: Range = ABOVE) -> Part:
    """The difference by Oracle's return; tasks in which that is too small are left out by name."""
    low = {task: arm(task, ORACLE) for task in without_scale(book)}
    left = [task for task, oracle in low.items() if any(pair.scale == (oracle,) for pair in both)]
    kept = [pair for pair in both if pair.scale[0] not in low.values()]
    words = f"{', '.join(left)}: Oracle's return is below {LEAST_SCALE:g}"
    if not kept:
        return Part(what, OPEN, why=f"no scale in {words}")
    note = f"{NOTE}; without {words}" if left else NOTE
    return difference(book, what, kept, by_oracle(book), within, note=note)


def by_largest(group: Group) -> Floats:
    """Where there is no Oracle."""
    return late(group) / LARGEST


def improves(book: Book, ours: str, rivals: Sequence[str], what: str = "over") -> Iterator[Part]:
    """Probability of improvement over nine tasks, which needs no scale."""
    for rival in rivals:
        both = [pair._replace(scale=()) for pair in pairs(ours, rival)]
        yield probability(book, f"{what} {agent_name(rival)}", both, late, NOTE)


def apart(
    book: Book, ours: str, theirs: str, within: Range, tasks: Sequence[str] = CONTROL
) -> Part:
    """Mean normalized difference over tasks."""
    name = f"{agent_name(ours)} over {agent_name(theirs)}"
    return normalized(book, name, pairs(ours, theirs, tasks), within)


def by_task(
    book: Book, ours: str, theirs: str, within: Range, strengths: Sequence[float] = (1.0,),
    tasks: Sequence[str] = CONTROL,
) -> list[Part]:  # fmt: skip
    """One part for each task."""
    return [normalized(book, task, at(ours, theirs, [task], strengths), within) for task in tasks]


def somewhere(
    book: Book, ours: str, theirs: str, within: Range, strengths: Sequence[float] = (1.0,),
    tasks: Sequence[str] = CONTROL,
) -> Part:  # fmt: skip
    """In one of the tasks."""
    name = f"{agent_name(ours)} over {agent_name(theirs)}"
    return any_of(name, by_task(book, ours, theirs, within, strengths, tasks))


def best_or_comparable(book: Book) -> Iterator[Part]:
    """In how many tasks no other memory is above vSSM+KF by more than the margin."""
    found: list[str] = []
    missing: dict[str, str] = {}
    for task in CONTROL:
        parts = [normalized(book, x, pairs(KF, x, [task]), NO_LESS) for x in MEMORIES]
        found.append(verdict(parts))
        if found[-1] == OPEN:
            missing |= {name: seeds for part in parts for name, seeds in part.missing.items()}
    yes, no = found.count(AGREE), found.count(DIFFER)
    word = AGREE if yes >= FIVE else DIFFER if len(CONTROL) - no < FIVE else OPEN
    why = f"{len(CONTROL) - yes - no} of {len(CONTROL)} tasks are undecided" if word == OPEN else ""
    value, n = (f"{yes} yes, {no} no", f"{yes + no} tasks{NOTE}") if yes + no else ("", "")
    yield Part("tasks", word, value, "", n, why, missing if word == OPEN else {})


def robust(book: Book, agent: str, tasks: Sequence[str]) -> Iterator[Part]:
    """Mean over all noises above 0, beside the two others of the ablation."""
    strengths = [x for x in NOISE_STRENGTHS if x > 0]
    for task in tasks:
        for rival in (KF, "vssm", "transformer"):
            if rival != agent:
                name = f"{task}, over {agent_name(rival)}"
                yield normalized(book, name, at(agent, rival, [task], strengths))


def everywhere(book: Book) -> Iterator[Part]:
    """All tasks and noises of the ablation together."""
    for rival in ("vssm", "transformer"):
        both = at(KF, rival, NOISE_ABLATION_TASKS, NOISE_STRENGTHS)
        yield normalized(book, f"over {agent_name(rival)}", both)


def above_oracle(book: Book) -> Iterator[Part]:
    """vSSM+KF in the pendulum under some noise."""
    parts = [
        normalized(book, f"noise × {x:g}", at(KF, ORACLE, [PENDULUM], [x])) for x in NOISE_STRENGTHS
    ]
    yield any_of("vSSM+KF over Oracle", parts)


def not_falling(book: Book) -> Iterator[Part]:
    """vSSM+KF in the pendulum under one noise beside the next smaller one."""
    parts = []
    for less, more in pairwise(NOISE_STRENGTHS):
        two = (noisy(PENDULUM, KF, more), noisy(PENDULUM, KF, less), (arm(PENDULUM, ORACLE),))
        parts.append(normalized(book, f"noise × {more:g} over {less:g}", [Pair(PENDULUM, *two)]))
    yield any_of("vSSM+KF", parts)


def designs(book: Book) -> Iterator[Part]:
    """The plain layer beside three others."""
    for name, design in zip(DESIGN_NAMES, DESIGNS[1:], strict=True):
        both = [
            Pair(t, arm(t, KF), arm(t, KF).changed({"encoder_settings": design})) for t in CONTROL
        ]
        yield probability(book, f"over {name}", both, late, NOTE)


def filter_hurts(book: Book) -> Iterator[Part]:
    """Noise on observations and actions."""
    noise = {"noise": ACTION_NOISE_SCALE, "action_noise": ACTION_NOISE_SCALE}
    task = "quadruped-walk"
    both = [Pair(task, arm(task, "vssm", **noise), arm(task, KF, **noise))]
    yield difference(book, "vSSM over vSSM+KF, return / 1000", both, by_largest, note=NOTE)


def fails(book: Book) -> Iterator[Part]:
    """Some task in which each of three agents is no better than Memoryless, and another is."""
    for agent in ("gru", "mamba", "transformer"):
        name = f"{agent_name(agent)} over Memoryless"
        yield any_of(name, [fails_in(book, agent, task) for task in CONTROL])


def fails_in(book: Book, agent: str, task: str) -> Part:
    """An agent does not fail in a task in which nobody has learned."""
    part = normalized(book, task, pairs(agent, "memoryless", [task]), NO_MORE)
    others = [normalized(book, x, pairs(x, "memoryless", [task])) for x in (KF, ORACLE)]
    learned = any_of("", others)
    if part.verdict != AGREE or learned.verdict == AGREE:
        return part
    return replace(part, verdict=OPEN, why=NOBODY, missing=learned.missing)


DESIGN = Claim(
    "4.2, 6, figure 13",
    "In the noisy tasks the layer with constant process noise and the mean alone as output is "
    "better than the three that have either addition or both",
    designs,
)
CLAIMS = (
    Claim(
        "5.3, figure 7", "vSSM+KF is significantly better than vSSM over nine noisy tasks",
        lambda book: improves(book, KF, ["vssm"]),
    ),
    Claim(
        "5.3, figure 7", "GRU and Mamba are not significantly better than vSSM",
        lambda book: [apart(book, agent, "vssm", NOT_BETTER) for agent in ("gru", "mamba")],
    ),
    Claim(
        "5.3, figure 7", "vSSM+KF handles noise better than GRU and Mamba",
        lambda book: improves(book, KF, ["gru", "mamba"]),
    ),
    Claim(
        "5.3, figure 7", "vSSM+KF and vSSM+KF-u do not differ significantly",
        lambda book: [apart(book, KF, NO_INPUT, NOT_APART)],
    ),
    Claim(
        "5.3, figure 14", "vSSM+KF is better than Memoryless in every task",
        lambda book: by_task(book, KF, "memoryless", ABOVE),
    ),
    Claim(
        "5.3, figure 14", "vSSM+KF is the best or comparable with the best in five of nine tasks",
        best_or_comparable,
    ),
    Claim(
        "5.3, figure 14",
        "GRU, Mamba and vTransformer each fail in some task, where they are hardly better than "
        "Memoryless",
        fails,
    ),
    Claim(
        "5.3, figure 8", "Without noise vSSM+KF has about the return of Oracle",
        lambda book: [
            normalized(
                book, "vSSM+KF over Oracle", at(KF, ORACLE, NOISE_ABLATION_TASKS, [0.0]), ALIKE
            )
        ],
    ),
    Claim(
        "5.3, figure 8", "Without noise vSSM and vTransformer are each below Oracle in some task",
        lambda book: [
            somewhere(book, ORACLE, agent, ABOVE, [0.0], NOISE_ABLATION_TASKS)
            for agent in ("vssm", "transformer")
        ],
    ),
    Claim(
        "5.3, figure 8",
        "Under noise vSSM+KF is the most robust in finger-spin, cheetah-run and pendulum-swingup",
        lambda book: robust(book, KF, ["finger-spin", "cheetah-run", PENDULUM]),
    ),
    Claim(
        "5.3, figure 8", "Under noise vSSM is the most robust in walker-run",
        lambda book: robust(book, "vssm", ["walker-run"]),
    ),
    Claim(
        "5.3, figure 8", "vSSM is significantly below vSSM+KF in some other task",
        lambda book: [
            somewhere(
                book, KF, "vssm", ABOVE, [x for x in NOISE_STRENGTHS if x > 0],
                [task for task in NOISE_ABLATION_TASKS if task != "walker-run"],
            )
        ],
    ),
    Claim(
        "5.3, figure 8",
        "Under noise vTransformer is the most robust in reacher-easy and point_mass-easy",
        lambda book: robust(book, "transformer", ["reacher-easy", "point_mass-easy"]),
    ),
    Claim(
        "5.3, figure 8", "vTransformer fails in pendulum-swingup (beside Memoryless)",
        lambda book: [fails_in(book, "transformer", PENDULUM)],
    ),
    Claim(
        "5.3, figure 8",
        "vSSM+KF is the most consistent over tasks and noises (the paper has no measure; ours is "
        "the mean over all of them)",
        everywhere,
    ),
    Claim(
        "5.3, footnote", "In pendulum-swingup vSSM+KF is above Oracle under some noise",
        above_oracle,
    ),
    Claim(
        "5.3, footnote", "In pendulum-swingup more noise does not always mean less return",
        not_falling,
    ),
    Claim(
        "5.3, H, figure 16",
        "Under noise on observations and actions vSSM+KF has about the final return of the best "
        "model-based agent in three of four tasks, and learns more slowly",
        "The paper prints no numbers of the model-based agents, and no run of the queue has them.",
    ),
    Claim(
        "H, figure 16", "In quadruped-walk the filter does harm: vSSM is better than vSSM+KF",
        filter_hurts,
    ),
)  # fmt: skip
