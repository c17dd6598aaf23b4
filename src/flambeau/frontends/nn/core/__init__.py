"""How a program is built from Python: values, calls, the tracer, modules."""
