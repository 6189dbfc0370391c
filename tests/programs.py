"""What a traced program is made of."""

import jax


def primitives(jaxpr, names=None):
  """The names of all primitives in a program and in its parts."""
  names = set() if names is None else names
  for equation in jaxpr.eqns:
    names.add(equation.primitive.name)
    for value in jax.tree.leaves(
      list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")
    ):
      inner = getattr(value, "jaxpr", value)
      if hasattr(inner, "eqns"):
        primitives(inner, names)
  return names
