"""The end of a trace: residual code around the graph, and what a break leaves to resume."""
