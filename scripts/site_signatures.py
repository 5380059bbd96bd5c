"""Signatures on the site as readers know them: mkdocs.yml names this for the API reference.

Settings are annotated with the checks of their values (`Annotated[float, Within(0, 1)]`), which are
nothing to read, and `RecurrentSAC` has its signature from a class of arguments, which is not seen
without running it.
"""

import griffe


class Readable(griffe.Extension):
    """Types without their checks, and the arguments that an agent takes first."""

    def on_attribute_instance(self, *, attr, **_):
        """Annotated[X, …] is X."""
        note = attr.annotation
        if isinstance(note, griffe.ExprSubscript) and str(note.left) == "Annotated":
            attr.annotation = note.slice.elements[0]

    def on_class_members(self, *, cls, **_):
        """RecurrentSAC(encoder, env, *, …)."""
        if cls.path != "kalmanac._sac.agent.Agent":
            return
        either = griffe.ParameterKind.positional_or_keyword
        method = cls.members["__init__"]
        known = {p.name: p for p in method.parameters}
        first = [
            known.pop("self"),
            griffe.Parameter("encoder", annotation="str", kind=either, default="'vssm+kf'"),
            known.pop("env"),
        ]
        first[-1].kind = either
        known.pop("given")
        settings = griffe.Parameter(
            "settings", annotation="Any", kind=griffe.ParameterKind.var_keyword
        )
        method.parameters = griffe.Parameters(*first, *known.values(), settings)
