"""Control with an exported agent: needs numpy and onnxruntime, and nothing else."""

import sys
import time

import numpy as np
import onnxruntime

PERIOD = 0.01  # seconds

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1  # one core: a step is too small for more
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
outputs = [output.name for output in session.get_outputs()]
memory = {}
for x in session.get_inputs():  # what it holds is not read where an episode starts
    if x.name.startswith("h_in_"):
        dtype = np.int64 if x.type == "tensor(int64)" else np.float32
        memory[x.name] = np.zeros((1, *x.shape[1:]), dtype)
rng, target = np.random.default_rng(0), 0.0  # in the place of a sensor and of what it measures

episode_start = np.array([True])
for step in range(100):
    began = time.perf_counter()
    target = 0.95 * target + 0.31 * rng.standard_normal()
    reading = np.array([[target + 0.3 * rng.standard_normal()]], np.float32)  # read the sensor
    found = session.run(None, {"obs": reading, "episode_start": episode_start, **memory})
    found = dict(zip(outputs, found, strict=True))
    memory = {name.replace("h_out", "h_in"): x for name, x in found.items() if "h_out" in name}
    episode_start = np.array([False])
    action = found["actions"][0]  # send it to the motor; here it is an estimate of the target
    print(f"{step:3d}  read {reading[0, 0]:+.2f}  act {action[0]:+.2f}  true {target:+.2f}")
    time.sleep(max(0.0, PERIOD - (time.perf_counter() - began)))
