"""A frontend without PyTorch: Python functions and `nn` modules to the torch dialect.

How it works, file by file, in the order in which they use each other:

- `context`: which program is being built, and the default dtype.
- `values`: `Tensor` and the numbers `Int`, `Float`, `Bool`: Python objects that stand for SSA values. A `StoredTensor`
  (`nn.Parameter`, `nn.Buffer`) holds a numpy array and enters a program where it is first used.
- `overloads`: which overload of an operator a call means, by PyTorch's rules, from the registry's schemas.
- `tracer`: the builder. It takes Python values, adds an op with its type, and gives wrapped values back.
- `writes`: what must be mutable in a function that writes to tensors.
- `indexing`, `python_functions`: what is not an ATen operator, written with those that are; `views`: those that give
  views, written with simpler ones.
- `functions`: operators as functions and methods, made when asked for; `ops` is the namespace of them, `stub` its type
  stub, `typed` the classes for the types of schemas.
- `module`, `layers` and the families beside it (`convolution`, `recurrent`, `transformer`, ...): `nn`. A layer's
  `forward` calls `ops`; it needs no knowledge of the IR. `table` makes a class of a line, where a layer holds nothing
  but its arguments.
- `functional`, with `functional_*` behind it: `nn.functional`; `init`: `nn.init`.
- `trace`: a function, called once on values of given types, as a function of the torch dialect.

A new layer is a class in the file of its family, whose `forward` calls `ops` as PyTorch's calls `torch`, or a line
that `table.layer` makes one of; its name goes into `flambeau/nn.py`, and a case into the table of its test. A function
of PyTorch that is not an operator goes into `python_functions`. An operator whose type no rule knows is given a rule in
`infer/`; one that nothing lowers is taken apart in `passes/decompose/`, for all frontends.

Importing these, but for `tracer` and what it needs, costs little: xDSL is imported when the first op is built.
"""
