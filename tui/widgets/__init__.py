"""Parts of screens: rows and text that are drawn only where they are seen, bars, the help."""
