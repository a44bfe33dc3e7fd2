"""The values of Python objects that the tracer works on."""
