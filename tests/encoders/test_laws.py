"""What every history encoder must obey; a new row of `ENCODERS` is tested unasked."""

import math

import pytest
import torch
from torch import Tensor

from tests.encoders.cases import (
    BUDGETS,
    CASES,
    Case,
    E,
    assert_close,
    assert_states_close,
    by_steps,
    every_encoder,
    every_encoder_exactly,
    flags,
    rows_of,
    run_in,
    sequence,
)

B, T = 3, 6


@every_encoder_exactly
def test_stepping_equals_forward(case: Case, dtype: torch.dtype) -> None:
    encoder = case.build(dtype)
    h = sequence(B, T, dtype)
    z, last = encoder(h)
    z_steps, last_steps = by_steps(encoder, h, encoder.initial_state(B))
    assert_close(z, z_steps, BUDGETS[dtype])
    assert_states_close(last, last_steps, BUDGETS[dtype])


@every_encoder_exactly
def test_stepping_equals_forward_mid_episode_with_resets_and_missing_readings(
    case: Case, dtype: torch.dtype
) -> None:
    encoder = case.build(dtype)
    h, state = sequence(B, T, dtype), run_in(encoder, B)
    reset, observed = flags(B, T, 0.3), flags(B, T, 0.6, seed=3)
    assert reset.any()
    assert not observed.all()
    z, last = encoder(h, state, reset=reset, observed=observed)
    z_steps, last_steps = by_steps(encoder, h, state, reset=reset, observed=observed)
    assert_close(z, z_steps, BUDGETS[dtype])
    assert_states_close(last, last_steps, BUDGETS[dtype])


@every_encoder_exactly
def test_split_at_every_point_and_resumed_equals_whole(case: Case, dtype: torch.dtype) -> None:
    encoder = case.build(dtype)
    h, reset = sequence(B, T, dtype), flags(B, T, 0.2)
    for marks in (None, reset):
        z, last = encoder(h, reset=marks)
        for cut in range(T + 1):
            head, tail = (None, None) if marks is None else (marks[:, :cut], marks[:, cut:])
            z_head, between = encoder(h[:, :cut], reset=head)
            z_tail, last_tail = encoder(h[:, cut:], between, reset=tail)
            assert_close(torch.cat([z_head, z_tail], 1), z, BUDGETS[dtype])
            assert_states_close(last_tail, last, BUDGETS[dtype])


@every_encoder
def test_rows_that_reset_at_different_times_do_not_leak(case: Case) -> None:
    encoder = case.build()
    h, state = sequence(4, T), run_in(encoder, 4)
    starts = [[3], [], [0, 5], [1, 2, T - 1]]
    reset = torch.zeros(4, T, dtype=torch.bool)
    for row, at in enumerate(starts):
        reset[row, at] = True
    z, last = encoder(h, state, reset=reset)
    for row, at in enumerate(starts):
        carried = rows_of(state, [row])
        for begin, end in zip([0, *at], [*at, T], strict=True):
            if begin in at:
                carried = encoder.initial_state(1)
            alone, carried = encoder(h[row : row + 1, begin:end], carried)
            assert_close(z[row : row + 1, begin:end], alone, 1e-5)
        for x, y in zip(rows_of(last, [row]), carried, strict=True):
            assert_close(x, y, 1e-5)


@every_encoder
@pytest.mark.parametrize("with_resets", [False, True])
def test_each_row_ends_after_its_own_length(case: Case, with_resets: bool) -> None:
    encoder = case.build()
    lengths = [T, 0, 1, 4]
    h, state = sequence(4, T), run_in(encoder, 4)
    reset = flags(4, T, 0.4) if with_resets else None
    z, last = encoder(h, state, lengths=lengths, reset=reset)
    for row, n in enumerate(lengths):
        marks = None if reset is None else reset[row : row + 1, :n]
        alone, end = encoder(h[row : row + 1, :n], rows_of(state, [row]), reset=marks)
        assert_close(z[row : row + 1, :n], alone, 1e-5)
        assert not z[row, n:].any(), "z is zero on pads"
        for x, y in zip(rows_of(last, [row]), end, strict=True):
            assert_close(x, y, 1e-5)
    for x, y in zip(rows_of(last, [1]), rows_of(state, [1]), strict=True):
        assert torch.equal(x, y), "a row of length 0 keeps its state"


@every_encoder
@pytest.mark.filterwarnings("ignore:RNN module weights")  # cuDNN, of an LSTM that is told of pads
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_learning_sees_at_steps_what_forward_gives(case: Case, device: str) -> None:
    encoder = case.build().to(device)
    lengths = torch.tensor([T, 0, 1, 4], device=device)
    steps = (torch.arange(T, device=device) < lengths[:, None])[..., None]
    h = sequence(4, T).to(device).requires_grad_()
    reset, observed = flags(4, T, 0.3).to(device), flags(4, T, 0.6, seed=3).to(device)
    slope = sequence(4, T, seed=5).to(device) * steps
    learned = [h, *encoder.parameters()]
    z, _ = encoder(h, lengths=lengths, reset=reset, observed=observed)
    found = encoder.represent(h, lengths=lengths, reset=reset, observed=observed)
    assert_close(found * steps, z, 1e-5)
    gradients = [torch.autograd.grad(y, learned, slope, allow_unused=True) for y in (found, z)]
    for x, y in zip(*gradients, strict=True):
        assert (x is None) == (y is None)
        if x is not None and y is not None:
            assert_close(x, y, 1e-4)


@every_encoder
def test_pad_garbage_changes_neither_outputs_nor_state_nor_gradients(case: Case) -> None:
    encoder = case.build()
    lengths = torch.tensor([T, 0, 1, 4])
    padded = torch.arange(T) >= lengths[:, None]
    clean = sequence(4, T)
    garbage = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30]).repeat(E * T)[: E * T]
    state = run_in(encoder, 4)
    reset = torch.zeros(4, T, dtype=torch.bool)
    reset[3, 2] = reset[3, 5] = reset[1, 0] = True  # two of them on pads
    weight = sequence(4, T, seed=5)

    def everything(h: Tensor) -> list[Tensor]:
        h = h.clone().requires_grad_()
        carried = tuple(x.clone().requires_grad_(x.is_floating_point()) for x in state)
        z, last = encoder(h, carried, lengths=lengths, reset=reset)
        loss = (z * weight).sum() + sum(x.sum() for x in last if x.is_floating_point())
        into = [h, *(x for x in carried if x.requires_grad), *encoder.parameters()]
        return [z, *last, *torch.autograd.grad(loss, into)]

    expected = everything(clean)
    found = everything(torch.where(padded[..., None], garbage.view(T, E), clean))
    for value, truth in zip(found, expected, strict=True):
        assert truth.isfinite().all()
        assert torch.equal(value, truth)
    into_h = expected[1 + len(state)]
    assert not into_h[padded].any()


@every_encoder
@pytest.mark.parametrize("resumed", [False, True])
def test_causality_by_gradient(case: Case, resumed: bool) -> None:
    encoder = case.build(torch.float64)
    h = sequence(1, T, torch.float64).repeat(T, 1, 1).requires_grad_()
    state = tuple(x.repeat_interleave(T, 0) for x in run_in(encoder, 1, steps=1))
    z, _ = encoder(h, state if resumed else None)
    weight = sequence(1, 1, torch.float64, seed=6)[0, 0]
    row = torch.arange(T)  # row t asks what z_t depends on
    (into,) = torch.autograd.grad((z[row, row] @ weight).sum(), h)
    reach = into.abs().amax(2)  # [t, s]: how much z_t depends on h_s
    assert not torch.triu(reach, 1).any(), "z_t depends on a later h_s"
    assert (reach.diagonal() > 0).all(), "z_t does not depend on h_t"
    one_back = reach.diagonal(-1)
    assert (one_back > 0).all() if encoder.uses_history else not one_back.any()


@every_encoder
def test_results_do_not_depend_on_batch_size_or_neighbours(case: Case) -> None:
    encoder = case.build()
    h, state = sequence(3, T), run_in(encoder, 3)
    lengths, reset = torch.tensor([T, 3, 5]), flags(3, T, 0.2)
    observed = flags(3, T, 0.7, seed=3)
    z, last = encoder(h, state, lengths=lengths, reset=reset, observed=observed)
    for row in range(3):
        one = slice(row, row + 1)
        alone, end = encoder(
            h[one],
            rows_of(state, [row]),
            lengths=lengths[one],
            reset=reset[one],
            observed=observed[one],
        )
        assert_close(z[one], alone, 1e-6)
        for x, y in zip(rows_of(last, [row]), end, strict=True):
            assert_close(x, y, 1e-6)

        others = torch.where(torch.arange(3)[:, None, None] == row, h, math.nan)
        beside, _ = encoder(others, state, lengths=lengths, reset=reset, observed=observed)
        assert_close(beside[one], z[one], 1e-6)


@every_encoder
def test_a_sequence_of_no_steps_changes_nothing(case: Case) -> None:
    encoder = case.build()
    state = run_in(encoder, B)
    z, last = encoder(sequence(B, 0), state)
    assert z.shape == (B, 0, E)
    assert_states_close(last, state, 0.0)


@every_encoder
def test_state_is_a_flat_named_tuple_batch_first_that_nobody_keeps(case: Case) -> None:
    encoder = case.build()
    initial = encoder.initial_state(B)
    assert isinstance(initial, tuple)
    assert hasattr(initial, "_fields")
    assert all(isinstance(x, Tensor) and x.shape[0] == B for x in initial)
    h = sequence(B, T)
    z, last = encoder(h)
    assert type(last) is type(initial)
    assert [(x.shape, x.dtype) for x in last] == [(x.shape, x.dtype) for x in initial]
    again, _ = encoder(h)
    assert torch.equal(z, again), "something was remembered between two calls"


@every_encoder
def test_the_given_state_is_not_written_to(case: Case) -> None:
    encoder = case.build()
    state = run_in(encoder, B)
    kept = tuple(x.clone() for x in state)
    encoder(sequence(B, T), state, reset=flags(B, T, 0.3))
    encoder.step(sequence(B, 1)[:, 0], state, reset=flags(B, 1, 0.5)[:, 0])
    assert_states_close(state, type(state)(*kept), 0.0)


def test_every_row_of_the_table_is_tested() -> None:
    from kalmanac._encoders.registry import ENCODERS

    assert {case.name for case in CASES} == set(ENCODERS)
