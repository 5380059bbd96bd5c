"""What the paper says of POPGym (sections 5.4 and 5.5, appendices I to K), and our test."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from kalmanac._lab.experiment import Experiment
from kalmanac._report.groups import Group, agent_name
from kalmanac._report.published import BEST, popgym_table
from kalmanac._report.scores import best, curve, popgym_scale
from kalmanac._report.statistics import (
    Interval,
    difference_interval,
    mean_and_error,
    standard_errors_apart,
)
from kalmanac._suites.popgym import LAYERS, SIZE_ABLATION_TASKS, WIDTHS
from kalmanac._suites.popgym import TASKS as MEMORY
from kalmanac._suites.popgym import paper as popgym
from paper_cells import HALF, on_a_gpu
from paper_claims_best_arm import KF, NO_INPUT
from paper_evidence import (
    ABOVE,
    AGREE,
    ALIKE,
    DIFFER,
    LEAST_SEEDS,
    NO_RUNS,
    OPEN,
    Book,
    Claim,
    Floats,
    Pair,
    Part,
    Range,
    Score,
    decided,
    difference,
    draws,
    probability,
    shared,
)

BUDGETS: dict[str, dict[str, int]] = {"1M steps": {}, "500K of 1M steps": HALF}
SHORTER = "500K of 1M steps"
HALF_NOTE = f"; {SHORTER}"
REPEAT = ("RepeatFirstEasy", "RepeatFirstMedium", "RepeatPreviousEasy", "RepeatPreviousMedium")
LONGEST = "RepeatFirstMedium"
CLOSE = 2.0  # standard errors
SEEDS, BEST_SEEDS = 5, 3  # behind a printed score of the paper, and of POPGym's authors
ROUNDING = 0.0005  # half a unit of the last printed digit
RARE = 0.05  # of a test: what happens by chance less often is no chance
MOST = 1.0  # the largest score: nobody is above it
OFTEN = 6  # of twelve tasks
FEWER_STEPS = "fewer steps than the paper's"
PERCENT = (2.5, 97.5)
NO_RUNS_OF_ALL = "not every size has seeds enough"


@cache
def arm(task: str, agent: str, budget: str) -> Experiment:
    """One agent in one task."""
    return on_a_gpu(popgym(agent, task=task).changed(BUDGETS[budget]))


def pairs(ours: str, theirs: str, budget: str, tasks: Sequence[str] = MEMORY) -> list[Pair]:
    """Trained equally long."""
    return [Pair(task, arm(task, ours, budget), arm(task, theirs, budget)) for task in tasks]


def mmer(group: Group) -> Floats:
    """MMER as the paper's figure has it: shifted to [0, 1], by the best of POPGym's authors."""
    return popgym_scale()[group.task](best(group))


def speed(group: Group) -> Floats:
    """Mean over the training of MMER so far: what learns earlier has more."""
    if not group.runs:
        return np.zeros(0)
    return popgym_scale()[group.task](np.nanmean(curve(group, best_so_far=True).values, axis=1))


class Chosen(NamedTuple):
    """Pairs at one budget, and the budget in words."""

    pairs: list[Pair]
    note: str


def chosen(book: Book, ours: str, theirs: str, tasks: Sequence[str] = MEMORY) -> Chosen:
    """Where more tasks can be decided, or else more runs are shared; of equal ones, the longer."""

    def known(budget: str) -> tuple[int, int]:
        found = shared(book, pairs(ours, theirs, budget, tasks), best)
        enough = len(tasks) - len(found.short)
        return enough, 0 if enough else found.cells

    budget = max(BUDGETS, key=known)
    budget = budget if any(known(budget)) else SHORTER
    return Chosen(pairs(ours, theirs, budget, tasks), f"; {budget}")


def better(book: Book, ours: str, theirs: str) -> Part:
    """Probability of improvement over twelve tasks."""
    both, note = chosen(book, ours, theirs)
    name = f"{agent_name(ours)} over {agent_name(theirs)}"
    return probability(book, name, both, best, note)


def apart(
    book: Book, ours: str, theirs: str, within: Range, score: Score = mmer,
    tasks: Sequence[str] = MEMORY,
) -> Part:  # fmt: skip
    """Mean normalized difference over tasks."""
    both, note = chosen(book, ours, theirs, tasks)
    name = f"{agent_name(ours)} over {agent_name(theirs)}"
    return difference(book, name, both, score, within, note=note)


def largest(book: Book, task: str, score: Score) -> Iterator[Part]:
    """Whether vSSM+KF gains on vSSM in this task, and more than in the next best one."""
    both, note = chosen(book, KF, "vssm")
    found = shared(book, both, score)
    sides = dict(zip(found.tasks, zip(found.ours, found.theirs, strict=True), strict=True))
    if task not in sides:
        yield Part(task, OPEN, why=NO_RUNS, missing=found.missing)
        return

    def part(what: str, interval: Interval) -> Part:
        n = found.n + note
        return decided(what, interval, ABOVE, n, short=found.short, missing=found.missing)

    x, y = sides.pop(task)
    yield part(task, difference_interval([x], [y]))
    if sides:
        second = max(sides, key=lambda name: float(sides[name][0].mean() - sides[name][1].mean()))
        their_x, their_y = sides[second]
        half = difference_interval([x, their_y], [y, their_x])  # the mean of two "tasks"
        more = Interval(*(2 * number for number in half))
        yield part(f"{task}, more than in {second}", more)


class Row(NamedTuple):
    """Our MMER beside a printed one, and in words which runs are not there."""

    task: str
    values: Floats
    printed: tuple[float, float]
    lacking: str

    @property
    def apart(self) -> float:
        """The difference in standard errors of both; NaN where ours is not known."""
        return standard_errors_apart(*mean_and_error(self.values), *self.printed)

    @property
    def as_printed(self) -> bool:
        """Whether chance explains the difference."""
        return abs(by_chance(self.values, *self.printed, SEEDS)) <= 1


def by_chance(values: Floats, mean: float, error: float, seeds: int) -> float:
    """The difference from a printed mean, by the largest that Welch's test puts down to chance.

    The printed mean has a standard error of `seeds` runs, and is rounded; the bound of rounding is
    known, and so has no part in Satterthwaite's degrees of freedom.
    """
    from scipy.special import stdtrit

    own, its = float(values.var(ddof=1)) / len(values), error**2
    variance = own + its + ROUNDING**2
    unsure = own**2 / (len(values) - 1) + its**2 / (seeds - 1)
    freedom = variance**2 / unsure if unsure else np.inf
    reach = stdtrit(freedom, 1 - RARE / 2) * np.sqrt(variance)
    return float((values.mean() - mean) / reach)


def far_by_chance() -> int:
    """Of twelve tasks, how many may be far: more are so in less than 5 % of all cases."""
    from scipy.special import bdtrc

    return next(k for k in range(len(MEMORY)) if bdtrc(k, len(MEMORY), RARE) < RARE)


def beside_printed(book: Book, agent: str, budget: str) -> list[Row]:
    """One row for each of twelve tasks."""
    rows = []
    for task in MEMORY:
        mine = book.arm(arm(task, agent, budget))
        printed = popgym_table().scores[task][agent]
        rows.append(Row(task, best(mine.group()), (printed.mean, printed.error), mine.lacking))
    return rows


class Counted(NamedTuple):
    """The rows of vSSM+KF with seeds enough, after which steps, and the arms of the others."""

    rows: list[Row]
    budget: str
    missing: dict[str, str]

    def part(self, word: str, value: str, why: str) -> Part:
        """A count has no interval; shorter trainings do not contradict a printed score."""
        if not self.rows:
            return Part("tasks", OPEN, why=NO_RUNS, missing=self.missing)
        if word == DIFFER and self.budget == SHORTER:
            word, why = OPEN, FEWER_STEPS
        n = f"{len(self.rows)} tasks; {self.budget}"
        return Part("tasks", word, value, "", n, why, self.missing if word == OPEN else {})


def counted(book: Book) -> Counted:
    """After as many steps as more tasks have; of equal ones, the more."""
    found = []
    for budget in BUDGETS:
        every = beside_printed(book, KF, budget)
        rows = [row for row in every if len(row.values) >= LEAST_SEEDS]
        missing = {
            book.arm(arm(row.task, KF, budget)).name: row.lacking
            for row in every
            if row.lacking and len(row.values) < LEAST_SEEDS
        }
        found.append(Counted(rows, budget, missing))
    most = max(found, key=lambda one: len(one.rows))
    return most if most.rows else found[-1]


def as_printed(book: Book) -> Iterator[Part]:
    """How many of the twelve scores of vSSM+KF are close to the printed ones."""
    found = counted(book)
    total = len(found.rows)
    far = sum(not row.as_printed for row in found.rows)
    word = DIFFER if far > far_by_chance() else AGREE if total == len(MEMORY) else OPEN
    why = f"more than {far_by_chance()} are far" if word == DIFFER else _undecided(total, word)
    yield found.part(word, f"{far} of {total} far from the printed score", why)


def above_published(book: Book) -> Iterator[Part]:
    """In how many tasks vSSM+KF has more than the best of POPGym's authors, and not by chance."""
    found = counted(book)
    yes = no = 0
    for row in found.rows:
        top = popgym_table().scores[row.task][BEST]  # with the deviation of its runs
        apart = by_chance(row.values, top.mean, top.error / np.sqrt(BEST_SEEDS), BEST_SEEDS)
        yes += apart > 1
        no += apart < -1 or top.mean >= MOST
    total = len(found.rows)
    word = AGREE if yes >= OFTEN else DIFFER if len(MEMORY) - no < OFTEN else OPEN
    value = f"{yes} of {total} above, {no} not, {total - yes - no} either"
    yield found.part(word, value, _undecided(total, word))


def _undecided(total: int, word: str) -> str:
    left = len(MEMORY) - total
    if word != OPEN:
        return ""
    return f"fewer than {LEAST_SEEDS} seeds in {left} tasks" if left else "too many may be either"


def size(task: str, width: int, layers: int) -> Experiment:
    """One of the ablation's arms."""
    settings = {"d_state": width, "layers": layers, "norm": True}
    return arm(task, KF, SHORTER).changed({"encoder_settings": settings})


def more_layers(book: Book, score: Score) -> Iterator[Part]:
    """Two and three layers beside one, over four tasks and four latent sizes."""
    for layers in LAYERS[1:]:
        both = [
            Pair(f"{task}, N = {width}", size(task, width, layers), size(task, width, 1))
            for task in SIZE_ABLATION_TASKS
            for width in WIDTHS
        ]
        yield difference(book, f"L = {layers} over 1", both, score, note=HALF_NOTE)


def most_sensitive(book: Book) -> Iterator[Part]:
    """The spread of means over all sizes, beside that of the task with the next largest one."""
    spreads: dict[str, Floats] = {}
    missing: dict[str, str] = {}
    for number, task in enumerate(SIZE_ABLATION_TASKS):
        arms = [book.arm(size(task, width, layers)) for width in WIDTHS for layers in LAYERS]
        short = {one.name: one.lacking for one in arms if len(one.runs) < LEAST_SEEDS}
        missing |= short
        if not short:
            spreads[task] = beyond_noise([mmer(one.group()) for one in arms], number)
    if len(spreads) < len(SIZE_ABLATION_TASKS):
        yield Part("spread of means", OPEN, why=NO_RUNS_OF_ALL, missing=missing)
        return
    ours = spreads.pop(LONGEST)
    second = max(spreads, key=lambda task: float(spreads[task].mean()))
    more = ours - spreads[second]
    interval = Interval(more.mean(), *np.percentile(more, PERCENT))
    n = f"4 tasks{HALF_NOTE}"
    yield decided(f"spread of means in {LONGEST}, more than in {second}", interval, ABOVE, n)


def beyond_noise(scores: Sequence[Floats], number: int) -> Floats:
    """In each resample, the spread of the arms' means less what it would be were all alike.

    Means of few noisy runs lie apart even where the sizes do not matter at all. Deviations of a
    resample have (n − 1) / n of the variance of means, which is made good.
    """
    means = np.asarray([x.mean() for x in scores])[:, None]
    drawn = [
        (x[index].mean(axis=1) - x.mean()) * np.sqrt(len(x) / (len(x) - 1))
        for x, index in zip(scores, draws(scores, number), strict=True)
    ]
    noise = np.stack(drawn)  # (arms, resamples)
    return np.ptp(means + noise, axis=0) - np.ptp(noise, axis=0)


def printed(task: str, *agents: str) -> str:
    """Numbers of the paper's table."""
    scores = popgym_table().scores[task]
    return ", ".join(f"{agent_name(agent)} {scores[agent].mean:.3f}" for agent in agents)


CLAIMS = (
    Claim(
        "5.4, figure 9", "vSSM+KF is significantly better than vSSM over twelve tasks",
        lambda book: [better(book, KF, "vssm")],
    ),
    Claim(
        "5.4, table 2",
        "vSSM+KF gains most on vSSM in the final MMER of MineSweeperEasy "
        f"({printed('MineSweeperEasy', KF, 'vssm')})",
        lambda book: largest(book, "MineSweeperEasy", mmer),
    ),
    Claim(
        "5.4, figure 17",
        "vSSM+KF gains most on vSSM in how early it learns in RepeatPreviousEasy (ours: mean of "
        "MMER over the training)",
        lambda book: largest(book, "RepeatPreviousEasy", speed),
    ),
    Claim(
        "5.4, figure 9", "vSSM+KF and vSSM+KF-u do alike",
        lambda book: [apart(book, KF, NO_INPUT, ALIKE)],
    ),
    Claim(
        "5.4, figure 17",
        "In tasks of memory alone Mamba learns earlier than vSSM+KF and vSSM (ours: four Repeat "
        "tasks, mean of MMER over the training)",
        lambda book: [
            apart(book, "mamba", rival, ABOVE, speed, REPEAT) for rival in (KF, "vssm")
        ],
    ),
    Claim(
        "5.4",
        "In tasks of long memory Mamba does as well as GRU and vTransformer; the paper's own table "
        f"says otherwise ({LONGEST}: {printed(LONGEST, 'mamba', 'gru', 'transformer')})",
        lambda book: [
            apart(book, "mamba", rival, ALIKE, mmer, [LONGEST]) for rival in ("gru", "transformer")
        ],
    ),
    Claim(
        "5.4, table 2",
        "Linear SSMs often beat the best published by POPGym's authors (ours: vSSM+KF in at least "
        f"{OFTEN} of 12 tasks, and not by chance, as in the paper's table)",
        above_published,
    ),
    Claim(
        "J, table 2, figure 18",
        f"The final MMER of vSSM+KF in twelve tasks is as printed (ours: at most {far_by_chance()} "
        "further than by chance)",
        as_printed,
    ),
    Claim(
        "J, table 2", "Which sequence model has the highest score of a task (printed in bold)",
        "The queue has no vSSM+KF-u in POPGym, so that the highest of the six cannot be told.",
    ),
    Claim(
        "5.5, figure 10", f"Latent size and layers matter most in {LONGEST}", most_sensitive,
    ),
    Claim(
        "5.5, figure 10", "More than one layer gives a better final MMER",
        lambda book: more_layers(book, mmer),
    ),
    Claim(
        "5.5, figure 19",
        "More than one layer learns earlier (ours: mean of MMER over the training)",
        lambda book: more_layers(book, speed),
    ),
    Claim(
        "5.5, footnote", "With more than one layer training is stable only with RMSNorm",
        "The queue has no run of several layers without RMSNorm.",
    ),
)  # fmt: skip
