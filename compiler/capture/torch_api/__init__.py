"""What the tracer knows of the functions, classes and modes of torch."""
