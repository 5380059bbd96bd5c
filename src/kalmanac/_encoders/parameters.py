"""Parameter counts, and the paper's 10 % rule as a table that a report can print.

The paper (section 5.1) wants every agent's parameter count within 10 % of the others', except
GRU's. The agent around an encoder is counted here from its layer sizes (Table 1): actor and critic
each own an embedder and an encoder, the twin Q heads share the critic's, and the heads see z beside
the raw observation (and action, where actions are continuous).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from torch import nn

from kalmanac._encoders.registry import make_encoder

LEGEND = ("vssm", "vssm+kf", "vssm+kf-u", "mamba", "gru", "transformer")  # those with a memory


@dataclass(frozen=True)
class AgentSizes:
    """These sizes decide an agent's parameter count, its encoder apart."""

    observation: int
    action: int  # dimensions, or the number of discrete actions
    discrete: bool
    actor: tuple[int, ...]  # widths of the hidden layers
    critic: tuple[int, ...]
    feedforward: int  # of the Transformer
    d_model: int = 16


WALKER_RUN = AgentSizes(24, 6, False, (256, 256), (256, 256), feedforward=256)
BEST_ARM = AgentSizes(1, 3, True, (128,), (256,), feedforward=128)


class Share(NamedTuple):
    """A share is one line of the rule: an agent beside the reference agent."""

    encoder: str
    encoder_parameters: int
    agent_parameters: int
    ratio: float  # to the reference agent
    within: bool


def count_parameters(module: nn.Module) -> int:
    """Count the learnable numbers of a module."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def agent_parameters(encoder: int, sizes: AgentSizes) -> int:
    """Return the agent's count with an encoder of `encoder` parameters, without an output norm."""
    e, o, a = sizes.d_model, sizes.observation, sizes.action
    embedder = _mlp(o + a, (), e)
    actor = _mlp(e + o, sizes.actor, a if sizes.discrete else 2 * a)
    q_head = _mlp(e + o, sizes.critic, a) if sizes.discrete else _mlp(e + o + a, sizes.critic, 1)
    return 2 * (embedder + encoder) + actor + 2 * q_head


def ten_percent_rule(
    sizes: AgentSizes,
    encoders: Iterable[str] = LEGEND,
    *,
    reference: str = "vssm",
    tolerance: float = 0.10,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Share]:
    """Compare every agent's parameter count with that of the agent with encoder `reference`.

    `settings` maps an encoder's name to settings other than its defaults.
    """
    overrides = {"transformer": {"feedforward": sizes.feedforward}} | dict(settings or {})

    def encoder_count(name: str) -> int:
        return count_parameters(
            make_encoder(name, **{"d_model": sizes.d_model} | dict(overrides.get(name, {})))
        )

    base = agent_parameters(encoder_count(reference), sizes)
    rows = []
    for name in encoders:
        own = encoder_count(name)
        total = agent_parameters(own, sizes)
        ratio = total / base
        rows.append(Share(name, own, total, ratio, abs(ratio - 1) <= tolerance))
    return rows


def rule_as_text(rows: Iterable[Share]) -> str:
    """Write the table for a terminal or a report."""
    lines = [f"{'encoder':<12} {'encoder':>9} {'agent':>9} {'ratio':>7}  within the rule"]
    for row in rows:
        verdict = "yes" if row.within else "NO"
        lines.append(
            f"{row.encoder:<12} {row.encoder_parameters:>9,} {row.agent_parameters:>9,} "
            f"{row.ratio:>7.3f}  {verdict}"
        )
    return "\n".join(lines)


def _mlp(width: int, hidden: tuple[int, ...], out: int) -> int:
    """Count weights and biases of linear layers of these widths."""
    return sum((n + 1) * m for n, m in pairwise((width, *hidden, out)))
