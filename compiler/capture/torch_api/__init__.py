"""How the tracer handles functions, classes and modes of torch."""
