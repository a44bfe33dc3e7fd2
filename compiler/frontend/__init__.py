"""The programming model: what users call besides `compile`."""
