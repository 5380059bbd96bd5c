"""Scans on plain tensors: the Kalman filter and linear recurrences, masked and resettable."""

from kalmanac.ops.arguments import lengths_from_padding
from kalmanac.ops.belief import Belief, Filtering
from kalmanac.ops.dispatch import BACKENDS, usable, use_backend
from kalmanac.ops.kalman import kalman_scan, kalman_scan_packed
from kalmanac.ops.layer import has_kalman_layer, kalman_layer
from kalmanac.ops.linear import linear_scan

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
