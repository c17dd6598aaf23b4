"""A frontend without PyTorch: Python functions and `nn` modules to the torch dialect.

- `core/`: how a program is built. In the order in which they use each other:
  - `context`: which program is being built, and the default dtype; `seed`: the random numbers of new parameters.
  - `values`: `Tensor` and the numbers `Int`, `Float`, `Bool`: Python objects that stand for SSA values. A
    `StoredTensor` (`nn.Parameter`, `nn.Buffer`) holds a numpy array and enters a program where it is first used.
  - `overloads`: which overload of an operator a call means, by PyTorch's rules, from the registry's schemas.
  - `tracer`: the builder. It takes Python values, adds an op with its type, and gives wrapped values back.
  - `writes`: what must be mutable in a function that writes to tensors; `views`: views, written with simpler ones.
  - `indexing`, `python_functions`: what is not an ATen operator, written with those that are.
  - `operators`: operators as functions and methods, made when asked for; `ops` is the namespace of them, `stub` its
    type stub, `typed` the classes for the types of schemas.
  - `module`: `Module`, its parameters and its containers.
  - `program`: a function, called once on values of given types, as a function of the torch dialect.
- `functional/`: `nn.functional`; `init`: `nn.init`.
- `layers/`: `nn`, a file for each family. A layer's `forward` calls `ops`; it needs no knowledge of the IR.

A new layer goes into the file of its family in `layers/`, and nowhere else: a class whose `forward` calls `ops` as
PyTorch's calls `torch`, or, where it holds nothing but its arguments, a line that `table.layer` makes a class of; and
its name in the `__all__` of that file, which `flambeau.nn` takes over. Its test is a case in the table of its test.
A function of PyTorch that is not an operator goes into `python_functions`. An operator whose type no rule knows is
given a rule in `infer/`; one that nothing lowers is taken apart in `passes/decompose/`, for all frontends.

Importing these, but for `tracer` and what it needs, costs little: xDSL is imported when the first op is built.
"""
