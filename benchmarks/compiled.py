"""Time our update beside `torch.compile` of the plain one, the rival of two lines, and other peers.

    python benchmarks/compiled.py --device cuda [--budget 150] [--out FILE]

The plain update (compiled_sac.py) is compiled whole: with the mode "reduce-overhead", which records
graphs of its own, and with "default" and "max-autotune-no-cudagraphs" inside a graph of ours.
Several seeds are one axis of a `vmap` there and in JAX (jax_sac.py), and branches of one graph in
ours. All learn from one batch for each seed again and again, with the same noise. Who leads
elsewhere than the plain update in float32, uncompiled, is refused, ours too. The recurrent SAC as
public baselines write it (plain_sac.py), with `nn.GRU`, is another agent, compared with nothing.
With `--forms`, each fused form stands beside its own plain one (compiled_forms.py), forward and
backward.

Every case has a process of its own. They compile side by side, and are timed one after the other
when all are ready, or when the budget says so: the rest is told as not ready in so many seconds.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import compiled_forms
import jax_peer
from compiled_processes import Case, prepared, timed
from compiled_sac import CompiledSAC
from experience import filled
from gpu_updates import rate
from kalmanac._encoders.registry import ENCODERS
from kalmanac._observation import Sizes
from kalmanac._ops.dispatch import TRITON
from kalmanac._ops.graphed_call import WARM_UP, garbage_collection_paused
from kalmanac._sac.cuda_graph import GraphedUpdates, UpdateWith
from plain_sac import PlainSAC
from record import on_record, save
from report import print_table
from update import SMALL, TASKS, Task, make_learner
from update_peer import Ours, disagreement, noise_of, refusal

LEAST = 1.3  # times the rival's speed, or a fused form goes
CALLS = 20  # of a form in one graph: to launch a graph takes longer than some of them do
OURS, JAX, BASELINE = "ours", "JAX, one jit", "plain PyTorch, nn.GRU"
MODES: dict[str, dict[str, Any] | None] = {
    "reduce-overhead": {"mode": "reduce-overhead"},
    "default, captured": {},
    "max-autotune, captured": {"mode": "max-autotune-no-cudagraphs"},
    "eager backend": {"backend": "aot_eager"},  # traced, not compiled: where there is no compiler
    "as it is, captured": None,  # not compiled: a GRU is cuDNN's then
}
SMALL_CONTINUOUS = replace(SMALL, name="small, continuous", sizes=Sizes(2, 3, False))
NOTES = (
    "updates a second of all seeds together, or of a form; one batch a seed again and again, full "
    "windows, TF32",
    "start-up: seconds until the first updates are made, with tracing, compiling, tuning and, for "
    "ours, the kernels; processes compiled side by side, so that each alone would be faster",
    "the plain update is one function, gradients, Adam and target included; scan by doubling",
    f"forms on a GPU: {CALLS} calls are one graph, as an update is one graph of many forms",
    f"verdict: our updates a second by those of the best rival, expected at least {LEAST}",
)


# what a case's process calls when it is told to, or None, and what is to be said of it
Ready = tuple[Callable[[], object] | None, dict[str, Any]]
Prepared = Callable[["Case", Task, torch.device], Ready]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every case, print the table, write JSON; 1 if a rival was refused."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    if options.case:
        serve(Case(*json.loads(options.case)), options)
        return 0
    began = time.perf_counter()
    cases = chosen(options)
    document = {**on_record("benchmarks/compiled.py", words), "notes": NOTES}
    document |= {"device": options.device, "finished": False}

    def keep() -> None:
        if options.out is not None:
            document["cases"] = [asdict(case) for case in cases]
            document["verdicts"] = verdicts(cases)
            save(document, options.out)

    children = prepared(cases, options, began, keep)
    time.sleep(max(began + options.quiet_after - time.perf_counter(), 0))
    for child in children:
        left = options.budget - (time.perf_counter() - began)
        child.case.found |= timed(child) if left > 0 else {"why_not": "the budget is spent"}
        child.close()
        print(f"{child.case.name}: {in_words(child.case.found)}", flush=True)
        keep()
    document["finished"] = True
    keep()
    print_table(
        ["", "a second", "start-up", ""],
        [
            [case.name, f"{case.found.get('per_second', 0):,.0f}",
             f"{case.found.get('start_up', 0):.0f} s", case.found.get("why_not", "")]
            for case in cases
        ],
    )  # fmt: skip
    for line in document["verdicts"] if "verdicts" in document else verdicts(cases):
        print(line)
    return 1 if any("REFUSED" in case.found.get("why_not", "") for case in cases) else 0


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases, the most telling first."""
    tasks = [SMALL.name, SMALL_CONTINUOUS.name] if options.quick else options.tasks
    if options.forms:
        return [
            Case(how, task, form, 1)
            for task in tasks
            for form in compiled_forms.forms(_task(task), torch.device("cpu"))
            if not options.only or form in options.only
            for how in (OURS, *(mode for mode in options.modes if mode in MODES))
        ]
    return [
        Case(how, task, encoder, seeds)
        for encoder in options.encoders
        for seeds in sorted(options.seeds, reverse=True)
        for task in tasks
        for how in (OURS, *options.modes)
        if how != BASELINE or encoder == options.encoders[0]  # it has an encoder of its own
    ]


def serve(case: Case, options: argparse.Namespace) -> None:
    """In a case's process: make ready, say so, wait for the word, measure."""
    say, sys.stdout = sys.stdout, sys.stderr
    device = torch.device(options.device)
    task = _task(case.task)
    whole: dict[str, Prepared] = {OURS: ours, JAX: in_jax, BASELINE: baseline}
    try:
        make = whole.get(case.how, rival) if case.what in ENCODERS else form
        run, found = make(case, task, device)
    except Exception as error:  # whatever a compiler raises
        text = " ".join(str(error).split())
        run, found = None, {"why_not": f"{type(error).__name__}: {text[:300]}"}
    print(json.dumps(found), file=say, flush=True)
    if run is not None and sys.stdin.readline():
        stretch = jax_peer.STRETCH if case.how == JAX else 1
        calls = case.seeds * stretch * found.get("calls", 1)
        per_second = calls * rate(run, options.seconds)
        print(json.dumps({"per_second": per_second}), file=say, flush=True)


def ours(case: Case, task: Task, device: torch.device) -> Ready:
    """Our update of so many seeds, as one graph on a GPU."""
    learners, batches = seeded(case, task, device)
    plain = CompiledSAC(learners, None)
    native = plain.batch_of(batches)
    off = disagreement(Ours(learners, batches), plain, native, learners, batches)
    found: dict[str, Any] = {"disagreement": off}
    why_not = refusal(off, device)
    if why_not is not None:
        return None, found | {"why_not": why_not}
    work = [UpdateWith(*pair) for pair in zip(learners, batches, strict=True)]
    if device.type != "cuda":
        return lambda: [one.run() for one in work], found
    together = GraphedUpdates(work, device)
    for _ in range(WARM_UP + 1):
        together()
    torch.cuda.synchronize()
    if together.failed:
        return None, found | {"why_not": "it cannot be recorded"}
    return together, found


def rival(case: Case, task: Task, device: torch.device) -> Ready:
    """The compiled update of so many seeds, compared with itself uncompiled; or why not."""
    if device.type == "cuda" and not TRITON:
        return None, {"why_not": "torch.compile needs Triton on a GPU, which is not installed"}
    learners, batches = seeded(case, task, device)
    noise = [noise_of(*pair) for pair in zip(learners, batches, strict=True)]
    peer, plain = CompiledSAC(learners, MODES[case.how]), CompiledSAC(learners, None)
    native = peer.batch_of(batches)
    off = disagreement(peer, plain, native, learners, batches)
    found: dict[str, Any] = {"disagreement": off}
    why_not = refusal(off, device)
    if why_not is not None:
        return None, found | {"why_not": why_not}
    run = peer.repeated(native, noise)
    torch.set_float32_matmul_precision("high")
    run()
    if device.type == "cuda" and case.how.endswith("captured"):
        run = captured(run)
    for _ in range(3):  # a mode that records graphs of its own does so now
        run()
    skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    return run, found | ({"graphs_skipped": skips} if skips else {})


def in_jax(case: Case, task: Task, device: torch.device) -> Ready:
    """The same as one jit of JAX, if the encoder is written there."""
    if case.what != "vssm+kf":
        return None, {"why_not": f"{case.what} is not written in JAX"}
    learners, batches = seeded(case, task, device)
    return jax_peer.ready(learners, batches, _Fed(CompiledSAC(learners, None), batches))


def baseline(case: Case, task: Task, device: torch.device) -> Ready:
    """The recurrent SAC of public baselines, one seed after the other."""
    _, batches = seeded(case, task, device)
    agents = [PlainSAC(task.sizes, task.critic_hidden, device) for _ in batches]

    def run() -> None:
        for agent, batch in zip(agents, batches, strict=True):
            agent.update(batch)

    torch.set_float32_matmul_precision("high")
    run()
    return run, {}


class _Fed:
    """A plain update with batches of its own, where those of a peer are JAX's."""

    def __init__(self, plain: CompiledSAC, batches: Sequence[Any]) -> None:
        self.plain, self.batch, self.parameters = plain, plain.batch_of(batches), plain.parameters

    def update(self, native: Any, noise: Sequence[Any]) -> Any:
        return self.plain.update(self.batch, noise)


def form(case: Case, task: Task, device: torch.device) -> Ready:
    """One form of an update, by kernels or compiled; several calls are one graph on a GPU."""
    made = compiled_forms.forms(task, device)[case.what]()
    found: dict[str, Any] = {}
    if case.how == OURS:
        run = made.ours
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    else:
        right = [x.detach().clone() for x in made.ours()]  # in float32
        torch.set_float32_matmul_precision("high")
        rules = MODES[case.how]
        run = made.rival(
            partial(torch.compile, fullgraph=True, **rules) if rules is not None else lambda x: x
        )
        off = compiled_forms.apart(right, run())
        found["apart"] = off
        if not off <= compiled_forms.APART[device.type]:
            return None, found | {"why_not": f"REFUSED, {off:.1e} apart"}
    run()
    if device.type != "cuda":
        return run, found
    return captured(run, CALLS), found | {"calls": CALLS}


def _task(name: str) -> Task:
    return next(x for x in (*TASKS, SMALL, SMALL_CONTINUOUS) if x.name == name)


def captured(run: Callable[[], object], calls: int = 1) -> Callable[[], None]:
    """So many calls of the same, one after the other, replayed from one graph."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    with garbage_collection_paused(), torch.cuda.graph(graph, stream=stream):
        kept = [run() for _ in range(calls)]

    def replay(_: list[object] = kept) -> None:
        graph.replay()

    return replay


def seeded(case: Case, task: Task, device: torch.device) -> tuple[list[Any], list[Any]]:
    """Learners, which begin alike, and a batch of full windows for each."""
    rng = np.random.default_rng(0)
    replay = filled(task.sizes, np.full(task.batch, task.context), rng, device)
    learners = [make_learner(case.what, task, device) for _ in range(case.seeds)]
    batches = [
        replay.sample(task.batch, task.context, generator=torch.Generator(device).manual_seed(seed))
        for seed in range(case.seeds)
    ]
    return learners, batches


def verdicts(cases: Sequence[Case]) -> list[str]:
    """Ours against the best rival, for each task, encoder and number of seeds that has both."""
    lines = []
    for case in cases:
        speed = case.found.get("per_second")
        if case.how != OURS or speed is None:
            continue
        same = (case.task, case.what, case.seeds)
        rivals = {
            x.how: x.found["per_second"]
            for x in cases
            if x.how in MODES and (x.task, x.what, x.seeds) == same and "per_second" in x.found
        }
        if rivals:
            best = max(rivals, key=lambda how: rivals[how])
            times = speed / rivals[best]
            word = "stays" if times >= LEAST else "goes"
            lines.append(
                f"{case.task}, {case.what}, {case.seeds} seeds: ours {speed:,.0f}/s, "
                f"{best} {rivals[best]:,.0f}: {times:.2f} × ({LEAST} × expected: {word})"
            )
    return lines


def in_words(found: dict[str, Any]) -> str:
    """A case's outcome."""
    if "why_not" in found:
        return str(found["why_not"])
    return f"{found['per_second']:,.0f} a second, start-up {found['start_up']:.0f} s"


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--tasks", nargs="+", default=["POPGym", "DMC"])
    parser.add_argument("--encoders", nargs="+", default=["vssm+kf", "memoryless"])
    parser.add_argument("--forms", action="store_true", help="fused forms one by one instead")
    parser.add_argument("--only", nargs="+", help="these forms")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5])
    parser.add_argument(
        "--modes", nargs="+", choices=[*MODES, JAX, BASELINE],
        default=[*list(MODES)[:3], JAX, BASELINE],
    )  # fmt: skip
    parser.add_argument("--budget", type=float, default=600, help="seconds for everything")
    parser.add_argument(
        "--quiet-after", type=float, default=0, metavar="SECONDS",
        help="other programs run beside this one until then: nothing is timed before",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--threads", type=int, default=2, help="that compile, of each process")
    parser.add_argument("--seconds", type=float, default=0.5, help="per number")
    parser.add_argument("--quick", action="store_true", help="a small size")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # of a process that this one started
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
