"""tc-tui: a trace of tc or of PyTorch goes in; screens to find one's way in it come out."""
