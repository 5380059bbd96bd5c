"""The learner: networks, target, temperature and optimizer; it acts, and it learns from batches."""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from kalmanac._encoders.contract import State
from kalmanac._encoders.layers import draw_dropout_from
from kalmanac._observation import Observation, Sizes
from kalmanac._ops.cuda_streams import ForkedStreams
from kalmanac._ops.device import keep_freed_memory
from kalmanac._ops.sac_losses import (
    OBJECTIVES,
    Losses,
    Rules,
    continuous_losses,
    discrete_losses,
    fused_continuous_losses,
    takes_last_token,
)
from kalmanac._ops.squashed_gaussian import fused_draws
from kalmanac._replay.sampling import Batch
from kalmanac._sac.batch_check import check_batch, check_parts, parts_to_read
from kalmanac._sac.config import AgentSettings, Pretrained
from kalmanac._sac.data_update import Near
from kalmanac._sac.diagnostics import diagnose
from kalmanac._sac.distributions import SquashedGaussian
from kalmanac._sac.generators import load_generator, split_prefixes
from kalmanac._sac.networks import Actor, Critic, History, read_history
from kalmanac._sac.optimizer import Adam, Trailing, flatten_parameters

Metrics = Mapping[str, Tensor]


class Learner:
    """Recurrent soft actor-critic (paper, section 4.1), one for both kinds of actions.

    `update` runs every encoder once over the T + 1 tokens of its rows: step t of a pass is "now" of
    transition t and "next" of transition t - 1. No number is read back to the host, and no shape
    depends on data.

    `seed` decides the initial weights and the two generators: `acting` draws actions, `learning`
    the reparameterization noise of updates, and their dropout. The global generator is left alone.
    """

    def __init__(
        self, settings: AgentSettings, sizes: Sizes, *, device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:  # fmt: skip
        if settings.privileged_critic and sizes.privileged < 1:
            raise ValueError("privileged_critic: got True, expected sizes with a privileged state")
        if sizes.discrete and settings.exploration_correlation:
            got = settings.exploration_correlation
            raise ValueError(f"exploration_correlation: got {got}, expected 0 for discrete actions")
        objective = OBJECTIVES[settings.objective_of(sizes.discrete)]
        self.rules = Rules(settings.gamma, objective, settings.entropy_in_target)
        self.settings, self.sizes, self.pretrained = settings, sizes, Pretrained()
        # a caller may give `observed` and a mask where no environment does
        acting_sizes = sizes._replace(observed=True, action_mask=True, privileged=0)
        self._acting_parts = parts_to_read(acting_sizes, settings)
        self.device = torch.empty(0, device=device).device  # cuda:0, if it was cuda: tensors say so
        keep_freed_memory(self.device)
        seeds = torch.randint(2**62, (3,), generator=Generator().manual_seed(seed)).tolist()
        with torch.random.fork_rng(devices=[]), _built_in_float32():
            torch.default_generator.manual_seed(seeds[0])
            self.actor = Actor(sizes, settings).to(self.device)
            self.critic = Critic(sizes, settings).to(self.device)
        self.acting = Generator(self.device).manual_seed(seeds[1])
        self.learning = Generator(self.device).manual_seed(seeds[2])
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        for module in (self.actor, self.critic, self.target):
            draw_dropout_from(self.learning, module)
        self.averaged = self.actor  # what plays where nothing is explored
        if settings.average_policy:
            self.averaged = copy.deepcopy(self.actor).requires_grad_(False).eval()

        self.streams = ForkedStreams(self.device, most=3)
        self.learns_temperature = settings.ent_coef == "auto"
        self.entropy_goal = settings.entropy_goal(sizes.action, sizes.discrete)
        fixed = settings.ent_coef
        start = settings.initial_ent_coef if fixed == "auto" else fixed
        log = math.log(start) if start else -math.inf
        self.log_alpha = torch.full((), log, dtype=torch.float32, device=self.device)
        self.log_alpha.requires_grad_(self.learns_temperature)
        self.trust = torch.zeros((), device=self.device)  # in advantages, while data alone teach

        learned: dict[str, list[Tensor]] = {
            "actor": list(self.actor.parameters()),
            "critic": list(self.critic.parameters()),
            "temperature": [self.log_alpha] if self.learns_temperature else [],
        }
        self._learned = [p for group in learned.values() for p in group]
        copies: list[Actor | Critic] = [self.target]
        rates = {"critic": settings.tau}
        if settings.average_policy:
            copies.insert(0, self.averaged)
            rates = {"actor": settings.tau} | rates
        copied = flatten_parameters([p for module in copies for p in module.parameters()])
        span = settings.average_span if settings.average_policy else None
        trailing = Trailing(rates, copied, math.inf if span is None else 1 / span)
        betas = (settings.adam_betas[0], settings.adam_betas[1])
        self.optimizer = Adam(learned, settings.learning_rate, trailing, betas)

    def initial_state(self, rows: int) -> State:
        """The actor's memory before the first step of `rows` episodes."""
        return self.actor.network.initial_state(rows)

    @torch.no_grad()
    def act(
        self, observation: Observation[Tensor], previous_action: Tensor, state: State, *,
        episode_start: Tensor, explore: bool, generator: Generator | None = None,
        noise: Tensor | None = None, averaged: bool = False,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """One action for each of n observations, and the memory behind it.

        Args:
            previous_action: (n, A), one-hot if discrete (`action_as_input`).
            episode_start: (n,) bool: the memory is emptied first, and there is no previous action
                and no previous reward.
            explore: draw from the policy; False takes its mode.
            generator: draws the actions; None is the learner's own, `acting`.
            noise: standard normal numbers (n, A) that continuous actions are drawn by instead.
            averaged: the actor with averaged weights acts, not the newest one.

        Returns:
            int64 (n,), or float (n, A) in [-1, 1].
        """
        rows, actions = tuple(episode_start.shape), self.sizes.action
        check_parts(
            "observation", observation, self._acting_parts, rows, ("observed", "action_mask")
        )
        if previous_action.shape != (*rows, actions):
            got = tuple(previous_action.shape)
            raise ValueError(f"previous_action: got shape {got}, expected {(*rows, actions)}")
        self._train(False)
        actor = self.averaged if averaged else self.actor
        parameters, state = actor.step(
            observation, previous_action, state, episode_start=episode_start
        )
        if explore:
            generator = generator or self.acting
            return actor.distribution.sample(parameters, generator, noise), state
        return actor.distribution.mode(parameters), state

    def action_as_input(self, action: Tensor) -> Tensor:
        """An action of `act` as the next step's `previous_action`, (n, A)."""
        return self.actor.distribution.as_input(action)

    def update(
        self, batch: Batch, *, near: float | Tensor | None = None,
        online: float | Tensor | None = None,
    ) -> Metrics:  # fmt: skip
        """One step of actor, critic, target and temperature; metrics are 0-d tensors.

        Args:
            near: the weight of staying near the batch's actions, in (0, 1]: the actor copies them,
                and better ones with a strength of 1 - near, as far as these are to be trusted; the
                critic learns the batch's own returns, and there is no temperature: the data's
                spread stands in for entropy.
            online: the share of copying in the actor's loss; the rest are the usual updates.
        """
        check_batch(batch, self.sizes, self.settings)
        self._train(True)
        losses = self._losses(batch, near, online)
        gradients = torch.autograd.grad(
            losses.roots, self._learned, losses.slopes, materialize_grads=True
        )
        self.streams.hold(gradients)
        norms = self.optimizer.step(gradients, self.settings.max_grad_norm, ("actor", "critic"))
        norms = {f"grad_norm_{name}": norm for name, norm in norms.items()}
        return _metrics(losses.losses | losses.numbers | norms)

    def losses_of(self, batch: Batch) -> tuple[dict[str, Tensor], Metrics]:
        """The losses by name, none of which reaches another's parameters, and what to log."""
        losses = self._losses(batch)
        return losses.losses, _metrics(losses.losses | losses.numbers)

    def _losses(
        self, batch: Batch, near: float | Tensor | None = None,
        online: float | Tensor | None = None,
    ) -> Losses:  # fmt: skip
        history = read_history(batch)
        knows_more = self.settings.privileged_critic or self.settings.critic_clock
        critic_history = read_history(batch, self.settings) if knows_more else history
        losses = self._discrete_losses if self.sizes.discrete else self._continuous_losses
        data = None if near is None else Near(1 - near, online, self.trust, self.rules.gamma)
        return losses(batch, history, critic_history, data)

    def _discrete_losses(
        self, batch: Batch, history: History, critic_history: History, near: Near | None
    ) -> Losses:
        actor, critic, target = self.actor, self.critic, self.target
        mask = history.observation.action_mask
        allowed = None if mask is None else mask[:, :-1]
        whole = takes_last_token(batch.reward, self.sizes.action)
        now = critic_history if whole else critic_history.but_last()
        logits, following, q = self.streams(
            (history, critic_history),
            lambda: actor(history),
            torch.no_grad()(lambda: target.head(*target.network.encode(critic_history))),
            lambda: critic.head(*critic.network.encode(now)),
        )
        copies, log_alpha = None, self.log_alpha
        if near is not None:
            copies = near.discrete(batch, actor.distribution, logits, q, following)
            if near.share is None:
                return copies.alone()
            log_alpha = copies.temperature(log_alpha)
        goal: float | Tensor = self.entropy_goal
        if allowed is not None and self.learns_temperature:
            goal = self.settings.goal_among(allowed.sum(-1))
        losses = discrete_losses(
            logits, q, following, batch.action, batch.reward, batch.terminated, batch.valid,
            log_alpha, self.rules, entropy_goal=goal, allowed=allowed,
        )  # fmt: skip
        return losses if copies is None else copies.beside(losses, self.log_alpha, goal)

    def _continuous_losses(
        self, batch: Batch, history: History, critic_history: History, near: Near | None
    ) -> Losses:
        distribution = self.actor.distribution
        assert isinstance(distribution, SquashedGaussian)
        if near is None and takes_last_token(batch.reward, self.sizes.action):
            return self._drawn_losses(distribution, batch, history, critic_history)
        parameters, next_features, features = self.streams(
            (history, critic_history),
            lambda: self.actor(history),
            torch.no_grad()(lambda: self.target.network.encode(critic_history)),
            lambda: self.critic.network.encode(critic_history.but_last()),
        )
        with torch.no_grad():
            next_output = distribution.output(parameters[:, 1:], self.learning)
            next_value = self.target.q_values(*next_features).following().frozen(next_output.action)
        output = distribution.output(parameters[:, :-1], self.learning)
        q_values = self.critic.q_values(*features)
        q = q_values.taken(batch.counted_actions())
        drawn, goal = q_values.frozen(output.action), self.entropy_goal
        copies, log_alpha = None, self.log_alpha
        if near is not None:
            here = parameters[:, :-1], output.entropy
            copies = near.continuous(batch, distribution, *here, q_values, q, drawn, next_value)
            if near.share is None:
                return copies.alone()
            log_alpha = copies.temperature(log_alpha)
        losses = continuous_losses(
            drawn, output.entropy, q, next_value, next_output.entropy,
            batch.reward, batch.terminated, batch.valid, log_alpha, self.rules,
            entropy_goal=goal,
        )  # fmt: skip
        return losses if copies is None else copies.beside(losses, self.log_alpha, goal)

    def _drawn_losses(
        self, policy: SquashedGaussian, batch: Batch, history: History, critic_history: History
    ) -> Losses:
        """Compute `_continuous_losses` at all tokens, as kernels take them."""
        actor, critic, target = self.actor, self.critic, self.target
        action = batch.action

        def look_ahead() -> tuple[tuple[Tensor, ...], Tensor]:  # it has the time for the noise
            noise = action.new_empty(2, *action.shape).normal_(generator=self.learning)
            return target.network.encode(critic_history), noise

        def judge_taken() -> tuple[list[Tensor], Tensor]:
            features = critic.network.encode(critic_history)
            at_tokens = torch.cat([action, action[:, -1:]], 1)  # the last one has no say
            q = critic.head(*features, at_tokens)
            return [x.detach() for x in features], q

        parameters, (next_features, noise), (features, q) = self.streams(
            (history, critic_history),
            lambda: actor(history),
            torch.no_grad()(look_ahead),
            judge_taken,
        )
        draws = fused_draws(parameters, noise, policy.log_std_range)
        following, frozen = self.streams.more(
            draws,
            torch.no_grad()(lambda: target.head(*next_features, draws.next.action)),
            lambda: critic.head(*features, draws.here.action, frozen=True),
        )
        return fused_continuous_losses(
            q, frozen, following, draws.here.entropy, draws.next.entropy, batch.reward,
            batch.terminated, batch.valid, self.log_alpha, self.rules,
            entropy_goal=self.entropy_goal,
        )  # fmt: skip

    def diagnostics(self, batch: Batch) -> Metrics:
        """A closer look at a batch, for now and then; changes nothing."""
        check_batch(batch, self.sizes, self.settings)
        self._train(False)
        return diagnose(self.actor, self.critic, batch, self.settings)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next update and the next action depend on, as flat tensors."""
        parts = {"actor": self.actor, "critic": self.critic, "target": self.target}
        if self.settings.average_policy:
            parts["averaged"] = self.averaged
        tensors = {
            f"{part}.{name}": x.detach().clone()
            for part, module in parts.items()
            for name, x in module.state_dict().items()
        }
        tensors["log_alpha"] = self.log_alpha.detach().clone()
        for name, generator in self._generators().items():
            tensors[f"generator.{name}"] = generator.get_state()
        return tensors | {f"adam.{k}": x for k, x in self.optimizer.state_dict().items()}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on exactly where `state_dict` was taken, if that was on the same kind of device."""
        known = {"actor", "averaged", "critic", "target", "generator", "adam", ""}
        parts = split_prefixes(tensors, known)
        self.load_actor(parts["actor"], parts["averaged"] or None)
        self.critic.load_state_dict(parts["critic"])
        self.target.load_state_dict(parts["target"])
        with torch.no_grad():
            self.log_alpha.copy_(parts[""]["log_alpha"])
        for name, generator in self._generators().items():
            load_generator(generator, parts["generator"][name].cpu())
        self.optimizer.load_state_dict(parts["adam"])

    def load_actor(
        self, newest: Mapping[str, Tensor], averaged: Mapping[str, Tensor] | None = None
    ) -> None:
        """Take over an actor's weights; without averaged ones, the average begins with them."""
        self.actor.load_state_dict(newest)
        if self.settings.average_policy:
            self.averaged.load_state_dict(newest if averaged is None else averaged)

    def __deepcopy__(self, memo: dict[int, object]) -> "Learner":
        """A learner of its own in the same state: copied views would not know each other."""
        copied = Learner(self.settings, self.sizes, device=self.device)
        copied.load_state_dict(self.state_dict())
        copied.pretrained = self.pretrained
        copied.trust.copy_(self.trust)
        return copied

    def _generators(self) -> dict[str, Generator]:
        return {"acting": self.acting, "learning": self.learning}

    def _train(self, training: bool) -> None:
        """Dropout, where an encoder has it, works in updates only."""
        if self.actor.training is not training:
            for module in (self.actor, self.critic, self.target):
                module.train(training)


def _metrics(values: Mapping[str, Tensor]) -> Metrics:
    return {f"train/{name}": x.detach() for name, x in values.items()}


@contextmanager
def _built_in_float32() -> Iterator[None]:
    """Weights are float32 as observations are, whatever a program has set for its own tensors."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
