"""Which of the paper's figures come out of which runs, and what they show."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from kalmanac._files.episode_file import About, PlayedEpisode, write_episode
from kalmanac._files.heatmap_file import read_heatmap
from kalmanac._files.run_folder import RunFolder
from kalmanac._files.run_reader import HEATMAP
from kalmanac._lab.experiment import Experiment
from kalmanac._report import best_arm, dmc, episodes, popgym
from kalmanac._report.figures import Line, Panel, draw_curves
from kalmanac._report.groups import make_groups
from kalmanac._report.paper import ITEMS, Missing, draw_item
from kalmanac._report.runs import read_runs
from kalmanac._report.scores import last, oracle_scale
from kalmanac._report.style import LineStyle, styled
from kalmanac._report.tables import make_tables
from kalmanac._suites import best_arm as suite
from tests.report.synthetic import leave_heatmap, write_best_arm, write_popgym, write_run


def draw_all(groups):
    with styled():
        return [
            (item.number, one) for i, item in enumerate(ITEMS) for one in draw_item(i, groups, [])
        ]


def test_all_figures_of_the_paper_with_data_are_there_by_their_numbers():
    numbers = [int(x) for item in ITEMS for x in re.findall(r"\d+", item.number.partition(",")[0])]
    assert numbers == list(range(3, 20))
    assert [item.number for item in ITEMS][-2:] == ["Figure 19", ""]


def test_all_that_the_runs_allow_is_drawn_and_the_rest_is_named(all_groups):
    parts = draw_all(all_groups)
    names = {(number, one.name) for number, one in parts if not isinstance(one, Missing)}
    missing = [one for _, one in parts if isinstance(one, Missing)]
    assert [one.number for one in missing] == ["Figure 3", "Figure 6"]
    assert {number for number, _ in names} == {
        item.number for item in ITEMS[:-1] if item.number not in ("Figure 3", "Figure 6")
    }
    # returns and lengths, in full and shortened
    assert len([name for number, name in names if number == "Figures 11 and 12"]) == 4
    assert all("kalmanac watch RUN" in one.needs for one in missing)


def test_what_is_missing_is_named_for_the_tasks_that_are_there(all_groups):
    assert draw_all([]) == []
    groups = [g for g in all_groups if g.family == "best-arm" and g.label]
    missing = [one for _, one in draw_all(groups) if isinstance(one, Missing)]
    assert {one.number for one in missing} == {"Figure 3", "Figure 5", "Figure 6"}
    assert "suite best-arm-heatmap" in {one.needs for one in missing}


def test_labelled_runs_have_figures_of_their_own(all_groups):
    plain, short = best_arm.returns_and_lengths(all_groups)
    assert "shortened" not in plain.name + plain.figure.get_suptitle()
    assert short.name == "best-arm-returns-lengths-shortened-horizon-100"
    assert "(shortened, horizon 100)" in short.figure.get_suptitle().replace("\n", " ")


def test_returns_against_cost_show_the_last_evaluations_and_the_threshold(all_groups):
    captioned = next(best_arm.returns_and_lengths(all_groups))
    axis = captioned.figure.axes[0]
    group = next(g for g in all_groups if g.agent == "oracle" and g.condition("cost") == 0.1)
    heights = [y for line in axis.lines for y in np.atleast_1d(line.get_ydata())]
    assert any(y == pytest.approx(last(group, "in/normalized").mean()) for y in heights)
    levels = [path[0, 1] for c in axis.collections for path in c.get_segments() if len(path) == 2]
    assert any(0.82 < y < 0.89 for y in levels)  # 0.857 at cost 0, simulated


def test_the_noise_ablation_is_divided_by_oracle(all_groups):
    captioned = next(dmc.noise_ablation(all_groups))
    axis = next(a for a in captioned.figure.axes if a.get_title() == "walker-run")
    group = next(g for g in all_groups if g.task == "walker-run" and dmc.noise_level(g) == 2)
    scale = oracle_scale([g for g in all_groups if g.task == "walker-run"])["walker-run"]
    heights = [y for line in axis.lines for y in np.atleast_1d(line.get_ydata())]
    assert any(y == pytest.approx(scale(last(group)).mean()) for y in heights)
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "2"]


def test_agents_of_one_level_alone_have_no_part_in_the_noise_ablation(all_groups):
    captioned = [next(make(all_groups)) for make in (dmc.noise_ablation,
                                                 dmc.noise_curves)]  # fmt: skip
    for one in captioned:  # Oracle and vSSM have the benchmark's level only
        names = [text.get_text() for text in one.figure.legends[0].get_texts()]
        assert names == ["vSSM+KF"]


def test_curves_of_nothing_have_a_scale_of_one():
    steps, zero = np.array([1e3, 2e3]), np.zeros(2)
    flat = Panel("flat", {"GRU": Line(steps, zero, zero, zero)}, "return")
    axis = draw_curves([flat], {"GRU": LineStyle("#000000")}, columns=1).axes[0]
    assert axis.get_ylim() == (-1, 1)


@pytest.mark.parametrize(("low", "framed"), [(-100.0, True), (-10.0, False)])
def test_what_it_costs_to_ask_for_ever_hides_no_other_return(tmp_path, low, framed):
    what = suite.paper("oracle", cost=0.1).changed({"eval_every": 50_000})
    write_run(tmp_path / "one", what, low=low, high=10.0, height=0.98)
    returns, lengths = best_arm.curves(make_groups(read_runs(tmp_path).runs, []))
    drawn = [axis for axis in returns.figure.axes if axis.get_title()]
    assert all((axis.get_ylim() == best_arm.FRAME) is framed for axis in drawn)
    assert ("nothing is drawn" in returns.caption) is framed
    assert "nothing is drawn" not in lengths.caption


def test_the_design_ablation_compares_arms(all_groups):
    summed, curves = dmc.design(all_groups)
    names = [text.get_text() for text in curves.figure.legends[0].get_texts()]
    assert names == ["vSSM+KF", "+ time-varying process noise", "+ covariance as output"]
    assert "2 tasks, 2 seeds" in summed.caption


def test_variants_stay_out_of_the_main_comparison(all_groups):
    captioned = next(popgym.benchmark(all_groups))
    names = [text.get_text() for text in captioned.figure.legends[0].get_texts()]
    assert names == ["vSSM", "vSSM+KF", "GRU"]


def test_without_oracle_control_is_not_summed_up(all_groups):
    assert list(dmc.benchmark([g for g in all_groups if g.agent != "oracle"])) == []


def test_heat_maps_name_their_agents_and_hold_the_means(all_groups):
    captioned = next(best_arm.heatmaps(all_groups, []))
    axes = captioned.figure.axes
    assert [axis.get_title() for axis in axes[:4]] == ["vSSM+KF", "Oracle", "", ""]
    heatmap = read_heatmap(next(g for g in all_groups if g.agent == "oracle").runs[0].folder)
    np.testing.assert_allclose(axes[1].collections[0].get_array(), heatmap.win_rate)
    np.testing.assert_allclose(axes[3].collections[0].get_array(), heatmap.length)
    red = [line for line in axes[0].lines if line.get_color() == "red"]
    assert [line.get_xdata()[0] for line in red] == [2.0]


def test_a_broken_heat_map_is_named_and_the_others_are_drawn(tmp_path):
    first, second = write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=range(2))
    leave_heatmap(first, size=3)
    leave_heatmap(second, size=3)
    (second / HEATMAP).write_text("{}")
    notices = []
    (captioned,) = best_arm.heatmaps(make_groups(read_runs(tmp_path).runs, []), notices)
    assert "GRU 1" in captioned.caption
    (notice,) = notices
    assert notice.startswith(f"best-arm/{second.name}: evaluations/heatmap.json: got no heat map")


def test_a_run_without_any_finite_number_stops_nothing(tmp_path):
    write_popgym(tmp_path, tasks=["RepeatFirstEasy"], agents=["vssm", "gru"], seeds=range(2))
    what = Experiment(env="popgym/RepeatFirstEasy", encoder="mamba", eval_every=500_000)
    with RunFolder(tmp_path / "nan", what.to_data(), events=False) as run:
        run.log(500_000, {"eval/in/mean_reward": float("nan")})
    groups = make_groups(read_runs(tmp_path).runs, [])
    missing = [one.number for _, one in draw_all(groups) if isinstance(one, Missing)]
    assert set(missing) < {item.number for item in ITEMS}
    tables = {table.name: table for table in make_tables(groups)}
    assert "Mamba" not in [row[0] for row in tables["popgym-sums"].rows]
    assert ("RepeatFirstEasy", "Mamba", "1") in [row[:3] for row in tables["scores"].rows]


def test_other_environments_have_their_curves(tmp_path):
    write_run(tmp_path / "a", Experiment(env="CartPole-v1", encoder="gru", eval_every=250_000))
    parts = draw_all(make_groups(read_runs(tmp_path).runs, []))
    assert [(number, one.name) for number, one in parts if not isinstance(one, Missing)] == [
        ("", "curves-other")
    ]


def played(steps, **about):
    base = {"env": "best-arm", "agent": "gru", "training_seed": 0, "training_step": 9, "seed": 0,
            "deterministic": True, "terminated": True, "won": True,
            "action_names": ("ask", "above", "below")}  # fmt: skip
    x = np.zeros(steps)
    return PlayedEpisode(
        About(**base | about), x[:, None], x.astype(int), x, posterior_mean=x, posterior_std=x + 1
    )


def test_the_example_episodes_are_those_nearest_to_the_papers(tmp_path):
    (run,) = write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[0])
    for i, (mu, sigma) in enumerate([(0.1, 1.9), (-0.5, 0.5), (0.4, 1.1), (0.5, 2.0)]):
        write_episode(run / "evaluations" / f"{i}.npz", played(5 + i, mu=mu, sigma=sigma))
    (run / "evaluations" / "foreign.npz").write_text("mine")
    notices = []
    (captioned,) = episodes.examples(make_groups(read_runs(tmp_path).runs, []), notices)
    titles = [axis.get_title() for axis in captioned.figure.axes]
    assert "μ = -0.5, σ = 0.5" in titles[0]
    assert "μ = 0.4, σ = 1.1" in titles[1]
    assert notices == [f"best-arm/{run.name}: evaluations/foreign.npz is no episode file"]


def test_of_agents_in_the_same_bandit_the_example_shows_the_kalman_filter(tmp_path):
    for agent in ("gru", "vssm", "vssm+kf"):
        (run,) = write_best_arm(tmp_path, agents=[agent], costs=[0.0], seeds=[0])
        for sigma in (0.5, 1.0):
            episode = played(5, agent=agent, mu=0.5, sigma=sigma)
            write_episode(run / "evaluations" / f"{sigma}.npz", episode)
    (captioned,) = episodes.examples(make_groups(read_runs(tmp_path).runs, []), [])
    assert all(axis.get_title().startswith("vssm+kf in") for axis in captioned.figure.axes)


@pytest.mark.parametrize("label", ["../../outside", "/tmp/x", "a/b", "nul\0", "\ud800", "z" * 5000])
def test_an_episode_s_label_is_no_path(tmp_path, label):
    (run,) = write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[0])
    write_episode(run / "evaluations" / "a.npz", played(3, label=label, mu=0.5, sigma=0.5))
    (captioned,) = episodes.examples(make_groups(read_runs(tmp_path).runs, []), [])
    assert captioned.name.startswith("best-arm-episodes-")
    assert not set("/\0") & set(captioned.name)
    assert len(captioned.name.encode()) < 240


def test_the_grid_that_most_heat_maps_have_is_drawn(tmp_path):
    runs = write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=range(3))
    for run, size in zip(runs, (2, 4, 4), strict=True):
        leave_heatmap(run, size=size)
    notices = []
    (captioned,) = best_arm.heatmaps(make_groups(read_runs(tmp_path).runs, []), notices)
    assert "gru 2" in captioned.caption.lower()
    assert notices == [f"best-arm/{runs[0].name}: its heat map has another grid, left out"]


@pytest.mark.parametrize(
    "change",
    [{"mu": ["a", 1.0]}, {"length": [[1.0, None]] * 2}, {"win_rate": {}}, {"sigma": [1.0, 1.0]},
     {"mu": [0.0, 1e300]}, {"more": 1}],
)  # fmt: skip
def test_an_odd_heat_map_is_named(tmp_path, change):
    (run,) = write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[0])
    leave_heatmap(run, size=2)
    file = run / HEATMAP
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    notices = []
    assert list(best_arm.heatmaps(make_groups(read_runs(tmp_path).runs, []), notices)) == []
    assert len(notices) == 1
    assert "heatmap.json: got no heat map (" in notices[0]
