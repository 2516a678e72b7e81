"""Mutants of the core that nothing notices, because they make no difference that anybody should mind; each with why.

A name is what `operators` calls the mutant. `scripts/mutants` fails if one of these is noticed, and if one that is not
here is noticed by nothing.
"""

HARMLESS = dict[str, str]()
