"""Run folders as somebody else might send them: whole, but for the code that they name."""

import json
import pickle
import shutil
from pathlib import Path

import torch

from kalmanac._files.document import decode, encode
from kalmanac._files.run_reader import SIGNATURE, checkpoint_file, checkpoint_steps
from kalmanac._lab.checkpointing import CHECKPOINT


class Touches:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def codes(mark, folder):
    """Environments by what they misuse: each makes the file `mark`; `folder` holds payloads."""
    folder.mkdir()
    text = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    array, tensor = folder / "payload.npy", folder / "payload.pt"
    array.write_bytes(pickle.dumps(Touches(mark)))
    torch.save(Touches(mark), tensor)
    (folder / "side_effect.py").write_text(f"{text}\nEnv = 1\n")
    return {
        "sympify": ("sympy:sympify", {"a": text}),
        "parse_expr": ("sympy.parsing.sympy_parser:parse_expr", {"s": text}),
        "runstring": ("numpy.testing:runstring", {"astr": text, "dict": {}}),
        "numpy.load": ("numpy:load", {"file": str(array), "allow_pickle": True}),
        "torch.load": ("torch:load", {"f": str(tensor), "weights_only": False}),
        "import": ("side_effect:Env", {}),
    }


NAMES = ("sympify", "parse_expr", "runstring", "numpy.load", "torch.load", "import")


def rename(folder, env, env_settings):
    """The same run with another environment in all of its documents, and nobody's signature."""
    file = folder / "experiment.json"
    changes = {"env": env, "env_settings": env_settings, "evaluations": ["in"]}
    experiment = json.loads(file.read_text()) | changes
    file.write_text(json.dumps(experiment))
    (folder / SIGNATURE).unlink(missing_ok=True)
    for step in checkpoint_steps(folder):
        change_checkpoint(folder, step, lambda run: run.update(experiment=experiment))
    return folder


def change_checkpoint(folder, step, change):
    """A checkpoint whose checksum holds, changed by `change(run)`."""
    file = checkpoint_file(folder, step)
    document = decode(file.read_bytes(), CHECKPOINT, "it")
    change(document["run"])
    file.write_bytes(encode(document, CHECKPOINT))


def sent(run, folder, env, env_settings):
    """A copy of `run` that names this environment."""
    return rename(shutil.copytree(run, folder), env, env_settings)
