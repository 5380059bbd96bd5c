"""`kalmanac export RUN_OR_MODEL`: a trained agent's single step as one file for other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kalmanac._cli.verb import Call, Verb
from kalmanac._lab.play import find_model
from kalmanac._sac.export import SUFFIXES
from kalmanac._sac.recurrent_sac import RecurrentSAC


@dataclass(frozen=True)
class Options:
    """What to write."""

    to: Literal["onnx", "torch"] = "onnx"
    """For any ONNX runtime (.onnx), or for PyTorch alone (.pt2)."""
    out: Path | None = None
    """The file; None is beside the model, under its name."""
    which: Literal["best", "last"] = "best"
    """Which model of a run."""
    distribution: bool = False
    """The parameters of the distribution of actions are outputs too."""


def export(call: Call) -> int:
    """The verb."""
    options: Options = call.options
    source, suffix = Path(call.words[0]), SUFFIXES[options.to]
    if options.out is not None and options.out.suffix != suffix:
        raise ValueError(f"out: got {options.out}, expected a name in {suffix}")
    file = find_model(source, options.which) if source.is_dir() else source
    model = RecurrentSAC.load(file, device="cpu")
    out = options.out or file.with_suffix(suffix)
    written = model.export(out, distribution=options.distribution)
    size, agent = written.stat().st_size / 1024, model.settings.encoder
    print(f"{written}: {agent}, step {model.num_timesteps:,}, {size:,.0f} KiB")
    return 0


VERB = Verb(
    export,
    Options,
    "Write a trained agent's single step as one file: observation and memory in, action and memory "
    "out, with all that lies between. RUN_OR_MODEL is a folder that `train` has left, or a model "
    "file.",
    words="RUN_OR_MODEL",
    least=1,
    most=1,
)
