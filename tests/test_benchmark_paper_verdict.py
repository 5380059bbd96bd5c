"""Verdicts on the paper's claims: made-up runs whose numbers are worked out by hand."""

import importlib
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from kalmanac._files.run_folder import RunFolder
from tests.report.synthetic import leave_heatmap

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
OWN = ("paper_cells", "paper_runs", "paper_evidence", "paper_sums", "paper_claims", "paper_verdict",
       "paper_claims_best_arm", "paper_claims_control", "paper_claims_popgym",
       "paper_maxima")  # fmt: skip
SCRIPTS = (*OWN, "small_runs", "learning", "report")
LAST = 5  # evaluations


@pytest.fixture(scope="module")
def scripts():
    """Imported once: the queue is long."""
    sys.path.insert(0, str(BENCHMARKS))
    yield {name.removeprefix("paper_"): importlib.import_module(name) for name in SCRIPTS}
    sys.path.remove(str(BENCHMARKS))
    for name in SCRIPTS:
        sys.modules.pop(name)


@pytest.fixture
def evidence(scripts):
    return scripts["evidence"]


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


@pytest.fixture
def leave(scripts, results, tmp_path):
    """Runs of an arm, one for each return, as the queue takes them in."""

    def one(experiment, seed, value, out, until, grid):
        cell = scripts["cells"].cells()[experiment.changed({"seed": seed}).hash]
        what, source = cell.experiment, tmp_path / "runs" / cell.name
        scale = 10 if what.env == "best-arm" else 1
        end = int(what.total_steps * until)
        with RunFolder(source, what.to_data(), events=False) as run:
            for step in range(end - (LAST - 1) * what.eval_every, end + 1, what.eval_every):
                row = {}
                for place, number in zip(what.evaluations, (value, out), strict=False):
                    row[f"eval/{place}/mean_reward"] = scale * number
                    row[f"eval/{place}/normalized"] = number
                    row[f"eval/{place}/length"] = 100.0 + number
                run.log(step, row)
                run.log_time(step, {"time/elapsed": step / 1000})
            run.summarize(status="finished" if until == 1 else "interrupted", step=end)
        if grid:
            leave_heatmap(source, 5)
        assert scripts["runs"].Results(results).take(cell, scripts["small_runs"].read(source))

    def every(experiment, values, *, out=0.0, until=1.0, grid=False):
        for seed, value in enumerate(values):
            one(experiment, seed, value, out, until, grid)

    return every


@pytest.fixture
def book(evidence, results):
    return lambda: evidence.Book.read(results)


def bandits(scripts, leave, agent, values, costs=(0.0, 0.1), **how):
    for cost in costs:
        leave(scripts["claims_best_arm"].arm(agent, cost), values, **how)


def in_distribution(scripts, book, rival, within="ABOVE"):
    module = scripts["claims_best_arm"]
    rule = getattr(scripts["evidence"], within)
    return next(module.over(book, [rival], module.in_distribution, rule))


def test_an_agent_that_is_above_agrees_by_hand(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.7, 0.8, 0.9])
    bandits(scripts, leave, "gru", [0.1, 0.2, 0.3])
    part = in_distribution(scripts, book(), "gru")
    # variance 0.01 / 3 on four sides, by 2²: error 0.0577; 8 degrees of freedom, t = 2.306
    assert (part.value, part.interval, part.verdict) == ("+0.600", "[+0.467, +0.733]", "agree")
    assert part.n == "cost 0, cost 0.1; 3 seeds"
    assert (part.why, part.missing) == ("", {})


def test_one_below_differs_and_one_that_may_be_either_is_open(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.1, 0.2, 0.3])
    bandits(scripts, leave, "gru", [0.7, 0.8, 0.9])
    bandits(scripts, leave, "vssm", [0.0, 0.1, 0.2])
    found = book()
    below, near = (in_distribution(scripts, found, rival) for rival in ("gru", "vssm"))
    assert (below.value, below.verdict) == ("-0.600", "differ")
    assert below.why == "no part of the interval is above 0"
    assert (near.value, near.interval, near.verdict) == ("+0.100", "[-0.033, +0.233]", "open")
    assert near.why == "only a part of the interval is above 0"


def test_alike_is_a_range_and_not_a_lack_of_evidence(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.80, 0.81, 0.82])
    bandits(scripts, leave, "oracle", [0.84, 0.85, 0.86])
    bandits(scripts, leave, "gru", [0.5, 0.8, 1.0])
    bandits(scripts, leave, "vssm", [0.3, 0.3, 0.3])
    found = book()
    words = [in_distribution(scripts, found, x, "ALIKE").verdict for x in ("oracle", "gru", "vssm")]
    assert words == ["agree", "open", "differ"]
    assert in_distribution(scripts, found, "oracle", "NO_LESS").verdict == "agree"
    assert in_distribution(scripts, found, "oracle", "NO_MORE").verdict == "agree"
    assert in_distribution(scripts, found, "vssm", "NO_MORE").verdict == "differ"


def test_too_few_seeds_decide_nothing_and_are_named(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.7, 0.8, 0.9])
    bandits(scripts, leave, "gru", [0.1, 0.2, 0.3], costs=[0.0])
    bandits(scripts, leave, "gru", [0.1], costs=[0.1])
    part = in_distribution(scripts, book(), "gru")
    assert (part.verdict, part.interval, part.value) == ("open", "–", "+0.600")
    assert part.why == "fewer than 3 seeds of both: cost 0.1"
    assert part.missing == {"best-arm.cost0.1-vssm-kf": "3 4", "best-arm.cost0.1-gru": "1 2 3 4"}
    assert in_distribution(scripts, book(), "mamba").why == "runs are missing"


def test_only_finished_runs_count_and_others_say_how_far_they_are(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.7, 0.8, 0.9])
    bandits(scripts, leave, "gru", [0.1, 0.2, 0.3], until=0.5)
    part = in_distribution(scripts, book(), "gru")
    assert part.value == ""
    seeds = " ".join(f"{seed} (interrupted, step 250,000)" for seed in range(3)) + " 3 4"
    assert part.missing["best-arm.cost0-gru"] == seeds
    assert book().finished == 6


def test_seeds_that_one_of_the_two_lacks_do_not_count(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.7, 0.8, 0.9, -1.0, -1.0])
    bandits(scripts, leave, "gru", [0.1, 0.2, 0.3])
    assert in_distribution(scripts, book(), "gru").value == "+0.600"


def test_further_costs_count_once_they_have_seeds_enough(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.5, 0.5, 0.5])
    bandits(scripts, leave, "gru", [0.4, 0.4, 0.4])
    bandits(scripts, leave, "vssm+kf", [1.0, 1.0, 1.0], costs=[0.5])
    bandits(scripts, leave, "gru", [0.0, 0.0], costs=[0.5])
    assert in_distribution(scripts, book(), "gru").value == "+0.100"
    bandits(scripts, leave, "vssm+kf", [1.0, 1.0, 1.0], costs=[0.05])
    bandits(scripts, leave, "gru", [0.3, 0.3, 0.3], costs=[0.05])
    part = in_distribution(scripts, book(), "gru")
    assert (part.value, part.n) == ("+0.300", "cost 0, cost 0.05, cost 0.1; 3 seeds")


def test_a_claim_holds_with_all_parts_and_falls_with_one(evidence):
    def parts(*words):
        return [evidence.Part(str(i), word, "+1", "", "") for i, word in enumerate(words)]

    assert evidence.verdict(parts("agree", "agree")) == "agree"
    assert evidence.verdict(parts("agree", "open")) == "open"
    assert evidence.verdict(parts("agree", "open", "differ")) == "differ"
    found = evidence.any_of("x", parts("differ", "agree", "open"))
    assert (found.verdict, found.what) == ("agree", "x, in 1")
    assert evidence.any_of("x", parts("differ", "open")).verdict == "open"
    assert evidence.any_of("x", parts("differ", "differ")).verdict == "differ"


def control(scripts, leave, agent, values, tasks=None):
    module = scripts["claims_control"]
    for task in module.CONTROL if tasks is None else tasks:
        leave(module.arm(task, agent), values)


def claim(scripts, words):
    (found,) = (one for one in scripts["claims"].CLAIMS if words in one.says)
    return found


def test_not_significantly_falls_with_a_small_but_certain_difference(scripts, leave, book):
    control(scripts, leave, "oracle", [1000.0] * 3)
    control(scripts, leave, "vssm", [500.0] * 3)
    control(scripts, leave, "gru", [549.0, 550.0, 551.0])
    control(scripts, leave, "mamba", [449.0, 450.0, 451.0])
    found = book()
    better, worse = claim(scripts, "not significantly better than vSSM").test(found)
    # nine variances of 1e-6 / 3, by 9²: error 0.000192; 18 degrees of freedom, t = 2.101
    assert (better.value, better.interval) == ("+0.050", "[+0.050, +0.050]")
    assert (better.verdict, better.why) == ("differ", "0 is not in the interval")
    assert (worse.value, worse.verdict) == ("-0.050", "agree")  # worse is not better


def test_not_significantly_needs_an_interval_with_0_that_is_narrow(evidence):
    def words(low, high):
        interval = evidence.Interval((low + high) / 2, low, high)
        return [x.verdict(interval) for x in (evidence.NOT_BETTER, evidence.NOT_APART)]

    assert words(0.046, 0.054) == ["differ", "differ"]
    assert words(-0.054, -0.046) == ["agree", "differ"]
    assert words(-0.02, 0.05) == ["agree", "agree"]
    assert words(-0.02, 0.15) == ["open", "open"]
    assert words(-0.15, 0.02) == ["agree", "open"]
    assert words(float("nan"), float("nan")) == ["open", "open"]


def test_heat_maps_say_how_episodes_adapt(scripts, leave, book):
    module = scripts["claims_best_arm"]
    leave(module.arm("vssm+kf"), [0.5] * 3, grid=True)
    leave(module.arm("oracle"), [0.5] * 3)  # no maps
    noise, distance, *oracle = module.adaptation(book())
    assert (noise.verdict, distance.verdict) == ("agree", "agree")
    assert float(noise.value) > 0 > float(distance.value)
    assert {part.verdict for part in oracle} == {"open"}


def test_control_is_divided_by_oracle_and_compared_without_it(scripts, leave, book):
    module, evidence = scripts["claims_control"], scripts["evidence"]
    task = "cheetah-run"
    leave(module.arm(task, "vssm+kf"), [300.0, 310.0, 320.0])
    leave(module.arm(task, "vssm"), [100.0, 315.0, 120.0])
    both = module.pairs("vssm+kf", "vssm", [task])
    found = book()
    part = evidence.difference(found, "", both, module.by_oracle(found))
    assert (part.value, part.verdict) == ("", "open")
    assert part.missing["dmc.cheetah-run-oracle-200K"] == "0 1 2"
    part = evidence.probability(found, "", both, module.late)
    assert part.value == "P = 0.78"  # 2 + 2 + 3 of nine pairs
    leave(module.arm(task, "oracle"), [390.0, 400.0, 410.0])
    found = book()
    part = evidence.difference(found, "", both, module.by_oracle(found))
    assert part.value == "+0.329"  # (310 − 178.33) / 400
    assert next(module.improves(found, "vssm+kf", ["vssm"])).verdict == "open"  # eight tasks lack


def test_an_agent_fails_only_where_another_has_learned(scripts, leave, book):
    module = scripts["claims_control"]
    where = ["pendulum-swingup"]
    for agent in ("transformer", "memoryless", "vssm+kf", "oracle"):
        control(scripts, leave, agent, [99.0, 100.0, 101.0], where)
    test = claim(scripts, "vTransformer fails in pendulum-swingup").test
    (part,) = test(book())
    assert (part.value, part.verdict) == ("+0.000", "open")
    assert part.why == "neither vSSM+KF nor Oracle is above Memoryless there"
    *_, anywhere = module.fails(book())
    assert anywhere.verdict == "open"
    control(scripts, leave, "transformer", [99.0, 100.0, 101.0], ["cheetah-run"])
    control(scripts, leave, "memoryless", [99.0, 100.0, 101.0], ["cheetah-run"])
    control(scripts, leave, "oracle", [499.0, 500.0, 501.0], ["cheetah-run"])
    *_, anywhere = module.fails(book())
    assert anywhere.what == "vTransformer over Memoryless, in cheetah-run"
    assert anywhere.verdict == "agree"


def test_an_oracle_with_next_to_nothing_is_no_scale(scripts, leave, book, results, tmp_path):
    module, evidence = scripts["claims_control"], scripts["evidence"]
    two = ["cheetah-run", "pendulum-swingup"]
    control(scripts, leave, "oracle", [400.0] * 3, two[:1])
    control(scripts, leave, "oracle", [20.0] * 3, two[1:])
    control(scripts, leave, "vssm+kf", [300.0] * 3, two[:1])
    control(scripts, leave, "vssm+kf", [40.0] * 3, two[1:])
    control(scripts, leave, "gru", [100.0] * 3, two[:1])
    control(scripts, leave, "gru", [0.0] * 3, two[1:])
    part = module.apart(book(), "vssm+kf", "gru", evidence.ABOVE, two)
    assert part.value == "+0.500"  # 200 / 400; not (0.5 + 40 / 20) / 2
    assert part.n.endswith("; without pendulum-swingup: Oracle's return is below 50")
    part = module.apart(book(), "vssm+kf", "gru", evidence.ABOVE, two[1:])
    told = "no scale in pendulum-swingup: Oracle's return is below 50"
    assert (part.verdict, part.why) == ("open", told)
    page = tmp_path / "verdicts.md"
    assert scripts["verdict"].main(["--results", str(results), "--out", str(page)]) == 0
    assert "as Oracle's return is below\n50 there: pendulum-swingup.\n" in page.read_text()


def popgym(scripts, leave, task, agent, values, budget="500K of 1M steps"):
    leave(scripts["claims_popgym"].arm(task, agent, budget), values)


def test_scores_beside_printed_ones_by_hand(scripts, leave, book):
    popgym(scripts, leave, "CountRecallEasy", "vssm+kf", [0.981, 0.983, 0.988])
    popgym(scripts, leave, "RepeatFirstEasy", "vssm+kf", [1.0, 1.0, 1.0])
    popgym(scripts, leave, "MineSweeperEasy", "vssm+kf", [0.5, 0.6, 0.7])
    popgym(scripts, leave, "HigherLowerEasy", "vssm+kf", [0.588])
    (table,) = scripts["sums"].beside(book())
    rows = {row[0]: row[1:] for row in table.rows}
    # 0.984 ± 0.0021 beside 0.983 ± 0.002: 0.001 / 0.0029; 0.6 ± 0.0577 beside 0.818 ± 0.014
    assert rows["CountRecallEasy"][-4:] == ("3", "+0.001", "+0.3", "yes")
    assert rows["RepeatFirstEasy"][-4:] == ("3", "+0.000", "+0.0", "yes")
    assert rows["MineSweeperEasy"][-4:] == ("3", "-0.218", "-3.7", "no")
    assert rows["HigherLowerEasy"][-4:] == ("1", "+0.000", "–", "open")
    assert rows["AutoencodeEasy"] == ("-0.299 ± 0.012", "no finished run", "0", "–", "–", "open")
    assert (table.close, table.known, len(rows)) == (2, 3, 12)
    (part,) = scripts["claims_popgym"].as_printed(book())
    # MineSweeperEasy: Welch's t has 2.2 degrees of freedom, and 3.7 is less than its 3.9
    assert (part.verdict, part.value) == ("open", "0 of 3 far from the printed score")
    assert len(part.missing) == 9


def test_far_from_a_printed_score_goes_by_few_seeds_and_rounding(scripts):
    numpy = scripts["claims_popgym"].np

    def by_chance(values, *printed):
        return scripts["claims_popgym"].by_chance(numpy.asarray(values), *printed)

    # errors 0.0577 and 0.014: 0.128 / 0.0594 is 2.15, t of 2.24 degrees of freedom 3.89
    assert by_chance([0.59, 0.69, 0.79], 0.818, 0.014, 5) == pytest.approx(-2.15 / 3.89, abs=0.002)
    # printed as 1.000 ± 0.000: 0.0004 is rounding, 0.002 is not; t of known errors is 1.96
    assert by_chance([0.9996] * 3, 1.0, 0.0, 5) == pytest.approx(-0.8 / 1.96, abs=0.001)
    assert by_chance([0.998] * 3, 1.0, 0.0, 5) == pytest.approx(-4 / 1.96, abs=0.001)
    # ours without an error: four degrees of freedom, t = 2.776
    assert by_chance([0.6] * 3, 0.5, 0.05, 5) == pytest.approx(2 / 2.776, abs=0.001)


def as_printed(scripts, leave, book, far, budget):
    """Twelve tasks with the printed scores, but for some that are far below."""
    module = scripts["claims_popgym"]
    for number, (task, row) in enumerate(module.popgym_table().scores.items()):
        score = row["vssm+kf"].mean - 0.6 * (number < far)
        popgym(scripts, leave, task, "vssm+kf", [score - 0.001, score, score + 0.001], budget)
    (part,) = module.as_printed(book())
    return part


@pytest.mark.parametrize(("far", "word"), [(2, "agree"), (3, "differ")])
def test_three_scores_far_from_the_printed_ones_differ(scripts, leave, book, far, word):
    # P(2 or more of 12 by chance) = 1 − 0.95^12 − 12 · 0.05 · 0.95^11 = 0.118; of 3, 0.020
    part = as_printed(scripts, leave, book, far, "1M steps")
    assert (part.verdict, part.value) == (word, f"{far} of 12 far from the printed score")
    assert part.missing == {}


def test_scores_after_fewer_steps_do_not_contradict_the_printed_ones(scripts, leave, book):
    part = as_printed(scripts, leave, book, 4, "500K of 1M steps")
    assert (part.verdict, part.why) == ("open", "fewer steps than the paper's")
    (part,) = scripts["claims_popgym"].above_published(book())
    # the last three of the six that the paper has above; four are below, and three best are 1.0
    assert part.value == "3 of 12 above, 7 not, 2 either"
    assert (part.verdict, part.why) == ("open", "fewer steps than the paper's")


def test_only_scores_above_the_best_published_beyond_chance_count(scripts, leave, book):
    module = scripts["claims_popgym"]
    for task, row in module.popgym_table().scores.items():
        top = row[module.BEST].mean + 0.01
        popgym(scripts, leave, task, "vssm+kf", [top - 0.1, top, top + 0.1], "1M steps")
    (part,) = module.above_published(book())
    # errors of 0.0577: 0.01 is nothing; RepeatFirst twice and RepeatPreviousEasy have 1.0
    assert (part.verdict, part.value) == ("open", "0 of 12 above, 3 not, 9 either")
    assert part.why == "too many may be either"


def test_runs_of_the_papers_length_count_as_soon_as_they_decide_as_much(scripts, leave, book):
    task, module = "RepeatFirstEasy", scripts["claims_popgym"]
    for agent, value in (("vssm+kf", 0.4), ("gru", 0.2)):
        popgym(scripts, leave, task, agent, [value] * 5)
        popgym(scripts, leave, "CountRecallEasy", agent, [value], "1M steps")
    assert module.chosen(book(), "vssm+kf", "gru").note == "; 500K of 1M steps"
    for agent, value in (("vssm+kf", 0.2), ("gru", 0.4)):
        popgym(scripts, leave, task, agent, [value] * 3, "1M steps")
    part = module.apart(book(), "vssm+kf", "gru", scripts["evidence"].ABOVE, tasks=[task])
    assert part.n == "RepeatFirstEasy; 3 seeds; 1M steps"
    assert (part.value, part.verdict) == ("-0.100", "differ")  # shifted: half of 0.2


def test_the_largest_gain_is_told_from_the_next_best(scripts, leave, book):
    module = scripts["claims_popgym"]
    for task in module.MEMORY:
        gain = 0.9 if task == "MineSweeperEasy" else 0.1
        popgym(scripts, leave, task, "vssm+kf", [gain, gain + 0.01, gain + 0.02])
        popgym(scripts, leave, task, "vssm", [0.0, 0.01, 0.02])
    found = book()
    gain, more = module.largest(found, "MineSweeperEasy", module.mmer)
    assert (gain.verdict, more.verdict) == ("agree", "agree")
    gain, more = module.largest(found, "RepeatPreviousEasy", module.mmer)
    assert (gain.verdict, more.verdict) == ("agree", "differ")
    assert more.what == "RepeatPreviousEasy, more than in MineSweeperEasy"
    part = module.better(found, "vssm+kf", "vssm")
    assert (part.value, part.interval, part.verdict) == ("P = 1.00", "[1.00, 1.00]", "agree")


def test_a_gain_that_is_the_largest_by_chance_is_open(scripts, leave, book):
    module = scripts["claims_popgym"]
    gains = {"RepeatPreviousEasy": 0.4, "RepeatFirstEasy": 0.36}  # both divided by 1.0
    for task in module.MEMORY:
        gain = gains.get(task, 0.0)
        popgym(scripts, leave, task, "vssm+kf", [gain - 0.1, gain, gain + 0.1])
        popgym(scripts, leave, task, "vssm", [-0.1, 0.0, 0.1])
    gain, more = module.largest(book(), "RepeatPreviousEasy", module.mmer)
    # shifted: variances 0.0025 / 3 on two sides, 4 degrees of freedom, t = 2.776: ± 0.113
    assert (gain.value, gain.interval, gain.verdict) == ("+0.200", "[+0.087, +0.313]", "agree")
    # on four sides, 8 degrees of freedom, t = 2.306: ± 0.133
    assert more.what == "RepeatPreviousEasy, more than in RepeatFirstEasy"
    assert (more.value, more.interval, more.verdict) == ("+0.020", "[-0.113, +0.153]", "open")


def sizes(scripts, leave, spreads, noise=()):
    """The last of twelve sizes is above the others; noise goes to the longest task alone."""
    module = scripts["claims_popgym"]
    for task, spread in spreads.items():
        arms = [module.size(task, n, layers) for n in module.WIDTHS for layers in module.LAYERS]
        for arm in arms:
            apart = noise if task == module.LONGEST and noise else [0.0] * 3
            leave(arm, [(arm is arms[-1]) * spread + x for x in apart])


def test_the_largest_spread_of_sizes_by_hand(scripts, leave, book):
    module = scripts["claims_popgym"]
    spreads = dict.fromkeys(module.SIZE_ABLATION_TASKS, 0.0)
    sizes(scripts, leave, {**spreads, module.LONGEST: 0.4, "RepeatPreviousEasy": 0.1})
    (part,) = module.most_sensitive(book())
    # both tasks are divided by 1, after they were shifted by half: 0.2 − 0.05, without noise
    assert part.what == "spread of means in RepeatFirstMedium, more than in RepeatPreviousEasy"
    assert (part.value, part.interval, part.verdict) == ("+0.150", "[+0.150, +0.150]", "agree")


def test_a_spread_that_noise_would_give_is_open(scripts, leave, book):
    module = scripts["claims_popgym"]
    spreads = dict.fromkeys(module.SIZE_ABLATION_TASKS, 0.0)
    sizes(scripts, leave, {**spreads, module.LONGEST: 0.2}, noise=(-0.5, 0.0, 0.5))
    (part,) = module.most_sensitive(book())
    assert (part.verdict, part.why) == ("open", "only a part of the interval is above 0")


def test_another_task_with_the_larger_spread_differs(scripts, leave, book):
    module = scripts["claims_popgym"]
    spreads = dict.fromkeys(module.SIZE_ABLATION_TASKS, 0.0)
    sizes(scripts, leave, {**spreads, module.LONGEST: 0.1, "RepeatPreviousEasy": 0.3})
    (part,) = module.most_sensitive(book())
    assert (part.value, part.verdict) == ("-0.100", "differ")


def test_sums_are_over_what_both_have(scripts, leave, book):
    bandits(scripts, leave, "vssm+kf", [0.9, 0.8, 0.7, 0.0], costs=[0.0], out=0.5)
    bandits(scripts, leave, "gru", [0.1, 0.75, 0.2], costs=[0.0], out=0.5)
    found = book()
    single, both = scripts["sums"].means(found), scripts["sums"].improvements(found)
    rows = {row[:2]: row[2:] for row in single.rows}
    # four runs: the middle two, 0.7 and 0.8; three runs: none is cut
    where = "Best Arm, cost 0, in distribution"
    assert rows[where, "vSSM+KF"][:2] == ("4 seeds", "0.750")
    assert rows[where, "vSSM+KF"][-1] == "cost0-vssm-kf: 4"
    assert rows[where, "GRU"][1] == "0.350"
    row, out = both.rows
    assert row[:3] == (where, "GRU", "3 seeds")
    assert row[3].startswith("0.800 [")  # seed 3 is left out
    assert row[5].startswith("0.89 [")  # 3 + 3 + 2 of nine pairs
    assert out[5] == "0.50 [0.50, 0.50]"
    assert f"{where}, over vSSM" in both.empty
    assert "POPGym, 1M steps" in single.empty


def rows_of_tables(text):
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        yield [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]


def test_without_runs_everything_but_counts_is_open(scripts, results, tmp_path, capsys):
    page = tmp_path / "verdicts.md"
    assert scripts["verdict"].main(["--results", str(results), "--out", str(page)]) == 0
    text = page.read_text()
    assert capsys.readouterr().out == "written: verdicts.md, from 0 finished runs\n"
    for table in rows_of_tables(text):
        assert len({len(row) for row in table}) == 1
    decided = re.findall(r"^\| (\d+) .*\*\*(?:agree|differ)\*\*.*$", text, re.M)
    numbers = [
        str(number)
        for number, claim in enumerate(scripts["claims"].CLAIMS, 1)
        if getattr(claim.test, "__name__", "") in ("parameters", "few_more", "all_small")
    ]
    assert decided == numbers
    assert "Within two standard errors: 0 of 0 tasks" in text
    waiting = {row[-1].strip() for row in list(rows_of_tables(text))[-1][2:]}
    tested = [i for i, c in enumerate(scripts["claims"].CLAIMS, 1) if not isinstance(c.test, str)]
    named = {int(x) for cell in waiting for x in cell.split(", ")}
    assert named == set(tested) - set(map(int, numbers))


def test_a_folder_that_is_not_there_is_told(scripts, tmp_path, capsys):
    assert scripts["verdict"].main(["--results", str(tmp_path / "none"), "--out", "x"]) == 2
    assert "expected a folder with runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"), [('"strange": 1, ', "strange"), ("no JSON", "experiment.json")]
)
def test_a_run_that_cannot_be_read_is_left_out_by_name(
    scripts, leave, results, tmp_path, capsys, words, told
):
    bandits(scripts, leave, "gru", [0.1, 0.2], costs=[0.0])
    file = results / "best-arm" / "cost0-gru-seed0" / "experiment.json"
    file.write_text(file.read_text().replace("{", "{" + words, 1))
    page = tmp_path / "verdicts.md"
    assert scripts["verdict"].main(["--results", str(results), "--out", str(page)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "written: verdicts.md, from 1 finished runs\n"
    (line,) = captured.err.splitlines()
    assert line.startswith("paper_verdict: best-arm/cost0-gru-seed0: left out: ")
    assert told in line


def test_the_page_has_the_claims_of_the_script(scripts):
    text = (ROOT / "docs" / "verdicts.md").read_text()
    shown = re.findall(r"^\| \d+ \| (.*?) \| (.*?) \|", text, re.M)
    assert shown == [(claim.where, claim.says) for claim in scripts["claims"].CLAIMS]


def test_parameters_of_the_largest_agent_are_compared_with_the_smallest(scripts, monkeypatch):
    from kalmanac._encoders.parameters import AgentSizes

    module = scripts["claims"]
    sizes = AgentSizes(24, 6, False, (160, 160), (160, 160), feedforward=128)
    monkeypatch.setattr(module, "BEST_ARM", sizes)
    walker, other = module.parameters(None)
    # vTransformer 255,758 / Mamba 240,974 = 1.061
    assert walker.verdict == "agree"
    # every agent but GRU is within 10 % of vSSM; vSSM+KF has 8,960 more, Mamba 4,546 less
    counts = {name: int(number.replace(",", "")) for name, number in _counts(other.value)}
    vssm = counts["vSSM"]
    assert counts["vSSM+KF"] - vssm == 8960
    assert vssm - counts["Mamba"] == 4546
    assert 8960 / vssm < 0.1 < (8960 + 4546) / (vssm - 4546)
    assert other.why.startswith(f"vSSM+KF has {13506 / (vssm - 4546):.0%} more than Mamba; GRU")


def _counts(text):
    return re.findall(r"(\S+) ([\d,]+) \(", text)


def test_parameters_are_counted_for_the_tasks_as_they_are(scripts):
    pytest.importorskip("popgym")
    from kalmanac._envs.popgym import POPGym

    for task, sizes in scripts["claims"].POPGYM_SIZES.items():
        env = POPGym(task)
        assert (sizes.observation,) == env.observation_space.shape
        assert sizes.action == env.action_space.n
