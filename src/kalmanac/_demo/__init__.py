"""`kalmanac demo`: four agents learn two tasks in minutes; one picture and one table come out.

Three learn the shortened Best Arm: memoryless sees the last sample alone, vssm+kf remembers, Oracle
is shown the Bayes posterior. The task is not the paper's: it ends after 100 steps instead of 1000,
so that minutes suffice, and every title and table that comes from it says "shortened". The fourth
tracks a target whose readings are noisy and often missing, beside the exact Kalman filter.
"""
