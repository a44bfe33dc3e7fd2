"""Ends a trace: makes the residual code around the graph, and the resume calls after a break."""
