"""What an agent is called, in run folders, on the command line, in tables and in figures.

An agent is an encoder, and whether it sees the environment's true state in place of the
observation (`privileged`). Oracle is the one that sees the state and needs no memory (paper,
section 5).
"""

from typing import Any

ORACLE = "oracle"
_ORACLE = ("memoryless", True)  # encoder, privileged


def agent_of(encoder: str, privileged: bool) -> str:
    """Name the agent with this encoder."""
    if (encoder, privileged) == _ORACLE:
        return ORACLE
    return f"{encoder}, privileged" if privileged else encoder


def agent_settings(name: str) -> dict[str, Any]:
    """Tell the settings of an agent: Oracle's, or those of an encoder that sees observations."""
    encoder, privileged = _ORACLE if name == ORACLE else (name, False)
    return {"encoder": encoder, "privileged": privileged}
