"""From an English word as it is written to the lemmas it may be a form of.

Regular endings only. Irregular forms are known from the annotated text.
"""

from __future__ import annotations

_ENDINGS = {
    "1": (
        ("s", ""),
        ("ses", "s"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "2": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ied", "y"),
        ("ing", "e"),
        ("ing", ""),
    ),
    "3": (("er", ""), ("est", ""), ("er", "e"), ("est", "e"), ("ier", "y"), ("iest", "y")),
    "4": (),
}
"""For each part of speech the endings that may be taken off, and what is put in their place."""


def base_forms(form: str) -> list[str]:
    """Lemmas such as ``bank%1`` that the form may belong to: itself first, then without endings."""
    found = [f"{form}%{pos}" for pos in _ENDINGS]
    for pos, endings in _ENDINGS.items():
        for ending, instead in endings:
            if form.endswith(ending) and len(form) > len(ending):
                stem = form.removesuffix(ending)
                found.append(f"{stem}{instead}%{pos}")
                if stem[-2:-1] == stem[-1:]:  # stopped
                    found.append(f"{stem[:-1]}{instead}%{pos}")
    return list(dict.fromkeys(found))
