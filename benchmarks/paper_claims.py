"""Every empirical claim of the paper; those of one suite alone are in that suite's file."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kalmanac._encoders.parameters import (
    BEST_ARM,
    WALKER_RUN,
    AgentSizes,
    Share,
    ten_percent_rule,
)
from kalmanac._report.groups import agent_name
from kalmanac._settings import ORACLE
from paper_claims_best_arm import CLAIMS as BEST_ARM_CLAIMS
from paper_claims_best_arm import KF, STATEFUL, both_places, in_distribution, over, plain
from paper_claims_best_arm import OPTIONAL as OPTIONAL_COSTS
from paper_claims_best_arm import pairs as bandits
from paper_claims_control import CLAIMS as CONTROL_CLAIMS
from paper_claims_control import DESIGN, improves
from paper_claims_control import apart as control_apart
from paper_claims_popgym import CLAIMS as POPGYM_CLAIMS
from paper_claims_popgym import REPEAT, better, speed
from paper_claims_popgym import apart as popgym_apart
from paper_evidence import (
    ABOVE,
    AGREE,
    ALIKE,
    DIFFER,
    NO_LESS,
    Book,
    Claim,
    Part,
    difference,
)

RIVALS = ("mamba", "gru", "transformer")
TOLERANCE, GRU_MORE, GRU_NEAR = 0.1, 0.4, 0.05
SIX_PERCENT, SMALL = 0.06, 1_000_000
COUNTED = "counted, by our reading of Table 1"
POPGYM_SIZES = {  # observations one-hot, discrete actions; sizes of heads as in control
    "RepeatPreviousEasy": AgentSizes(4, 4, True, (256, 256), (256, 256), feedforward=256),
    "MineSweeperEasy": AgentSizes(3, 16, True, (256, 256), (256, 256), feedforward=256),
}


def excels(book: Book) -> Iterator[Part]:
    """Best Arm and noisy control, beside stateful models without a filter."""
    for part in both_places(book, STATEFUL):
        yield _named("Best Arm", part)
    for part in improves(book, KF, STATEFUL):
        yield _named("control", part)


def trains(book: Book) -> Iterator[Part]:
    """vSSM+KF beside Memoryless in all three, and with the paper's plain objective."""
    for part in over(book, ["memoryless"], in_distribution):
        yield _named("Best Arm", part)
    yield plain(book)
    for part in improves(book, KF, ["memoryless"]):
        yield _named("control", part)
    yield _named("POPGym", better(book, KF, "memoryless"))


def upper_bound(book: Book) -> Iterator[Part]:
    """Oracle no more than the margin below vSSM+KF."""
    name, costs = "Best Arm, Oracle over vSSM+KF", bandits(ORACLE, KF)
    yield difference(book, name, costs, in_distribution, NO_LESS, OPTIONAL_COSTS)
    yield _named("control", control_apart(book, ORACLE, KF, NO_LESS))
    yield _named("POPGym", popgym_apart(book, ORACLE, KF, NO_LESS))


def lower_bound(book: Book) -> Iterator[Part]:
    """Three memories no more than the margin below Memoryless."""
    for agent in (KF, "vssm", "gru"):
        name, costs = f"Best Arm, {agent_name(agent)} over Memoryless", bandits(agent, "memoryless")
        yield difference(book, name, costs, in_distribution, NO_LESS, OPTIONAL_COSTS)
        yield _named("control", control_apart(book, agent, "memoryless", NO_LESS))
        yield _named("POPGym", popgym_apart(book, agent, "memoryless", NO_LESS))


def parameters(book: Book) -> Iterator[Part]:
    """Counted, not run: our reading of Table 1."""
    for name, sizes in (("walker-run", WALKER_RUN), ("Best Arm", BEST_ARM)):
        shares = {row.encoder: row for row in ten_percent_rule(sizes)}
        gru = shares.pop("gru")
        least, most = min(shares.values(), key=_size), max(shares.values(), key=_size)
        more = _size(most) / _size(least) - 1
        near = abs(gru.ratio - 1 - GRU_MORE) <= GRU_NEAR
        told = ", ".join(_share(row) for row in (*shares.values(), gru))
        most_name, least_name = agent_name(most.encoder), agent_name(least.encoder)
        why = [f"{most_name} has {more:.0%} more than {least_name}"] if more > TOLERANCE else []
        why += [] if near else [f"GRU has {gru.ratio - 1:.0%} more than vSSM"]
        yield Part(name, DIFFER if why else AGREE, told, "", COUNTED, "; ".join(why))


def all_small(book: Book) -> Iterator[Part]:
    """The largest agent of all that are counted here."""
    sizes = (WALKER_RUN, BEST_ARM, *POPGYM_SIZES.values())
    most = max((row for one in sizes for row in ten_percent_rule(one)), key=_size)
    word = AGREE if _size(most) < SMALL else DIFFER
    yield Part("the largest", word, f"{agent_name(most.encoder)} {_size(most):,}", "", COUNTED)


def _size(row: Share) -> int:
    return row.agent_parameters


def few_more(book: Book) -> Iterator[Part]:
    """vSSM+KF beside vSSM in the two tasks in which it gains most."""
    for task, sizes in POPGYM_SIZES.items():
        (row,) = ten_percent_rule(sizes, [KF], tolerance=SIX_PERCENT)
        why = "" if row.within else "more than 6 %"
        yield Part(task, AGREE if row.within else DIFFER, _share(row), "", COUNTED, why)


def _share(row: Share) -> str:
    return f"{agent_name(row.encoder)} {row.agent_parameters:,} ({row.ratio - 1:+.1%})"


def _named(suite: str, part: Part) -> Part:
    """The part under the name of its suite."""
    return replace(part, what=f"{suite}, {part.what}")


FIRST = (
    Claim(
        "abstract, 1, 6",
        "Where uncertainty decides (Best Arm, noisy control), Kalman layers outperform stateful "
        "models without a filter: vSSM, Mamba, GRU",
        excels,
    ),
    Claim(
        "1",
        "Kalman layers can be trained end to end by model-free objectives (ours: better than "
        "Memoryless)",
        trains,
    ),
    Claim(
        "abstract, 3.5, 6", "The scan's time grows with the logarithm of the sequence's length",
        "No run of the queue is about time. [Where a scan's time goes](gpu-scan.md) has "
        "measurements.",
    ),
    Claim(
        "4.1", "One linear layer as embedder is as reliable as nonlinear ones",
        "The paper shows no numbers, and the queue has no other embedder.",
    ),
    DESIGN,
    Claim(
        "4.3", "Masked operators bring no speed at these sizes",
        "The paper expects it and shows no numbers; no run of the queue is about time.",
    ),
    Claim(
        "5.1",
        "Agents with memory have parameter counts within 10 % of each other; GRU has about 40 % "
        "more",
        parameters,
    ),
    Claim(
        "5.1", "Oracle is an upper bound of agents with memory (ours: no less than vSSM+KF)",
        upper_bound,
    ),
    Claim(
        "5.1", "Memoryless is a lower bound of agents with memory (ours: vSSM+KF, vSSM, GRU)",
        lower_bound,
    ),
)  # fmt: skip
SIX_MORE = Claim(
    "5.4",
    "In the two tasks where it gains most, vSSM+KF has less than 6 % more parameters than vSSM",
    few_more,
)
LAST = (
    Claim(
        "6", "In general memory tasks vSSM+KF does as well as Mamba, GRU and vTransformer",
        lambda book: [popgym_apart(book, KF, rival, ALIKE) for rival in RIVALS],
    ),
    Claim(
        "5.4, 6",
        "In tasks of memory vSSM+KF learns later than Mamba, GRU and vTransformer (ours: four "
        "Repeat tasks, mean of MMER over the training)",
        lambda book: [popgym_apart(book, rival, KF, ABOVE, speed, REPEAT) for rival in RIVALS],
    ),
    Claim("6", "All models have fewer than a million parameters", all_small),
    Claim(
        "C, table 1, footnote",
        "In MineSweeperEasy the usual target entropy makes training diverge; half of it does not",
        "The queue has no run with the usual target entropy there.",
    ),
)  # fmt: skip
CLAIMS: Sequence[Claim] = (
    *FIRST, *BEST_ARM_CLAIMS, *CONTROL_CLAIMS, *POPGYM_CLAIMS[:3], SIX_MORE, *POPGYM_CLAIMS[3:],
    *LAST,
)  # fmt: skip
