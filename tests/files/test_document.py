"""Documents come back as they were, and no changed file is taken for one."""

import json
import pickle
import struct
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from kalmanac._files.document import BadFileError, Kind, decode, digest_of, encode

KIND = Kind("test", 3, "tests", unsigned=2)
DOCUMENT = {
    "numbers": {"x": torch.arange(6.0).reshape(2, 3), "n": np.array([1, 2], np.int64)},
    "generator": {"state": {"state": 2**127 + 1, "inc": 3}},
    "best": -np.inf, "tuple": (1, None, True, "μ"), 3: [1.5, []],
}  # fmt: skip
FILE = encode(DOCUMENT, KIND)


def test_a_document_comes_back():
    document = decode(FILE, KIND, "file")
    assert torch.equal(document["numbers"]["x"], DOCUMENT["numbers"]["x"])
    assert isinstance(document["numbers"]["n"], np.ndarray)
    assert document["numbers"]["n"].tolist() == [1, 2]
    for key in ("generator", "best", "tuple", 3):
        assert document[key] == DOCUMENT[key]


@given(
    st.sampled_from(["float64", "float32", "int64", "int32", "uint8", "bool"]),
    st.lists(st.integers(0, 3), max_size=3),
)
def test_arrays_of_every_shape_come_back(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape[::-1]).astype(dtype).T
    decoded = decode(encode({"x": array}, KIND), KIND, "file")["x"]
    np.testing.assert_array_equal(decoded, array)
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)


def test_equal_documents_give_equal_bytes():
    assert encode(DOCUMENT, KIND) == FILE
    assert encode(DOCUMENT | {"best": 0.0}, KIND) != FILE


def test_every_single_bit_is_guarded():
    for place in range(len(FILE)):
        bad = bytearray(FILE)
        bad[place] ^= 1 << (place % 8)
        with pytest.raises(BadFileError, match=r"path: got file"):
            decode(bytes(bad), KIND, "file")


def test_every_shorter_file_is_refused():
    for length in range(0, len(FILE), 7):
        with pytest.raises(BadFileError):
            decode(FILE[:length], KIND, "file")
    with pytest.raises(BadFileError, match="checksum"):
        decode(FILE + b"\0", KIND, "file")


@given(st.data())
def test_random_damage_is_noticed(data):
    bad = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(bad) - 1))
        chunk = data.draw(st.binary(min_size=1, max_size=9))
        bad[at : at + data.draw(st.integers(0, 9))] = chunk
    if bytes(bad) != FILE:
        with pytest.raises(BadFileError):
            decode(bytes(bad), KIND, "file")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_way(content):
    with pytest.raises(BadFileError):
        decode(content, KIND, "file")


def signed(header, body=b""):
    """A file with a right checksum, whatever it says."""
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + body
    return content.replace(b"0" * 64, digest_of(content).encode(), 1)


@pytest.mark.parametrize(
    "document",
    ["", "[", "[1]", '{"tensor": "no"}', '{"pickle": "x"}', '{"map": 3}', '{"map": [[[], 1]]}',
     "[" * 100_000, '{"map": [], "tuple": []}'],
)  # fmt: skip
def test_a_malformed_document_with_a_right_checksum_is_refused(document):
    metadata = {"format": "test", "version": "3", "sha256": "0" * 64, "document": document}
    with pytest.raises(BadFileError, match="malformed"):
        decode(signed({"__metadata__": metadata}), KIND, "file")


def test_foreign_files_are_named():
    with pytest.raises(BadFileError, match="expected a file written by tests"):
        decode(save({"x": torch.zeros(1)}), KIND, "file")
    with pytest.raises(BadFileError, match="expected a file written by tests"):
        decode(encode({}, Kind("other", 3, "others")), KIND, "file")
    with pytest.raises(BadFileError, match=r"expected a whole \.safetensors file"):
        decode(b"", KIND, "file")


def test_other_versions_are_named_and_the_unsigned_one_is_read():
    for version in (1, 4):
        with pytest.raises(BadFileError, match=f"of format version {version}, expected 3"):
            decode(encode({"a": 1}, Kind("test", version, "tests")), KIND, "file")
    old = save({}, {"format": "test", "version": "2", "document": '{"map": [["a", 1]]}'})
    assert decode(old, KIND, "file") == {"a": 1}


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self):
        return warnings.warn, ("a pickle was run",)


def test_a_pickle_in_disguise_is_not_run(tmp_path):
    bomb = pickle.dumps(Bomb())
    with pytest.warns(UserWarning, match="a pickle was run"):
        pickle.loads(bomb)
    torch.save({"x": Bomb()}, tmp_path / "x.pt")
    disguises = [bomb, (tmp_path / "x.pt").read_bytes(), struct.pack("<Q", len(bomb)) + bomb]
    disguises.append(signed({"__metadata__": {"format": "test", "version": "3"}}, bomb))
    for content in disguises:  # warnings are errors: a run pickle would raise something else
        with pytest.raises(BadFileError):
            decode(content, KIND, "file")


def test_what_is_no_plain_data_is_refused():
    with pytest.raises(TypeError, match="/a/0: got object, expected arrays, tensors and plain"):
        encode({"a": [object()]}, KIND)
    with pytest.raises(TypeError, match="/a: got an array of object, expected numbers"):
        encode({"a": np.array([None])}, KIND)


def test_scalars_keep_their_kind_and_places_that_look_alike_stay_apart():
    tree = {"a": {"b": np.arange(2)}, "a/b": np.arange(3), 1: np.ones(1), "1": np.zeros(2)}
    document = decode(encode(tree | {"x": np.float32(0.1), "n": np.int64(7)}, KIND), KIND, "file")
    for key in ("a/b", 1, "1"):
        assert np.array_equal(document[key], tree[key]), key
    assert np.array_equal(document["a"]["b"], np.arange(2))
    assert (type(document["x"]), document["x"]) == (np.float32, np.float32(0.1))
    assert type(document["n"]) is np.int64


def test_a_key_that_would_not_come_back_is_refused():
    with pytest.raises(TypeError, match=r"got the key \(0, 1\), expected a word or a number"):
        encode({(0, 1): 2}, KIND)
