"""Operations on plain tensors: each one function, with its plain and fused forms beside it."""

from kalmanac.ops.scan.arguments import lengths_from_padding
from kalmanac.ops.scan.backends import BACKENDS, usable, use_backend
from kalmanac.ops.scan.inputs import Belief, Filtering
from kalmanac.ops.scan.kalman import kalman_scan, kalman_scan_packed
from kalmanac.ops.scan.layer import has_kalman_layer, kalman_layer
from kalmanac.ops.scan.linear import linear_scan

__all__ = [
    "BACKENDS",
    "Belief",
    "Filtering",
    "has_kalman_layer",
    "kalman_layer",
    "kalman_scan",
    "kalman_scan_packed",
    "lengths_from_padding",
    "linear_scan",
    "usable",
    "use_backend",
]
