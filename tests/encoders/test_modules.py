"""Encoders as modules in other people's programs: compile, export, autocast, dtypes, files."""

import io
from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

from kalmanac._encoders.registry import make_encoder
from tests.encoders.cases import (
    ROWS,
    Case,
    E,
    assert_close,
    assert_states_close,
    every_encoder,
    every_row,
    flags,
    sequence,
)


@every_encoder
def test_state_dict_round_trip(case: Case) -> None:
    encoder = case.build()
    file = io.BytesIO()
    torch.save(encoder.state_dict(), file)
    file.seek(0)
    torch.manual_seed(99)
    other = make_encoder(case.name, d_model=E, **case.settings)
    other.load_state_dict(torch.load(file, weights_only=True))
    h = sequence(2, 5)
    assert torch.equal(encoder(h)[0], other(h)[0])


@every_encoder
def test_built_in_float64_where_a_program_computes_so(case: Case) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        encoder = make_encoder(case.name, d_model=E, **case.settings)
        z, _ = encoder(sequence(2, 5, torch.float64))
    finally:
        torch.set_default_dtype(torch.float32)
    kinds = {x.dtype for x in [*encoder.parameters(), *encoder.buffers()] if x.is_floating_point()}
    assert kinds <= {torch.float64}
    assert z.dtype == torch.float64


@every_row
def test_half_precision_modules_carry_float32(case: Case) -> None:
    encoder = case.build()
    h, lengths, reset = sequence(2, 6), torch.tensor([6, 3]), flags(2, 6, 0.2)
    expected, _ = encoder(h, lengths=lengths, reset=reset)
    half = case.build(torch.bfloat16)
    z, last = half(h.bfloat16(), lengths=lengths, reset=reset)
    assert z.dtype == torch.bfloat16
    assert all(x.dtype == torch.float32 for x in last if x.is_floating_point())
    assert_states_close(half.initial_state(2), encoder.initial_state(2), 0.0)
    assert_close(z.float(), expected, 0.06)
    z_t, _ = half.step(h[:, 0].bfloat16(), half.initial_state(2))
    assert z_t.dtype == torch.bfloat16
    assert_close(z_t.float(), half(h[:, :1].bfloat16())[0][:, 0].float(), 0.06)


@every_row
def test_autocast(case: Case) -> None:
    encoder = case.build()
    h, reset, lengths = sequence(2, 6), flags(2, 6, 0.2), torch.tensor([6, 2])
    expected, end = encoder(h, reset=reset, lengths=lengths)
    with torch.autocast("cpu", torch.bfloat16):
        z, last = encoder(h, reset=reset, lengths=lengths)
        z_t, _ = encoder.step(h[:, 0], encoder.initial_state(2))
    assert_close(z.float(), expected, 0.06)
    assert all(x.dtype == y.dtype for x, y in zip(last, end, strict=True))
    if list(encoder.parameters()):
        z.float().sum().backward()
        gradients = [p.grad for p in encoder.parameters()]
        assert all(g is None or g.isfinite().all() for g in gradients)
        assert any(g is not None and g.any() for g in gradients)
    first, _ = encoder(h[:, :1])
    assert_close(z_t.float(), first[:, 0], 0.06)


@pytest.fixture
def rnn_in_graphs() -> Iterator[None]:
    """PyTorch's own switch: without it, Dynamo refuses nn.GRU and nn.LSTM."""
    torch.compiler.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


@every_row
@pytest.mark.usefixtures("rnn_in_graphs")
def test_compiled_whole_equals_eager_with_gradients(case: Case) -> None:
    encoder = case.build()
    h, lengths, reset = sequence(2, 4), torch.tensor([4, 2]), flags(2, 4, 0.4)
    state = encoder.initial_state(2)
    if case.name == "lstm":  # PyTorch 2.13 cannot differentiate a compiled nn.LSTM on the CPU
        encoder.requires_grad_(False)
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    z, last = compiled(h, state, lengths=lengths, reset=reset)
    expected, end = encoder(h, state, lengths=lengths, reset=reset)
    assert_close(z, expected, 1e-5)
    assert_states_close(tuple(last), tuple(end), 1e-5)
    parameters = [p for p in encoder.parameters() if p.requires_grad]
    if parameters:
        found, truth = (
            torch.autograd.grad((x**2).sum(), parameters, allow_unused=True, materialize_grads=True)
            for x in (z, expected)
        )
        for g, t in zip(found, truth, strict=True):
            assert_close(g, t, 1e-5)
    with torch.no_grad():
        step = torch.compile(encoder.step, backend="aot_eager", fullgraph=True)
        z_t, _ = step(h[:, 0], state, reset=reset[:, 0])
        assert_close(z_t, encoder.step(h[:, 0], state, reset=reset[:, 0])[0], 1e-5)


@every_row
def test_export(case: Case) -> None:
    encoder = case.build().eval()
    h, state = sequence(2, 4), encoder.initial_state(2)
    with torch.no_grad():
        program = torch.export.export(encoder, (h, state))
        z, last = program.module()(h, state)
        expected, end = encoder(h, state)
    assert_close(z, expected, 1e-5)
    assert_states_close(tuple(last), tuple(end), 1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda e, h, s: e(h[0]), ValueError, r"h: got shape \(4, 6\), expected three axes"),
        (lambda e, h, s: e(h[..., :3]), ValueError, "h: got 3 features, expected d_model = 6"),
        (lambda e, h, s: e(h.long()), TypeError, "h: got dtype torch.int64"),
        (lambda e, h, s: e(h, reset=h), TypeError, "reset: got dtype torch.float32"),
        (lambda e, h, s: e(h, lengths=[9, 1]), ValueError, "lengths: got values from 1 to 9"),
        (lambda e, h, s: e(h, observed=[True]), TypeError, "observed: got list"),
        (lambda e, h, s: e(h, [h]), TypeError, "state: got list, expected a named tuple"),
        (lambda e, h, s: e.step(h, s), ValueError, r"h_t: got \(2, 4, 6\), expected a \(B, E\)"),
        (lambda e, h, s: e.step(h[:, 0, :2], s), ValueError, "h_t: got 2 features"),
        (lambda e, h, s: e.step(h[:, 0], s, reset=h), TypeError, "reset: got torch.float32"),
        (
            lambda e, h, s: e.step(h[:, 0], s, observed=torch.ones(3, dtype=torch.bool)),
            ValueError,
            r"observed: got shape \(3,\), expected \(2,\)",
        ),
    ],
)
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_bad_arguments_are_refused(case: Case, call, error, message) -> None:
    encoder = case.build()
    with pytest.raises(error, match=message):
        call(encoder, sequence(2, 4), encoder.initial_state(2))


@every_row
def test_a_state_of_another_batch_size_is_refused(case: Case) -> None:
    encoder = case.build()
    if not encoder.initial_state(2):
        pytest.skip("has no state")
    with pytest.raises(ValueError, match=r"state: got a tensor of shape .*, expected 2 rows"):
        encoder(sequence(2, 4), encoder.initial_state(3))


@every_row
def test_other_dtypes_and_packed_sequences_are_refused(case: Case) -> None:
    encoder, h = case.build().double(), sequence(2, 4)
    if list(encoder.parameters()):
        with pytest.raises(
            TypeError, match=r"^h: got dtype torch\.float32, expected torch\.float64"
        ):
            encoder(h)
        with pytest.raises(TypeError, match=r"^h_t: got dtype torch\.float32, expected"):
            encoder.step(h[:, 0], encoder.initial_state(2))
    packed = torch.nn.utils.rnn.pack_padded_sequence(h, torch.tensor([4, 2]), batch_first=True)
    with pytest.raises(TypeError, match=r"^h: got a PackedSequence, expected .* with lengths="):
        encoder(packed)
