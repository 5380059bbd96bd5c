"""Episode files: what is written is read, without pickle, and nothing else is."""

import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._files.episode_file import About, PlayedEpisode, read_episode, write_episode

ABOUT = About("best-arm", "gru", 0, 100, 7, True, True, "shortened", won=True, mu=0.1, sigma=2.0)


def episode(steps=3, about=ABOUT, **arrays):
    rng = np.random.default_rng(0)
    return PlayedEpisode(
        about, rng.normal(size=(steps, 2)), np.arange(steps), rng.normal(size=steps), **arrays
    )


@given(steps=st.integers(1, 5), layers=st.integers(1, 2), won=st.sampled_from([None, True, False]))
def test_what_is_written_is_read(tmp_path_factory, steps, layers, won):
    about = About("a", "b", 0, 1, 2, False, False, won=won, action_names=("x", "y"))
    belief = np.ones((layers, steps, 4), np.float32)
    written = episode(steps, about, belief_mean=belief, influence=np.arange(4.0))
    file = tmp_path_factory.mktemp("a") / "deep" / "e.npz"
    read = read_episode(write_episode(file, written))
    assert read.about == about
    assert read.arrays().keys() == written.arrays().keys()
    for name, array in written.arrays().items():
        np.testing.assert_array_equal(read.arrays()[name], array)
        assert read.arrays()[name].dtype == array.dtype
    assert read.gain is None
    assert [path.name for path in file.parent.iterdir()] == ["e.npz"]


def test_equal_episodes_are_equal_bytes(tmp_path):
    one, other = (write_episode(tmp_path / name, episode()) for name in ("a.npz", "b.npz"))
    assert one.read_bytes() == other.read_bytes()


def test_objects_are_neither_written_nor_read(tmp_path):
    objects = np.array([{}, {}, {}], dtype=object)
    with pytest.raises(ValueError, match="pickle"):
        write_episode(tmp_path / "a.npz", episode(truth=objects))
    assert not list(tmp_path.iterdir())

    file = write_episode(tmp_path / "b.npz", episode())
    with zipfile.ZipFile(file, "a") as archive:
        header = b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (3,), }"
        archive.writestr("truth.npy", header.ljust(127) + b"\n" + pickle.dumps(objects))
    with pytest.raises(ValueError, match="expected an episode file"):
        read_episode(file)


@pytest.mark.parametrize("kind", ["text", "array", "archive", "cut"])
def test_another_file_is_refused_in_one_line(tmp_path, kind):
    file = tmp_path / "a.npz"
    if kind == "text":
        file.write_text("hello")
    elif kind == "array":
        with file.open("wb") as stream:
            np.save(stream, np.zeros(3))
    elif kind == "archive":
        np.savez(file, x=np.zeros(3))
    else:
        write_episode(file, episode())
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"path: got .*a\.npz, expected an episode file"):
        read_episode(file)


def test_a_missing_file_and_another_version_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected an episode file"):
        read_episode(tmp_path / "no.npz")
    about = {"format": "kalmanac-episode", "version": 2}
    np.savez(tmp_path / "a.npz", about=np.array(json.dumps(about)))
    with pytest.raises(ValueError, match=r"version 2, expected kalmanac-episode version 1"):
        read_episode(tmp_path / "a.npz")


def test_arrays_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"truth: got shape \(2, 1\), expected 3 steps"):
        episode(truth=np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"gain: got shape \(3, 1, 2\), expected 3 steps"):
        episode(gain=np.zeros((3, 1, 2)))
