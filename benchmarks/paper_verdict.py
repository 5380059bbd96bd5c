"""The paper claim by claim: what it says, what our runs say, and a verdict, as a page.

    python benchmarks/paper_verdict.py                # results/paper → docs/verdicts.md

Everything is computed from the run folders that `paper_queue.py take` left, by the statistics of
`kalmanac report`. Whatever has no runs is open, and the runs that it waits for are named.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import paper_maxima as maxima
from kalmanac._report.scores import LATE, LEAST
from kalmanac._suites.popgym import TASKS as MEMORY
from paper_cells import cells
from paper_claims import CLAIMS
from paper_claims_control import LEAST_SCALE, without_scale
from paper_claims_popgym import BEST_SEEDS, MOST, ROUNDING, SEEDS, far_by_chance
from paper_evidence import AGREE, DIFFER, LEAST_SEEDS, MARGIN, OPEN, Book, Claim, Part, verdict
from paper_sums import (
    MEANS_HEAD,
    NONE,
    PAIRS_HEAD,
    PRINTED_HEAD,
    Beside,
    Sum,
    beside,
    improvements,
    means,
)

ROOT = Path(__file__).parents[1]
LESS = "of 1M steps"  # in words on n
RESULTS, PAGE = ROOT / "results" / "paper", ROOT / "docs" / "verdicts.md"
CLAIMS_HEAD = (
    "", "where", "the paper says", "verdict", "measured", "ours", "n", "95 % interval",
    "by itself",
)  # fmt: skip
INTRO = """# The paper, claim by claim

`python benchmarks/paper_verdict.py` writes this page from the runs in `results/paper`; do not edit
it. [The queue](../results/paper/queue.md) says which runs there are, [The whole
paper](the-whole-paper.md) how to make more of them.
"""
RULES = f"""## How it is decided

- **Score of a run.** Best Arm: mean of the last {LATE} evaluations of the return, divided by 10.
  Noisy control: mean of the last {LATE} evaluations of the return; differences and IQM are divided
  by the mean of Oracle's in the same task. Tasks in which that is below {LEAST_SCALE:g}, a
  twentieth of the largest return, are left out by name: a quotient of so little is noise. POPGym:
  MMER, the largest evaluation; differences and IQM are shifted from [−1, 1] to [0, 1] and divided
  by the best score of POPGym's authors. (Figures of `kalmanac report` show the last evaluation of
  Best Arm and control, not the last {LATE}, and leave a task out where Oracle's is below
  {LEAST:g}.)
- **Seeds.** Two agents are compared over the seeds that both have. A run that diverged counts with
  the evaluations that it had; one that is not finished does not count. With fewer than
  {LEAST_SEEDS} seeds of each agent in a task nothing is decided.
- **Differences** are ours minus theirs, means over seeds, then over tasks, with Welch's 95 %
  interval. A cost of Best Arm is a task: costs 0 and 0.1 must be there, the others count when they
  are (the paper does not print its costs).
- **Spread** is the largest mean over seeds less the smallest, of all sizes in a task, with a
  bootstrap interval; as means of noisy runs lie apart by chance, the spread of the same resamples
  about their own means is taken off.
- **P** is the probability that a run of ours scores above one of theirs in the same task, with its
  stratified bootstrap interval, as in `kalmanac report`. Claims that an agent is better over all
  nine tasks of control or all twelve of POPGym go by it ("P ="), all others by differences, counts
  of tasks or spreads.
- **Verdict.** A claim names a range of a normalized score: "better" is above 0 (P above 0.5),
  "alike" within ±{MARGIN:g}, "no less" above −{MARGIN:g}, "hardly better" below {MARGIN:g}.
  **Agree**: the whole interval is in the range. **Differ**: no part of it is. **Open**: some of it
  is, or runs are missing. A claim of several parts holds where all of them do, and falls with one
  of them; "in some task" holds with one task, and falls with all of them. Nothing is corrected for
  the number of comparisons.
- **Not significantly better** differs where the whole interval is above 0, by however little, and
  agrees where it is not and stays below {MARGIN:g}. **Do not differ significantly** differs where 0
  is not in the interval, and agrees where it is and the interval stays within ±{MARGIN:g}. A wider
  interval shows nothing: open.
- **Most** is more than in the next best task: an interval of the difference between the two that is
  above 0.
- **Fails** is hardly better than Memoryless in a task in which vSSM+KF or Oracle is better than
  Memoryless. A task in which nobody has learned is open.
- **Printed scores** of POPGym. A score is far from the printed one where Welch's test tells the two
  apart at 5 %; the printed standard error is that of {SEEDS} seeds, and {ROUNDING:g} is added in
  quadrature, as printed scores are rounded. More than {far_by_chance()} of {len(MEMORY)} are far by
  chance in less than 5 % of all cases (binomial). Beside the best of POPGym's authors, which is of
  {BEST_SEEDS} seeds, a score is above, not above, or either, by the same test; nothing is
  above a best score of {MOST:g}. With fewer steps than the paper's these two claims are open where
  they would differ. The table below has plain standard errors.
- **Rules and margins** are ours. They were written when the queue had five runs of Best Arm's
  Oracle alone, but earlier runs of vSSM+KF, vSSM, GRU and Oracle, with other settings, were known
  by then ([findings](findings.md)). Those on "not significantly", "most", "fails", printed scores
  and small returns of Oracle were changed after a review, when the queue had 13 runs, of Best
  Arm's Oracle and Memoryless and of vSSM+KF in RepeatPreviousEasy.
- **Shorter trainings.** Best Arm has the paper's 500K steps. POPGym has 500K where the paper has
  1M, until 1M decides as many tasks; noisy control has 200K of 1M. Verdicts on these say "at fewer
  steps"; MMER is then the largest of fewer evaluations, too.
- **Settings** are those of our presets ([choices](choices.md)), the actor's objective among them.
  Runs with the paper's plain objective count only where a row says "plain objective".
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page. A run that cannot be read is named, and stops no other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of runs")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    options = parser.parse_args(argv)
    try:
        book = Book.read(options.results)
    except OSError as error:
        print(f"paper_verdict: {error}", file=sys.stderr)
        return 2
    for line in book.left_out:
        print(f"paper_verdict: {line}", file=sys.stderr)
    options.out.write_text("\n".join(page(book)) + "\n")
    print(f"written: {options.out.name}, from {book.finished} finished runs")
    return 1 if book.left_out else 0


def page(book: Book) -> Iterator[str]:
    """Its lines."""
    tested = [(claim, parts_of(claim, book)) for claim in CLAIMS]
    words = Counter(verdict(parts) for _, parts in tested)
    yield INTRO
    told = ", ".join(f"{word} {words[word]}" for word in (AGREE, DIFFER, OPEN))
    yield f"From {book.finished} finished runs of the queue's {len(cells()):,}. Of {len(CLAIMS)}"
    yield f"claims: {told}.\n"
    decided = [
        (f"{number}, {claim.where}", claim.says, word)
        for number, (claim, parts) in enumerate(tested, 1)
        if (word := verdict(parts)) != OPEN
    ]
    if decided:
        yield "Decided so far, by [the rules below](#how-it-is-decided), with numbers [further"
        yield "down](#claims):\n"
        yield from table(("claim", "what the paper says", "verdict"), decided)
        yield ""
    yield RULES
    if left := without_scale(book):
        yield "Left out of normalized scores of noisy control, as Oracle's return is below"
        yield f"{LEAST_SCALE:g} there: {', '.join(left)}.\n"
    yield "## Claims\n"
    yield from table(CLAIMS_HEAD, claim_rows(tested))
    single, both = means(book), improvements(book)
    yield from sums(single, both)
    yield from printed(book)
    missing: dict[str, dict[str, str]] = {
        str(number): dict(_missing(parts)) for number, (_, parts) in enumerate(tested, 1)
    }
    yield from lacking({**missing, "sums": {**single.missing, **both.missing}})


def parts_of(claim: Claim, book: Book) -> list[Part]:
    """What runs say of it; where none can, the reason."""
    if isinstance(claim.test, str):
        return [Part("", OPEN, why=claim.test)]
    return list(claim.test(book))


def claim_rows(tested: Iterable[tuple[Claim, list[Part]]]) -> Iterator[tuple[str, ...]]:
    """A row for each part that has a number, and one for all that have none."""
    for number, (claim, parts) in enumerate(tested, 1):
        word = verdict(parts)
        shorter = any(LESS in part.n for part in parts)
        told = word if word == OPEN else f"**{word}**{', at fewer steps' * shorter}"
        first: tuple[str, ...] = (str(number), claim.where, claim.says, told)
        for part in (part for part in parts if part.value):
            alone = part.verdict + (f": {part.why}" if part.why else "")
            yield (*first, part.what, part.value, part.n, part.interval or NONE, alone)
            first = ("", "", "", "")
        if bare := [part for part in parts if not part.value]:
            what = "; ".join(part.what for part in bare if part.what)
            why = "; ".join(dict.fromkeys(part.why for part in bare))
            yield (*first, what or NONE, NONE, NONE, NONE, f"open: {why}")


def _missing(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
    for part in parts:
        yield from part.missing.items()


def sums(single: Sum, both: Sum) -> Iterator[str]:
    """Interquartile means and probabilities of improvement."""
    yield "\n## Interquartile means\n"
    yield "Each agent over all runs that it has. Rows with other tasks or seeds cannot be compared;"
    yield "intervals are stratified bootstrap intervals over seeds, which one seed does not have.\n"
    yield from table(MEANS_HEAD, single.rows)
    yield from _no_runs(single.empty)
    yield "\n## vSSM+KF beside vSSM and GRU\n"
    yield "Over the (task, seed) cells that both agents have. In a single task, as in each row of"
    yield "Best Arm, a bootstrap over five seeds is too narrow: claims on it go by differences.\n"
    yield from table(PAIRS_HEAD, both.rows)
    yield from _no_runs(both.empty)


def _no_runs(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"\nOpen, without runs: {'; '.join(names)}."


def printed(book: Book) -> Iterator[str]:
    """POPGym's table."""
    yield "\n## POPGym beside the printed table\n"
    yield "MMER, mean ± standard error over seeds (the paper: five). The difference is divided by"
    yield "the standard error of both numbers together. The paper trained for 1M steps; each title"
    yield "says how long ours did."
    for one in beside(book):
        yield f"\n### {one.title}\n"
        yield from table(PRINTED_HEAD, one.rows)
        total = len(one.rows)
        yield f"\nWithin two standard errors: {one.close} of {one.known} tasks with two seeds or"
        yield f"more; {total - one.known} of {total} are open."
        yield from of_a_maximum(book, one)


def of_a_maximum(book: Book, one: Beside) -> Iterator[str]:
    """What of these numbers is level, and what is luck."""
    lines = list(maxima.rows(book, one.agent, one.budget))
    if lines:
        few, many = (f"{maxima.largest_of(n):.2f}" for n in (50, maxima.TWICE))
        yield "\nMMER is a maximum. At a level that stays, the largest of 50 evaluations lies about"
        yield f"{few} times their scatter above it, the largest of {maxima.TWICE} {many} times. Our"
        yield f"level is the mean of a run's last {maxima.LATEST} evaluations; the scatter is their"
        yield "standard deviation about a line, and the rise that of the line in as many steps as"
        yield "the run has. Both estimates are too high, as earlier evaluations lie lower: see how"
        yield "far the one for as many evaluations lies above our MMER.\n"
        yield from table(maxima.HEAD, lines)


def lacking(missing: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Arms that hold a verdict up, by what they hold up."""
    yield "\n## Missing runs\n"
    yield "Arms of the queue and their seeds without a finished run; the last column has numbers"
    yield 'of the claims that wait for them, and "sums" for the interquartile means.\n'
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for label, arms in missing.items():
        for name, seeds in arms.items():
            waiting[name, seeds].append(label)
    alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (name, seeds), labels in waiting.items():
        suite, _, what = name.partition(".")
        alike[suite, seeds, ", ".join(labels)].append(what)
    rows = [(suite, ", ".join(x), seeds, who) for (suite, seeds, who), x in alike.items()]
    rows.sort(key=lambda row: row[0])
    yield from table(("suite", "arms", "seeds", "claims"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """As Markdown; a table without rows says so."""
    lines = [_line(row) for row in rows]
    if not lines:
        yield "Open: no runs."
        return
    yield from (_line(head), "|" + "---|" * len(head), *lines)


def _line(cells_of_a_row: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells_of_a_row) + " |"


if __name__ == "__main__":
    sys.exit(main())
