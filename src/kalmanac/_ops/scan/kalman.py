"""`kalman_scan` and its packed twin: check the arguments, choose a backend, run it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from kalmanac._ops.scan import arguments
from kalmanac._ops.scan.arguments import REAL, carry_dtype
from kalmanac._ops.scan.backends import choose
from kalmanac._ops.scan.inputs import (
    Belief,
    Filtering,
    KalmanInputs,
    neutral_kalman,
    start_and_prior,
    valid_steps,
)

Lengths = Tensor | Sequence[int] | None


@overload
def kalman_scan(
    a: Tensor, u: Tensor | None, q: Tensor, w: Tensor, r: Tensor, prior: Belief | None = None, *,
    b: Tensor | None = None, state: Belief | None = None, lengths: Lengths = None,
    reset: Tensor | None = None, observed: Tensor | None = None,
    r_floor: float | None = None, q_floor: float | None = None,
    details: Literal[False] = False, check: bool = False, backend: str | None = None,
) -> tuple[Belief, Belief]: ...  # fmt: skip
@overload
def kalman_scan(
    a: Tensor, u: Tensor | None, q: Tensor, w: Tensor, r: Tensor, prior: Belief | None = None, *,
    b: Tensor | None = None, state: Belief | None = None, lengths: Lengths = None,
    reset: Tensor | None = None, observed: Tensor | None = None,
    r_floor: float | None = None, q_floor: float | None = None,
    details: Literal[True], check: bool = False, backend: str | None = None,
) -> tuple[Belief, Belief, Filtering]: ...  # fmt: skip
def kalman_scan(
    a: Tensor, u: Tensor | None, q: Tensor, w: Tensor, r: Tensor, prior: Belief | None = None, *,
    b: Tensor | None = None, state: Belief | None = None, lengths: Lengths = None,
    reset: Tensor | None = None, observed: Tensor | None = None,
    r_floor: float | None = None, q_floor: float | None = None,
    details: bool = False, check: bool = False, backend: str | None = None,
) -> tuple[Belief, Belief] | tuple[Belief, Belief, Filtering]:  # fmt: skip
    """Filter B sequences of T readings in N independent channels (paper, Eqs. 4 to 6).

    predict  x⁻_t = a x⁺_{t-1} + b u_t,        Σ⁻_t = a² Σ⁺_{t-1} + q_t
    update   x⁺_t = x⁻_t + K_t (w_t - x⁻_t),   Σ⁺_t = (1 - K_t) Σ⁻_t,   K_t = Σ⁻_t / (Σ⁻_t + r_t)

    Args:
        a: decay Ā, (N,).
        u: input, (B, T, N); None for a filter without an input signal.
        q: process noise variance, (N,) or (B, T, N).
        w: readings, (B, T, N).
        r: variance of the readings' noise, (B, T, N).
        prior: the belief at the start of an episode, (N,) or (B, N) each; N(0, 1) by default.
        b: input gain, (N,); one by default.
        state: the belief to go on from, as an earlier call returned it; `prior` by default.
        lengths: valid steps of each row, (B,). Later steps are padding: they hold the last valid
            belief, and what stands in the signals there does not matter.
        reset: (B, T) bool; True restores `prior` before step t (first step of a new episode).
        observed: (B, T) bool; False means that the reading is missing: predict only.
        r_floor: if given, the noise of the readings is softplus(r) + r_floor; never negative.
        q_floor: if given, the process noise is softplus(q) + q_floor; never negative.
        details: also return a `Filtering` (prior beliefs and gains).
        check: also check values that must be read from the device: lengths, and that noise and the
            variances of `prior` and `state` are above zero and finite.
        backend: a name in `BACKENDS`; chosen by device, dtype and size if None.

    Noise that is negative means nothing, and neither do beliefs that come of it. q = 0 is a state
    that moves as told, r = 0 a reading that is exact: its variance is 0, and its gradients are not
    finite. With q = r = 0 the second reading meets a prior that is exact, too: the variance stays
    0, but the gain is 0 / 0 and the mean is not defined (NaN, or the reading).

    Signals may be strided views, such as the three parts of one (B, T, 3N) projection (but see
    `kalman_scan_packed`). They share one dtype; with bfloat16 or float16 signals everything carried
    is float32, and so is the final belief, while the beliefs of all steps have the signals' dtype.

    Returns:
        posterior: Belief of every step, (B, T, N).
        final: Belief after each row's own length, (B, N).
        filtering: only with `details=True`.

    Examples:
        >>> import torch
        >>> from kalmanac import kalman_scan
        >>> w = torch.full((1, 3, 1), 2.0)  # three readings of one channel
        >>> noise = torch.ones(1, 3, 1)
        >>> posterior, final = kalman_scan(torch.ones(1), None, torch.zeros(1), w, noise)
        >>> posterior.mean[0, :, 0]  # from N(0, 1) towards the readings
        tensor([1.0000, 1.3333, 1.5000])
        >>> final.variance
        tensor([[0.2500]])
    """
    arguments.signal("w", w, None, REAL)
    arguments.signal("r", r, w, REAL)
    if u is not None:
        arguments.signal("u", u, w, REAL)
    if isinstance(q, Tensor) and q.dim() == 3:
        arguments.signal("q", q, w, REAL)
    else:
        arguments.parameter("q", q, ((w.shape[2],), tuple(w.shape)), w)
    options = _Options(prior, b, state, lengths, reset, observed, r_floor, q_floor, check)
    return _filter(_inputs(a, u, q, w, r, None, "", options), details, check, backend)


def kalman_scan_packed(
    a: Tensor, signals: Tensor, q: Tensor | None = None, prior: Belief | None = None, *,
    layout: str = "uwr", b: Tensor | None = None, state: Belief | None = None,
    lengths: Lengths = None, reset: Tensor | None = None, observed: Tensor | None = None,
    r_floor: float | None = None, q_floor: float | None = None, variances: bool = True,
    details: bool = False, check: bool = False, backend: str | None = None,
) -> tuple[Belief, Belief] | tuple[Belief, Belief, Filtering]:  # fmt: skip
    """Run `kalman_scan` on signals side by side in one tensor, as one projection gives them.

    Args:
        a: decay Ā, (N,).
        signals: (B, T, kN), the k signals of `layout` in that order along the last axis.
        q: process noise variance, (N,); None where `layout` has it.
        layout: which signals and in which order: "w" and "r" must be there, "u" and "q" may;
            without "q", the process noise is the argument `q`.
        variances: False if nobody reads `posterior.variance`: on a GPU it is (B, T, 0) then.

    The rest is as in `kalman_scan`. The fused backends read the signals in place and write one
    gradient of the same shape, where separate views would cost one more copy in the backward.

    Examples:
        >>> import torch
        >>> from kalmanac import kalman_scan_packed
        >>> signals = torch.nn.Linear(16, 3 * 8)(torch.zeros(4, 10, 16))  # u, w and r of 8 channels
        >>> posterior, final = kalman_scan_packed(
        ...     torch.full((8,), 0.9), signals, torch.ones(8), r_floor=1e-3
        ... )
        >>> posterior.mean.shape, final.mean.shape
        (torch.Size([4, 10, 8]), torch.Size([4, 8]))
    """
    if not {"w", "r"} <= set(layout) <= set("uwrq") or len(set(layout)) != len(layout):
        raise ValueError(
            f"layout: got {layout!r}, expected w and r, and perhaps u and q, once each"
        )
    arguments.signal("signals", signals, None, REAL)
    if signals.shape[-1] % len(layout):
        raise ValueError(
            f"signals: got {signals.shape[-1]} channels, expected a multiple of {len(layout)} "
            f"for layout {layout!r}"
        )
    if (q is None) != ("q" in layout):
        raise ValueError(
            f"q: got {type(q).__name__} with layout {layout!r}, expected one of the two"
        )
    parts = dict(zip(layout, signals.chunk(len(layout), -1), strict=True))
    if q is None:
        q = parts["q"]
    else:
        arguments.parameter("q", q, ((parts["w"].shape[2],),), signals)
    options = _Options(prior, b, state, lengths, reset, observed, r_floor, q_floor, check)
    inputs = _inputs(a, parts.get("u"), q, parts["w"], parts["r"], signals, layout, options)
    return _filter(inputs._replace(variances=variances or details), details, check, backend)


class _Options(NamedTuple):
    """These are the unchecked arguments that both scans share."""

    prior: Belief | None
    b: Tensor | None
    state: Belief | None
    lengths: Lengths
    reset: Tensor | None
    observed: Tensor | None
    r_floor: float | None
    q_floor: float | None
    check: bool


def _inputs(
    a: Tensor, u: Tensor | None, q: Tensor, w: Tensor, r: Tensor,
    packed: Tensor | None, layout: str, options: _Options,
) -> KalmanInputs:  # fmt: skip
    """Check all but the signals, fill in the defaults, bring parameters to the carry dtype."""
    batch, _, channels = w.shape
    carry = carry_dtype(w.dtype)
    arguments.parameter("a", a, ((channels,),), w)
    b, prior, state = options.b, options.prior, options.state
    if b is not None:
        arguments.parameter("b", b, ((channels,),), w)
        b = b.to(carry)
    for name, belief in (("prior", prior), ("state", state)):
        if belief is not None:
            arguments.belief(name, belief, w)
    for name, flags in (("reset", options.reset), ("observed", options.observed)):
        if flags is not None:
            arguments.flags(name, flags, w)
    prior, state = (
        None if x is None else Belief(*(y.to(carry).expand(batch, channels) for y in x))
        for x in (prior, state)
    )
    for name, floor in (("r_floor", options.r_floor), ("q_floor", options.q_floor)):
        if floor is not None:
            arguments.floor(name, floor)
    return KalmanInputs(
        a=a.to(carry),
        b=b,
        u=u,
        q=q if q.dim() == 3 else q.to(carry),
        w=w,
        r=r,
        start=prior if state is None else state,
        prior=prior,
        lengths=arguments.row_lengths(options.lengths, w, options.check),
        reset=options.reset,
        observed=options.observed,
        r_floor=options.r_floor,
        q_floor=options.q_floor,
        packed=packed,
        layout=layout,
    )


def _filter(
    x: KalmanInputs, details: bool, check: bool, backend: str | None
) -> tuple[Belief, Belief] | tuple[Belief, Belief, Filtering]:
    """Choose, run, and bring the results to the signals' dtype."""
    dtype, steps = x.w.dtype, x.w.shape[1]
    chosen = choose(backend, x.w.device, dtype, steps)
    if check:
        _check_noise(x)
    plain = x if chosen.fused and not details else _plain(x)
    if steps == 0:
        posterior, final = Belief(x.w, x.w), start_and_prior(x)[0]
    else:
        posterior, final = chosen.kalman(x if chosen.fused else plain)
    result = Belief(*(y.to(dtype) for y in posterior))
    if not details:
        return result, final
    prior, gain = _filtering(plain, posterior)
    return result, final, Filtering(Belief(*(y.to(dtype) for y in prior)), gain.to(dtype))


def _plain(x: KalmanInputs) -> KalmanInputs:
    """Return the same call with signals in the carry dtype and noises as variances."""
    carry = x.a.dtype
    if x.r_floor is not None or x.q_floor is not None:
        x = neutral_kalman(x)  # first: softplus' slope at a NaN in a pad would be NaN

    def variance(raw: Tensor, floor: float | None) -> Tensor:
        raw = raw.to(carry)
        return raw if floor is None else F.softplus(raw) + floor

    return x._replace(
        u=None if x.u is None else x.u.to(carry),
        w=x.w.to(carry),
        q=variance(x.q, x.q_floor),
        r=variance(x.r, x.r_floor),
        q_floor=None,
        r_floor=None,
        packed=None,
    )


def _check_noise(x: KalmanInputs) -> None:
    valid = valid_steps(x.lengths, x.w)
    read = valid if x.observed is None else valid & x.observed
    if x.q_floor is None:
        arguments.positive("q", x.q, valid if x.q.dim() == 3 else None)
    if x.r_floor is None:
        arguments.positive("r", x.r, read)
    for name, belief in (("prior", x.prior), ("state", x.start)):
        if belief is not None:
            arguments.positive(f"{name}.variance", belief.variance)


def _filtering(x: KalmanInputs, posterior: Belief) -> Filtering:
    """Compute priors and gains: a step's prior is one predict from the posterior before."""
    x = neutral_kalman(x)
    posterior = Belief(*(y.to(x.a.dtype) for y in posterior))
    steps = x.w.shape[1]
    start, restored = start_and_prior(x)
    before = [
        torch.cat([first[:, None], rest[:, :-1]], 1)[:, :steps]
        for first, rest in zip(start, posterior, strict=True)
    ]
    if x.reset is not None:
        at = x.reset[..., None]
        before = [torch.where(at, p[:, None], y) for p, y in zip(restored, before, strict=True)]
    mean = x.a * before[0]
    if x.u is not None:
        mean = mean + (x.u if x.b is None else x.b * x.u)
    variance = x.a * x.a * before[1] + x.q
    gain = variance / (variance + x.r)

    valid = valid_steps(x.lengths, x.w)
    read = valid if x.observed is None else valid & x.observed
    prior = Belief(
        torch.where(valid[..., None], mean, posterior.mean),
        torch.where(valid[..., None], variance, posterior.variance),
    )
    return Filtering(prior, torch.where(read[..., None], gain, 0))
