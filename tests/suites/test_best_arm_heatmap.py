from kalmanac._lab.post_training import ExampleEpisodes, GridOfBandits
from kalmanac._suites.registry import SUITES


def test_the_heat_maps_add_no_training():
    theirs = {run.hash for run in SUITES["best-arm"].runs()}
    mine = list(SUITES["best-arm-heatmap"].runs())
    assert {run.hash for run in mine} <= theirs
    assert {run.env_settings["cost"] for run in mine} == {0.0}
    assert len({run.agent for run in mine}) == 8
    assert SUITES["best-arm-heatmap"].afterwards(mine[0]) == (GridOfBandits(25, 100),)


def test_examples_are_played_where_asking_is_free():
    suite = SUITES["best-arm"]
    costs = {run.env_settings["cost"] for run in suite.runs() if suite.afterwards(run)}
    assert costs == {0.0}
    assert suite.afterwards(next(suite.runs())) == (ExampleEpisodes(((0.5, 0.5), (0.5, 1.0))),)
