"""The parts of the tracer: graph, guards, values, attributes, Python semantics, state of torch."""
