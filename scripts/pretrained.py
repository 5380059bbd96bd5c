"""Keep a run's best policy as an agent that comes with the package (`kalmanac watch`).

    kalmanac train best-arm --actor-objective cross-entropy --seeds 5 --folder RUNS
    python scripts/pretrained.py RUNS/seed0 best-arm

    kalmanac train best-arm-demo --encoder-settings d_state=2 --folder runs/pretrained/two
    python scripts/pretrained.py runs/pretrained/two best-arm-two-channels

What is kept is a run folder like any other (`kalmanac eval` reads it, too), but its model is the
policy alone. summary.json tells, under "new", what it reached in episodes of its own.
"""

import argparse
import json
from contextlib import closing
from pathlib import Path

from kalmanac._cli.evaluate import SEED
from kalmanac._files.run_reader import EXPERIMENT, MODELS, SUMMARY, read_experiment, read_summary
from kalmanac._lab.evaluation import evaluate
from kalmanac._lab.factory import check_environment, evaluation_environment
from kalmanac._lab.play import PRETRAINED, load_run

EPISODES = 2000


def main() -> None:
    """Measure, strip and copy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("name", help="of the folder in the package")
    options = parser.parse_args()
    model, experiment = load_run(options.run, "best")
    spec = check_environment(experiment)
    new = {}
    for place in spec.evaluations:
        with closing(evaluation_environment(experiment, place, EPISODES)) as env:
            found = evaluate(model, env, EPISODES, seed=SEED, return_scale=spec.normaliser)
        new[place] = {"episodes": EPISODES, **found}
    folder = PRETRAINED / options.name
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / MODELS["best"], policy_alone=True)
    summary = read_summary(options.run) | {"new": new}
    for file, content in ((EXPERIMENT, read_experiment(options.run)), (SUMMARY, summary)):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    inside, outside = (new[place] for place in ("in", "out"))
    channels = experiment.encoder_settings.get("d_state", 128)
    print(f"written to {folder}; the row for its README.md:")
    print(
        f"| `{options.name}` | {channels} | {summary['best']['step']:,} "
        f"| {inside['normalized']:.2f} | {inside['win_rate']:.2f} | {inside['length']:.1f} "
        f"| {outside['normalized']:.2f} |"
    )


if __name__ == "__main__":
    main()
