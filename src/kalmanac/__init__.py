"""kalmanac: Kalman-filter layers and recurrent actor-critic agents for partial observability."""

__version__ = "0.1.0"
